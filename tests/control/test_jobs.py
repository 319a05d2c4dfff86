from __future__ import annotations

import numpy as np
import pytest

from control.jobs import Candidates, Configuration, History, InstanceType, LocalRun, Objective, candidates
from control.recommender.ports import no_observations
from twinbed import InvariantError, ScenarioError

TYPES = {
    "small": InstanceType("small", "any", 2, 8, network_bps=1e9),
    "gpu": InstanceType("gpu", "any", 4, 61, gpus=1, gpu_model="K80"),
}
PRICES = {"small": 0.1, "gpu": 0.9}


def three() -> Candidates:
    rows = [Configuration("small", 4, 32), Configuration("gpu", 2, 128, 1, "small"), Configuration("gpu", 1)]
    return candidates(TYPES, PRICES, rows)


def local_run(**changes: object) -> LocalRun:
    series = {
        name: np.ones((5, 3)) for name in ("cpu_cores", "memory_bytes", "net_in_bytes", "net_out_bytes")
    }
    quantities = {
        "interval_s": 1.0,
        **series,
        "step_s": np.array([0.1]),
        "batch": 32,
        "parameters": 10,
    } | changes
    return LocalRun(**quantities)  # type: ignore[arg-type]


def test_a_cluster_is_priced_with_its_servers():
    assert np.allclose(three().price_usd_h, [4 * 0.1, 2 * 0.9 + 0.1, 0.9])
    assert np.isnan(three().batch[2])
    assert np.isnan(three().network_bps[1])


def test_a_configuration_comes_back_as_it_went_in():
    assert three().configuration(1) == Configuration("gpu", 2, 128, 1, "small")
    assert str(three().configuration(1)) == "2 × gpu + 1 × small, batch 128"
    assert three().configuration(2).batch is None


def test_rows_are_taken_with_their_parameters():
    rows = [Configuration("small", 1), Configuration("small", 2)]
    all_of = candidates(TYPES, PRICES, rows, {"learning_rate": np.array([0.1, 0.2])})
    assert all_of.take(np.array([1])).parameters["learning_rate"].tolist() == [0.2]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([Configuration("huge", 1)], "no instance type 'huge'; there are gpu, small"),
        ([], "no candidate configuration is left"),
    ],
)
def test_what_cannot_be_bought_is_named(rows: list[Configuration], message: str):
    with pytest.raises(ScenarioError, match=message):
        candidates(TYPES, PRICES, rows)


def test_a_type_without_a_price_is_named():
    with pytest.raises(ScenarioError, match="type gpu has no price"):
        candidates(TYPES, {"small": 0.1}, [Configuration("gpu", 1)])


def test_columns_of_different_lengths_are_our_bug():
    with pytest.raises(InvariantError, match="different lengths"):
        three().repriced(np.array([1.0]))


@pytest.mark.parametrize("name", ["cpu_cores", "net_in_bytes"])
def test_a_local_run_with_nan_is_refused(name: str):
    with pytest.raises(ScenarioError, match=f"{name} holds NaN"):
        local_run(**{name: np.full((5, 3), np.nan)})


def test_a_local_run_without_steps_is_refused():
    with pytest.raises(ScenarioError, match="step_s is empty"):
        local_run(step_s=np.empty(0))


def test_a_history_without_a_job_has_the_others():
    times = np.array([[1.0, np.nan, 3.0], [4.0, 5.0, 6.0]])
    history = History(("a", "b"), three(), times, times * 2, np.isfinite(times))
    assert history.without("a").jobs == ("b",)
    assert history.without("a").objective(Objective.COST).tolist() == [[8.0, 10.0, 12.0]]
    with pytest.raises(InvariantError, match="other shapes"):
        History(("a",), three(), times, times, np.isfinite(times))


def test_observations_grow_by_one_and_stay_as_they_were():
    before = no_observations()
    after = before.with_trial(2, 10.0, 0.5, ok=True).with_trial(0, 20.0, 0.1, ok=False)
    assert (len(before), len(after)) == (0, 2)
    assert after.candidate.tolist() == [2, 0]
    assert after.objective(Objective.TIME).tolist() == [10.0, 20.0]
    assert after.ok.tolist() == [True, False]
