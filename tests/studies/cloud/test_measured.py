"""The table of measured jobs that ships, and what is computed from it."""

import csv

import numpy as np
import pytest

from lab.cloud.input import data_set
from lab.cloud.input.data_set import COLUMNS
from lab.runs.store import RunStore
from studies.cloud import measured
from studies.experiments.catalogue import experiment
from studies.experiments.evaluate import evaluate
from studies.judge import Verdict


@pytest.fixture(scope="module")
def runs():
    with data_set.TABLE.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_run_has_its_machine_and_its_time_and_is_there_once(runs):
    assert set(runs[0]) == set(COLUMNS)
    assert all(run["kernel"] and run["cpu"] and run["measured_at"] for run in runs)
    keys = [(run["job"], run["instance"], run["workers"], run["batch"]) for run in runs]
    assert len(set(keys)) == len(keys)
    assert all(int(run["steps"]) >= 20 for run in runs if run["outcome"] == "ok")


def test_the_analytic_model_expects_what_was_measured_within_a_third():
    rows = measured.rows()
    assert all(job.local_run is not None for job in rows.jobs)
    error = np.abs(np.log(rows.time_s / rows.prior_time_s))
    assert np.median(error) < np.log(4 / 3)


def test_vertex_bills_what_the_source_paid(tmp_path):
    evaluation = {item.figure.key: item for item in evaluate(experiment("C4"), RunStore(tmp_path)).measured}
    assert evaluation["bill_small"].mean == pytest.approx(24.29, rel=0.02)
    assert evaluation["bill_large"].mean == pytest.approx(19.06, rel=0.02)
    assert evaluation["time"].judgement.verdict is Verdict.SIZE
