import numpy as np
import pytest

from control.jobs import Objective
from control.predictor.networks import RECIPES, Kind, Network, Norm, as_arrays, from_arrays
from control.predictor.training import Schedule, train
from control.predictor.tried_network import TriedNetwork, train_network
from tests.made_up_jobs import examples
from twinbed import InvariantError, ScenarioError

SHORT = Schedule(epochs=3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(Kind))
def test_every_network_gets_better_at_the_rows_that_it_sees(kind):
    rows = examples(2)
    trained = train(kind, rows, 1, schedule=Schedule(epochs=25, patience=25))
    assert len(trained.losses) == 25
    assert trained.losses[-1][0] < trained.losses[0][0]
    predicted = trained.predict(rows)
    assert ((predicted >= 0) & ((predicted <= 1) | (not kind.classifies))).all()


@pytest.mark.slow
def test_the_time_network_finds_the_law():
    rows = examples(3)
    predicted = train(Kind.TIME, rows, 1, schedule=Schedule(epochs=120, patience=120)).predict(rows)
    assert np.corrcoef(np.log(predicted), np.log(rows.time_s))[0, 1] > 0.8


@pytest.mark.slow
def test_the_same_seed_gives_the_same_network_and_another_seed_another():
    rows = examples(2)
    first, again, other = (train(Kind.TIME, rows, seed, schedule=SHORT).predict(rows) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_training_stops_when_it_gets_no_better():
    trained = train(Kind.TIME, examples(2), 1, schedule=Schedule(epochs=400, patience=2))
    losses = [held_out for _, held_out in trained.losses]
    assert len(losses) == 400 or len(losses) == int(np.argmin(losses)) + 1 + 2


def test_a_network_survives_as_arrays_and_strange_arrays_do_not():
    rows = examples(2)
    trained = train(Kind.TOP_COST, rows, 1, schedule=SHORT)
    arrays = as_arrays(trained.network)
    statics = len(trained.encoder.columns)
    again = from_arrays(Kind.TOP_COST, statics, arrays)
    for name, value in as_arrays(again).items():
        np.testing.assert_array_equal(value, arrays[name])
    with pytest.raises(ScenarioError, match="other parameters"):
        from_arrays(Kind.COST, statics, arrays)
    name = next(iter(arrays))
    for wrong in (arrays[name][:1], np.full_like(arrays[name], np.nan)):
        with pytest.raises(ScenarioError, match=r"another shape, or a value that is no number"):
            from_arrays(Kind.TOP_COST, statics, {**arrays, name: wrong})


@pytest.mark.parametrize(("jobs", "parts"), [(1, 1 + 5 + 5), (2, 1 + 5 + 2)])
def test_a_network_knows_its_errors_on_rows_and_on_jobs_that_were_left_out(jobs, parts):
    rows, seen = examples(jobs), []
    tried = train_network(
        Objective.TIME, rows, 1, schedule=Schedule(epochs=1), on_part=lambda *part: seen.append(part)
    )
    assert seen == [(part, parts) for part in range(1, parts + 1)]
    for errors in (tried.job_errors, tried.row_errors):
        assert len(errors) == len(rows)
        assert (np.diff(errors) >= 0).all()
        assert errors.min() >= 0
    assert np.array_equal(tried.job_errors, tried.row_errors) == (jobs == 1)
    assert (tried.by, tried.jobs) == (Objective.TIME, tuple(job.name for job in rows.jobs))
    np.testing.assert_array_equal(tried.predict(rows), tried.trained.predict(rows))


def test_a_network_that_classifies_has_no_errors_of_a_value():
    trained = train(Kind.TOP_COST, examples(1), 1, schedule=Schedule(epochs=1))
    with pytest.raises(InvariantError, match="predicts no value"):
        TriedNetwork(trained, np.zeros(1), np.zeros(1), ())


def test_too_little_to_learn_from():
    rows = examples(1)
    with pytest.raises(ScenarioError, match="at least 10 are needed"):
        train(Kind.TIME, rows.take(np.arange(9)), 0)


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"batch": 1}, {"patience": 0}, {"held_out": 0.0}, {"held_out": 1.0}]
)
def test_a_schedule_that_trains_nothing_is_refused(wrong):
    assert Schedule(epochs=1, batch=2, patience=1).held_out == 0.2
    with pytest.raises(ScenarioError, match="expected at least 1 epoch"):
        Schedule(**wrong)


@pytest.mark.parametrize("kind", list(Kind))
def test_batches_are_normalised_where_the_recipe_says(kind):
    network = Network(5, kind)
    static, head = (
        any(type(layer).__name__ == "BatchNorm1d" for layer in part.modules())
        for part in (network.static, network.head)
    )
    norm = RECIPES[kind].norm
    assert (static, head) == (norm is not Norm.NONE, norm is Norm.ALL)


def test_objectives_of_the_kinds():
    assert [kind.by for kind in Kind] == [Objective.COST, Objective.TIME] * 2
