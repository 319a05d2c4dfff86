"""Recommenders on public measurements, a few jobs each: all of it takes minutes.

The figures that are published come from studies.cloud.evaluate_recommenders.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from studies.cloud.evaluate_recommenders import judge, past, summary
from studies.cloud.measured_tables import TABLES

Data = Callable[[str], Path]


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
        assert all(each.split("/")[0] != table.program[job] for each in strangers.jobs)
        assert len(strangers.jobs) == 10


@pytest.mark.slow
def test_transfer_needs_fewer_trials_than_chance(public_data: Data) -> None:
    table = TABLES["scout"](public_data("scout_multinode").parent)
    jobs = range(0, 12, 6)
    ours = list(judge(table, "transfer", jobs=jobs))
    chance = list(judge(table, "random", jobs=jobs, seeds=range(10)))
    assert np.mean([each.trials for each in ours]) < 0.6 * np.mean([each.trials for each in chance])
    assert "top-5 AUC" in summary(ours)
    assert "AUC" not in summary(chance)
