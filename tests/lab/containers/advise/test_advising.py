"""An advice from histories: what is well known comes out, and what is not known is not claimed."""

import numpy as np
import pytest

from control.advice.model import Sizes
from lab.charts.words import significant
from lab.containers.advise.advising import Wanted, advise
from lab.containers.advise.histories import of_cluster
from lab.containers.advise.rehearsal import Hosts, Rehearsal
from lab.containers.advise.table import result
from lab.containers.calibrate.values import load_calibration
from lab.containers.input.sections import Price
from tests.lab.containers.advise.histories import MIB, alone, history, trace
from traces.prometheus.in_force import SETTINGS
from twinbed import ScenarioError

MACHINE = load_calibration().machine()
DAY = 24 * 60
PERIODS = 600


def used(level, days=2.0, spread=0.3, seed=0):
    random = np.random.default_rng(seed)
    return level * random.lognormal(0, spread, int(days * DAY))


def advised(own, wanted=Wanted(), **facts):  # noqa: B008 - Wanted is frozen
    return advise([of_cluster("test", history(own, **facts))], wanted, MACHINE)


def test_what_is_far_too_large_is_to_be_applied_with_figures_before_and_after():
    own = trace([used(0.2)], np.full((1, 2 * DAY), 200.0 * MIB))
    (row,) = advised(
        own,
        cpu_request_cores=[2.0],
        cpu_limit_cores=[4.0],
        memory_request_bytes=[2048.0 * MIB],
        memory_limit_bytes=[2048.0 * MIB],
    ).rows
    assert row.verdict == "apply"
    assert "less money than now" in row.reason
    assert row.before.throttled_share.mean == 0
    assert row.after.oom_events.mean == 0
    assert row.after.money_per_day.mean < row.before.money_per_day.mean / 4
    assert 0.2 < row.advised.cpu_request_cores < 0.5
    assert row.advised.cpu_limit_cores == "none"
    assert row.cpu_limit_reason.startswith("No limit: one of ")
    assert row.advised.memory_limit_bytes == 300 * MIB
    assert row.advised.memory_request_bytes >= row.peak_bytes


def test_what_is_killed_now_is_raised_and_the_replay_says_so():
    held = np.full((1, 2 * DAY), 200.0 * MIB)
    held[0, 500] = 400 * MIB
    (row,) = advised(trace([used(0.2)], held), cpu_request_cores=[0.5], memory_limit_bytes=[300.0 * MIB]).rows
    assert row.verdict == "apply"
    assert "meets its memory limit" in row.reason
    assert row.before.oom_events.mean > 0
    assert row.after.oom_events.mean == 0


def test_a_reason_has_the_figure_of_its_row():
    own, wanted = trace([used(0.5, 1.0)], np.full((1, DAY), 200.0 * MIB)), Wanted(policies=("requests-only",))
    made = advised(own, wanted, cpu_limit_cores=[1.0], memory_limit_bytes=[300.0 * MIB])
    (row,), (shown,) = made.rows, result(made).rows
    figure = shown["throttled"].split()[0]
    assert significant(100 * row.before.throttled_share.high) != figure
    assert f"throttles it in {figure} % of its periods;" in row.reason


def test_a_limit_of_ours_throttles_within_the_risk():
    own = trace([used(0.5), used(0.1, seed=1)], names=["a", "b"])
    for row in advised(own, Wanted(policies=("limits",), risk=0.02)).rows:
        assert row.after.throttled_share.high <= 0.02
        assert row.advised.cpu_limit_cores >= row.advised.cpu_request_cores
        assert row.cpu_limit_reason.startswith("Limit of ")
        share = significant(100 * row.after.throttled_share.mean)
        assert row.cpu_limit_reason.endswith(f"it throttled in {share} % of the periods.")


