"""Recommenders on public measurements, a few jobs each: all of it takes minutes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from studies.cloud import recommenders
from studies.cloud.recommenders import AIMS, DATA, area, section, summary, trials
from studies.cloud.searches import Judged, judge, past
from studies.cloud.tables import TABLES
from studies.harness import NO_DATA, Asked
from twinbed import ScenarioError

Data = Callable[[str], Path]


def judged(trials: float, auc: float = float("nan")) -> Judged:
    return Judged("made-up", "ours", "job", 0, trials, 0.1, auc, auc, 0.9)


def test_without_data_each_row_says_so(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        assert "\n".join(section(folder)).count(NO_DATA) == len(AIMS) + len(DATA)


def test_a_table_that_there_is_not_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no table 'scuot'; there are scout"):
        recommenders.make(Asked(data=tmp_path, only=["scuot"]))


def test_a_search_that_never_came_there_has_no_mean() -> None:
    assert trials([judged(2.0), judged(4.0)]) == 3.0
    assert trials([judged(2.0), judged(float("nan"))]) == np.inf
    assert np.isnan(area([judged(1.0)]))
    assert area([judged(1.0, 0.8), judged(1.0)]) == 0.8


def test_searches_that_end_without_a_find_are_counted(public_data: Data, monkeypatch) -> None:
    folder = public_data("scout_multinode").parent
    monkeypatch.setattr(recommenders, "DATA", (recommenders.SCOUT,))
    lines = "\n".join(section(folder, names=("exhaustive", "cost-opt"))).splitlines()
    rows = {line.split(" | ")[1]: line.split(" | ") for line in lines if line.startswith("| scout | ")}
    assert rows["exhaustive"][4] == "0%"
    assert rows["cost-opt"][4] != "0%"


@pytest.mark.parametrize(
    ("name", "folder", "shape", "ended"),
    [("scout", "scout_multinode", (12, 69), 786), ("lynceus", "lynceus_tf_ps", (2, 384), 579)],
)
def test_a_table_holds_every_run(
    public_data: Data, name: str, folder: str, shape: tuple[int, int], ended: int
) -> None:
    table = TABLES[name](public_data(folder).parent)
    assert table.history.time_s.shape == shape
    assert int(table.history.ok.sum()) == ended


def test_the_job_judged_is_never_in_its_history(public_data: Data) -> None:
    table = TABLES["scout"](public_data("scout_multinode").parent)
    for job, name in enumerate(table.history.jobs):
        others = past(table, job, programs=False)
        assert others is not None
        assert name not in others.jobs
        strangers = past(table, job, programs=True)
        assert strangers is not None
        assert all(stranger.split("/")[0] != table.program[job] for stranger in strangers.jobs)
        assert len(strangers.jobs) == 10


@pytest.mark.slow
def test_transfer_needs_fewer_trials_than_chance(public_data: Data) -> None:
    table = TABLES["scout"](public_data("scout_multinode").parent)
    ours = list(judge(table, "transfer", jobs=[0], few=5))
    chance = list(judge(table, "random", jobs=[0], seeds=range(10)))
    assert trials(ours) < 0.6 * trials(chance)
    assert "top-5 AUC" in summary(ours)
    assert "AUC" not in summary(chance)
