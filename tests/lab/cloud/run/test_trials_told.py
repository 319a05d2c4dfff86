"""What `recommend` says of trials that are stored for the job."""

import pytest

from control.jobs import Job
from lab.cloud.input.store import Measurements, Run
from lab.cloud.run.recommending import Market, Question, answer
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