def test_a_container_that_requests_nothing_is_told_so_and_gets_requests():
    nothing = {fact: [0.0] for fact in SETTINGS}
    made = advised(trace([used(0.2)], np.full((1, 2 * DAY), 200.0 * MIB)), **nothing)
    (row,) = made.rows
    assert row.before.late_share.mean == 1
    (note,) = [note for note in made.notes if note.startswith("current: ")]
    assert "100 % of the work late on a full host" in note
    assert row.unknown == []
    assert row.current.cpu_limit_cores == "none"
    assert row.before.money_per_day.mean == 0
    assert row.verdict == "care"
    assert "requests nothing" in row.reason


def test_memory_that_is_not_known_is_left_alone_and_said():
    (row,) = advised(trace([used(0.2)]), cpu_request_cores=[1.0]).rows
    assert row.advised.memory_limit_bytes is None
    assert row.after.oom_events is None
    assert row.after.memory_slack_bytes is None
    assert row.verdict == "care"
    assert "only CPU" in row.reason


@pytest.mark.parametrize("intervals", [1, 2, 3])
def test_a_history_of_a_few_intervals_advises_to_leave_things_alone(intervals):
    (row,) = advised(trace(np.full((1, intervals), 0.5), np.full((1, intervals), 50.0 * MIB))).rows
    assert row.verdict == "leave"
    assert f"Only {intervals} sample" in row.reason


def test_a_container_that_appears_late_is_sized_by_what_it_did():
    present = np.arange(2 * DAY) >= 1.5 * DAY
    own = trace(
        [used(0.2), used(0.6, seed=2)],
        np.full((2, 2 * DAY), 80.0 * MIB),
        present=[np.ones(2 * DAY), present],
        names=["early", "late"],
    )
    told = of_cluster("test", history(own, alone("early", "late")))
    rows = {row.name: row for row in advise([told], Wanted(), MACHINE).rows}
    assert rows["late"].advised.cpu_request_cores > 0.4
    assert rows["late"].after.money_per_day.mean < rows["late"].advised.cpu_request_cores * 0.0316 * 24


@pytest.mark.parametrize("policies", [("vpa",), ("krr",), ("requests-only", "vpa"), ("limits",)])
def test_no_memory_is_advised_below_the_recorded_peak(policies):
    held = np.full((2, 4 * DAY), 300.0 * MIB)
    held[0, 10] = 3000 * MIB  # days ago, which the VPA forgets
    own = trace([used(0.2, 4.0), used(0.3, 4.0, seed=1)], held, names=["spiky", "flat"])
    told = of_cluster("test", history(own, alone("spiky", "flat")))
    rows = advise([told], Wanted(policies=policies, seeds=(0,)), MACHINE).rows
    assert [row.verdict for row in rows if row.name == "spiky"] == [
        "leave" if policies == ("vpa",) else "care"
    ]
    for row in rows:
        advised = row.advised
        if row.verdict != "leave":
            assert advised.memory_request_bytes >= row.peak_bytes
            # The VPA's limit follows the present one, which is not known here.
            assert advised.memory_limit_bytes is None or advised.memory_limit_bytes >= row.peak_bytes


def test_on_shared_hosts_a_container_that_requests_nothing_waits_for_the_others():
    own = trace([np.full(120, 0.3), np.full(120, 1.0)], names=["asks", "none"])
    told = of_cluster("test", history(own, alone("asks", "none"), cpu_request_cores=[1.0, 0.0]))
    rehearsal = Rehearsal(told, MACHINE, Price(), (0,), Hosts(1, 1.0))
    late = rehearsal.fates(told.usage.current).late_share[0]
    assert late[0] < 0.1 < 0.9 < late[1]


def test_a_search_of_a_long_history_sees_other_hours_than_the_first(monkeypatch):
    days, busy = 20, np.arange(20 * DAY) % DAY >= DAY // 2
    told = of_cluster("test", history(trace([np.where(busy, 2.0, 0.1)])))
    # One of every 72 stretches of 20 minutes: at equal distances always the first minutes after midnight.
    monkeypatch.setattr("lab.containers.advise.rehearsal._SEARCHED", days * DAY * PERIODS / 72)
    assert Rehearsal(told, MACHINE, Price(), (0,)).late()(np.array([1.0])) > 0.1


