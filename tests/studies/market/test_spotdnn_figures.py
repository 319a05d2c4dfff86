"""The figures that spotDNN's paper prints, from its own constants; and what is made of measurements."""

from pathlib import Path

import pytest

from control.recommender.spotdnn import Goal
from control.recommender.spotdnn_plans import provision
from studies.market import spotdnn, unequal
from studies.market.spotdnn import (
    GOAL_S1,
    PLANS_S1,
    PLANS_S5,
    QUOTAS_S5,
    chosen_s1,
    evaluated,
    kinds,
    plan_of,
)
from testbed.cloud.asynchronous import Machine


def test_s1_the_plan_is_the_source_s_to_a_tenth_of_a_second_and_a_cent() -> None:
    chosen = chosen_s1()
    for name in ("spotDNN", "Srifty+"):
        counts, time_s, cost = PLANS_S1[name]
        plan = chosen[name].plan
        assert plan is not None
        assert plan_of(chosen[name]) == counts
        assert plan.time_s == pytest.approx(time_s, abs=0.1)  # pushes are rounded up
        assert round(plan.cost_usd, 2) == cost
    # 2549.07 / 3600 · (5 · 2.28 + 3 · 4.56) = 17.76
    assert evaluated((0, 0, 5, 3, 0), GOAL_S1, on_demand=True)[1] == pytest.approx(17.75, abs=0.01)


def test_s1_the_plan_of_cm_dare_is_late_too_but_is_not_chosen_by_the_given_constants() -> None:
    counts, source_s, _ = PLANS_S1["CM-DARE+"]
    assert evaluated(counts, GOAL_S1)[0] == pytest.approx(source_s, rel=0.002)
    assert plan_of(chosen_s1()["CM-DARE+"]) != counts


def test_s5_two_of_three_plans_of_resnet_are_the_source_s() -> None:
    same = [
        plan_of(provision(spotdnn.RESNET, kinds(QUOTAS_S5), Goal(loss, time_s))) == counts
        for loss, time_s, counts in PLANS_S5
    ]
    assert same == [True, True, False]


def test_s4_r_of_equal_and_unequal_workers() -> None:
    found = {row[1]: (row[3], row[5]) for row in spotdnn._s4()}
    assert [found[f"R of {count} equal workers"][0] for count in (2, 3, 4)] == ["0.71", "0.82", "0.87"]
    wrong = [what for what, (_, said) in found.items() if said != spotdnn.SAME]
    assert wrong == ["EsperBERTo: R of 2 fast and 1 slow"]


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Measurements of a made-up machine: 1 MB a push, 5 MB/s alone, contention 0.5 · √n − 0.5."""
    compute_s = {"small": 1.0, "medium": 0.5, "large": 0.25}
    path = tmp_path / "measured.jsonl"

    def bandwidth(workers: int) -> float:
        share = min(max(0.5 * workers**0.5 - 0.5, 0), 1)
        equal = unequal.SERVER_MB_S / workers
        return share * equal + (1 - share) * 5 if equal < 5 else 5.0

    def write(name: str, machines: tuple[Machine, ...]) -> None:
        moved_s = 2 / bandwidth(len(machines))
        ranks = range(1, len(machines) + 1)
        times = {
            rank: compute_s[machine.name] + moved_s for rank, machine in zip(ranks, machines, strict=True)
        }
        pushes = 20 * len(machines)
        cell = {
            "time_s": pushes / sum(1 / time for time in times.values()),
            "pushes": pushes,
            "iteration_s": times,
            "moved_s": dict.fromkeys(ranks, moved_s),
            "push_mb": 1.0,
        }
        unequal._keep(path, name, cell)

    for group in (unequal.ALONE, unequal.CONTENDING, unequal.JUDGED):
        for name, machines in group.items():
            write(name, machines)
    return path


def test_what_follows_the_source_s_law_is_predicted_exactly(measured: Path) -> None:
    cells = unequal.read(measured)
    told = unequal.known(cells)
    assert told is not None
    assert told.training.worker_mb_s == pytest.approx(5)
    rows = unequal.compared(cells)
    assert [row.workers for row in rows] == [2, 3, 4, 6, 8]
    for row in rows:
        assert row.predicted_s == pytest.approx(row.measured_s, rel=0.02)  # 2 workers do not contend
        assert row.dare_s <= row.predicted_s
    assert rows[-1].dare_s < 0.9 * rows[-1].measured_s


def test_the_page_shows_what_was_measured_and_says_what_was_not(measured: Path, tmp_path: Path) -> None:
    revocation = {
        "notice_s": 12.0, "killed_s": 24.0, "joined_s": 30.0, "before": 4.0, "between": 3.0, "after": 4.0,
        "longest_pause_s": 1.5,
    }  # fmt: skip
    unequal._keep(measured, "revocation", revocation)
    text = "\n".join(spotdnn.parts(measured))
    assert "| 29.6 s | 6.0 s; 100% of the speed afterwards, 75% meanwhile | R | same shape |" in text
    assert "8 workers +0.0%" in text
    empty = "\n".join(spotdnn.parts(tmp_path / "empty"))
    assert empty.count("not measured yet") == 2
