"""What `recommend` says of trials that are stored for the job."""

import pytest

from control.jobs import Job
from lab.cloud.input.store import Measurements, Run
from lab.cloud.run.recommending import Market, Question, answer
from tests.lab.cloud.run.test_recommending import local_run
from traces.catalogue.catalogue import load


@pytest.fixture
def database(tmp_path):
    return Measurements(tmp_path / "m.duckdb")


def test_trials_of_misspelt_types_and_at_one_worker_s_price_are_told(database):
    database.add([Run("new", "n1-standard-4", 4, 3600.0, 0.19, 4, 15)])
    asked = Question(
        Job("new"), Market("us-central1", types=("n1-standard-4",), workers=(1, 4)), shipped=False
    )
    said = " ".join(answer(asked, load(), database).notes)
    assert "Paid at the price of one worker: 4 × n1-standard-4." in said
    assert "tell nothing" not in said
    database.add([Run("new", "N1-standard-4", 2, 3600.0, 0.38, 4, 15)])
    said = " ".join(answer(asked, load(), database).notes)
    assert "Trials on N1-standard-4 tell nothing: us-central1 has no on-demand price of them" in said


@pytest.mark.parametrize("method", ["transfer", "cherrypick", "exhaustive"])
def test_without_the_gradients_noise_a_trial_has_the_time_that_was_measured(database, method):
    measured = {1: 10_000.0, 2: 5400.0, 4: 2900.0}
    database.add([Run("new", "n1-standard-4", n, s, 0.19 * n, 4, 15) for n, s in measured.items()])
    market = Market("us-central1", types=("n1-standard-4",), workers=(1, 2, 4), batches=(32, 64))
    told = answer(Question(Job("new", batch=32), market, method=method), load(), database)
    assert {row.configuration.batch for row in told.ranking} == {32}
    times = {row.configuration.workers: row.time_s for row in told.ranking}
    assert times == {workers: pytest.approx(time_s, rel=0.1) for workers, time_s in measured.items()}
    assert any("only the one nearest the job's own is ranked" in note for note in told.notes)


@pytest.mark.parametrize(("time_s", "told"), [(12_680.0, ""), (1268e3, "100 times"), (12.68, "0.001 times")])
def test_a_trial_that_contradicts_the_local_run_is_told(database, time_s, told):
    database.add([Run("new", "n1-standard-4", 1, time_s, 0.19, 4, 15)])
    job = Job("new", local_run=local_run(), batch=32, samples=32e6)
    market = Market("us-central1", types=("n1-standard-4",), workers=(1, 2))
    said = " ".join(answer(Question(job, market, shipped=False), load(), database).notes)
    assert f"Trials took {told}" in said if told else "Trials took" not in said


@pytest.mark.parametrize("factor", [100.0, 0.01])
def test_a_local_run_that_a_trial_contradicts_does_not_pull_types_that_were_not_tried(database, factor):
    database.add([Run("new", "n1-standard-4", 1, 12_680.0 * factor, 0.19, 4, 15)])
    job = Job("new", local_run=local_run(), batch=32, samples=32e6)
    market = Market("us-central1", types=("n1-standard-4", "n1-standard-8"), workers=(1,))
    ranking = answer(Question(job, market, shipped=False), load(), database).ranking
    times = {row.configuration.instance: row.time_s for row in ranking}
    # Twice the vCPUs: half as long, or up to twice off that.
    assert 1 < times["n1-standard-4"] / times["n1-standard-8"] < 4