def test_a_notes_share_of_throttled_periods_is_of_the_fleets_periods():
    brief = np.arange(2 * DAY) < 120
    own = trace(
        [used(0.2), np.full(2 * DAY, 1.0)],
        present=[np.ones(2 * DAY), brief],
        names=["long", "brief"],
    )
    now = {"cpu_request_cores": [8.0, 0.1], "cpu_limit_cores": [8.0, 0.1]}
    told = of_cluster("test", history(own, alone("long", "brief"), **now))
    notes = advise([told], Wanted(policies=("krr", "current"), seeds=(0,)), MACHINE).notes
    (note,) = [note for note in notes if note.startswith("current: ")]
    # All of the brief container's 120 intervals among 3000 are throttled: 4 %.
    assert "throttled in 4 % of the periods" in note


def test_rows_to_leave_do_not_count_in_the_notes():
    own = trace([used(0.2), np.full(2 * DAY, 1.0)], names=["large", "right"])
    told = of_cluster("test", history(own, alone("large", "right"), cpu_request_cores=[8.0, 0.1]))
    made = advise([told], Wanted(policies=("krr", "current"), seeds=(0,)), MACHINE)
    assert [row.verdict for row in made.rows] == ["care", "leave"]
    (note,) = [note for note in made.notes if note.startswith("krr: ")]
    assert "(1 of 2 rows)" in note
    assert f"{made.rows[0].after.money_per_day.mean:.3f}" in note
    head = "made from; rows to leave do not count; current comes last and has no rank:"
    assert any(note.endswith(head) for note in made.notes)


def test_the_notes_have_no_exponents():
    own = trace([np.full(200, 50.0)], np.full((1, 200), 90.0 * MIB))
    wanted = Wanted(policies=("krr", "current"), seeds=(0,), price=Price(cpu_core_hour=10.0))
    notes = advised(own, wanted, cpu_limit_cores=[1.0], memory_limit_bytes=[1e9]).notes
    assert not [note for note in notes if "e+" in note]
    assert any("throttled in 100 % of the periods" in note for note in notes)


@pytest.mark.parametrize(("interval_s", "said"), [(300.0, "lower"), (60.0, ""), (1.0, "higher")])
def test_a_note_says_when_krr_and_the_vpa_would_read_other_intervals(interval_s, said):
    own = trace([used(0.3, days=0.2)], interval_s=interval_s)
    notes = [note for note in advised(own, Wanted(seeds=(0,))).notes if note.startswith("In a cluster")]
    assert len(notes) == bool(said)
    assert all(f"every 75 s and vpa reads CPU use every 60 s; here from means over {interval_s:g} s" in note
               and f"requests are {said}" in note for note in notes)  # fmt: skip


def test_the_notes_compare_the_candidates():
    notes = advised(trace([used(0.3)], np.full((1, 2 * DAY), 90.0 * MIB))).notes
    for name in ("requests-only", "limits", "krr", "vpa"):
        (note,) = [note for note in notes if note.startswith(f"{name}: ")]
        assert "USD a day" in note
        assert "late on a full host" in note


def test_the_notes_have_the_price_and_its_source():
    own = trace([used(0.3)], np.full((1, 2 * DAY), 90.0 * MIB))
    assert Price().note in advised(own).notes


def test_the_same_history_and_seeds_give_the_same_advice():
    own = trace([used(0.3)], np.full((1, 2 * DAY), 90.0 * MIB))
    first, second = (advised(own).model_dump() for _ in range(2))
    assert first["rows"] == second["rows"]


def test_a_row_in_two_histories_and_unknown_candidates_are_refused():
    told = of_cluster("test", history(trace([used(0.2)])))
    with pytest.raises(ScenarioError, match="two of the histories"):
        advise([told, told], Wanted(), MACHINE)
    with pytest.raises(ScenarioError, match="no candidate 'kr'; there are"):
        Wanted(policies=("kr",))
    with pytest.raises(ScenarioError, match="the present settings are no advice"):
        Wanted(policies=("current",))


def test_seeds_change_how_use_varies_within_an_interval_and_nothing_else():
    told = of_cluster("test", history(trace([used(0.5)])))
    fates = Rehearsal(told, MACHINE, Price(), (0, 1)).fates(
        Sizes(*(np.array([value]) for value in (0.6, 0.7, np.nan, np.nan)))
    )
    assert fates.throttled_share[0, 0] != fates.throttled_share[1, 0]
    assert fates.arrived_s[0, 0] == pytest.approx(fates.arrived_s[1, 0])
    assert fates.money_per_day[0, 0] == fates.money_per_day[1, 0]


def test_on_hosts_with_room_nothing_is_late_and_on_others_weights_decide():
    own = trace([used(0.5, 0.2), used(0.5, 0.2, seed=3)], names=["a", "b"])
    told = of_cluster("test", history(own, alone("a", "b")))
    sizes = Sizes(np.array([0.9, 0.1]), np.full(2, np.inf), *np.full((2, 2), np.nan))
    late = {
        cores: Rehearsal(told, MACHINE, Price(), (0,), Hosts(1, cores)).fates(sizes).late_share[0]
        for cores in (50.0, 1.1)
    }
    assert late[50.0].tolist() == [0, 0]
    assert late[1.1][0] < late[1.1][1] / 2
    apart = Rehearsal(told, MACHINE, Price(), (0,), Hosts(2, 1.1))
    assert apart.most_requested(sizes.cpu_request).tolist() == [0.9, 0.1]


def test_requests_cost_less_than_what_a_percentile_would_reserve():
    cores, held = [used(0.5, 0.5), used(0.1, 0.5, spread=1.0, seed=3)], [[9e8] * (DAY // 2)] * 2
    own = trace(cores, held, names=["a", "b"])
    told = of_cluster("test", history(own, alone("a", "b")))
    ours, krr = (advise([told], Wanted(policies=(name,)), MACHINE).rows for name in ("requests-only", "krr"))
    money = [sum(row.after.money_per_day.mean for row in rows) for rows in (ours, krr)]
    assert money[0] < money[1]


def test_a_long_history_is_searched_in_stretches(monkeypatch):
    monkeypatch.setattr("lab.containers.advise.rehearsal._SEARCHED", 1e5)
    own = trace([used(0.5), used(0.1, seed=1)], names=["a", "b"])
    told = of_cluster("test", history(own, alone("a", "b")))
    row, _ = advise([told], Wanted(policies=("limits",)), MACHINE).rows
    assert 0.3 < row.advised.cpu_request_cores < 1.0


def test_a_search_of_many_containers_sees_more_than_the_begin(monkeypatch):
    monkeypatch.setattr("lab.containers.advise.rehearsal._SEARCHED", 1e4)
    own = trace([np.repeat([0.1, 1.0], 100)], names=["a"])
    search = Rehearsal(of_cluster("test", history(own, alone("a"))), MACHINE, Price(), (0,)).part(0, 1)
    # In the second half the container uses twice the quota.
    assert search(np.array([0.5]))[0] > 0.4


def test_a_history_of_days_is_rehearsed():
    own = trace([[0.5] * 120], interval_s=86_400.0, names=["a"])
    told = of_cluster("test", history(own, alone("a")))
    (row,) = advise([told], Wanted(policies=("krr",), seeds=(0,)), MACHINE).rows
    assert row.advised.cpu_request_cores == 0.5
    assert row.after.late_share.mean > 0
