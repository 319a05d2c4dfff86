from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from control.jobs import Job, Objective
from control.recommender import physics
from control.recommender.cherrypick import CherryPick
from control.recommender.ernest import Ernest
from control.recommender.ports import Observations, Request, no_observations
from control.recommender.ranking import Prediction
from control.recommender.transfer import Transfer
from tests.control.recommender.made_jobs import clusters, made_history

AMONG = clusters((1, 2, 3, 4, 6, 8, 12, 16))
WIDTHS = 8


def tried(times: dict[int, float]) -> Observations:
    """Return trials of the first type by position among its widths."""
    trials = no_observations()
    for row, time_s in times.items():
        trials = trials.with_trial(row, time_s, 1.0, True)
    return trials


def no_promise(log_time: np.ndarray, trials: Observations) -> None:
    """Assert that nothing untried is faster than linear from any narrower cluster since the last trial. NaN
    is no prediction."""
    work = log_time + np.log(AMONG.count)
    for start in range(0, len(AMONG), WIDTHS):
        for narrow, wide in combinations(range(start, start + WIDTHS), 2):
            between = trials.candidate[(trials.candidate > narrow) & (trials.candidate < wide)]
            if wide not in trials.candidate and not between.size:
                assert not work[wide] < work[narrow] - 1e-9


@settings(max_examples=80, deadline=None)
@given(
    log_time=st.lists(st.floats(0, 12), min_size=len(AMONG), max_size=len(AMONG)),
    times=st.dictionaries(st.integers(0, WIDTHS - 1), st.floats(10, 1e5), max_size=4),
)
def test_a_prediction_is_never_faster_than_linear_where_nothing_was_measured(
    log_time: list[float], times: dict[int, float]
) -> None:
    trials = tried(times)
    predicted = Prediction(np.array(log_time), np.ones(len(AMONG)), [""] * len(AMONG))
    within = physics.bounded(predicted, AMONG, trials)
    no_promise(within.log_time, trials)
    assert (within.deviation >= 1).all()
    least = physics.least_log_time(AMONG, trials, None)
    for row in np.flatnonzero(np.isfinite(least)):
        assert within.log_time[row] >= least[row] - 1e-9


def test_a_speed_up_that_was_measured_stands_and_wider_clusters_start_from_it() -> None:
    trials = tried({0: 10_000.0, 1: 2_000.0})
    flat = Prediction(np.log(np.full(len(AMONG), 1.0)), np.ones(len(AMONG)), [""] * len(AMONG))
    flat.log_time[:2] = np.log([10_000.0, 2_000.0])
    within = np.exp(physics.bounded(flat, AMONG, trials).log_time)
    assert within[1] == pytest.approx(2_000)
    assert within[3] == pytest.approx(1_000)


@pytest.mark.parametrize(
    ("times", "law_s"),
    [
        # 200 s serial and 10,000 s parallel work: 16 workers take 825 s.
        ({0: 10_200.0, 1: 5_200.0, 3: 2_700.0}, 825.0),
        # 1000 s of overhead per worker, of which two trials leave no doubt.
        ({0: 1_000.0, 3: 4_000.0}, 16_000.0),
    ],
)
def test_far_beyond_the_trials_their_own_law_of_scaling_decides(
    times: dict[int, float], law_s: float
) -> None:
    hopeful = Prediction(np.full(len(AMONG), np.log(400.0)), np.full(len(AMONG), 0.1), [""] * len(AMONG))
    within = physics.bounded(hopeful, AMONG, tried(times))
    assert np.exp(within.log_time[7]) == pytest.approx(law_s ** (3 / 4) * 400 ** (1 / 4), rel=0.05)
    apart = np.log(law_s / 400) * (3 / 4 * 1 / 4) ** 0.5
    assert within.deviation[7] == pytest.approx(np.hypot(0.1, apart), rel=0.05)


@pytest.mark.parametrize("past", [0, 3])
def test_after_trials_on_1_2_and_4_workers_12_and_16_are_not_ranked_on_a_miracle(past: int) -> None:
    times = {0: 10_500.0, 1: 5_400.0, 3: 2_900.0}
    trials = tried(times)
    history = made_history(past) if past else None
    rows = Transfer().recommend(Request(Job("new"), AMONG, observed=trials, history=history))
    of_type = {
        row.configuration.workers: row.time_s for row in rows if row.configuration.instance == AMONG.name[0]
    }
    assert of_type[12] >= 2_900 * 4 / 12
    assert of_type[16] >= 2_900 * 4 / 16
    log_time = np.empty(len(AMONG))
    places = {str(AMONG.configuration(row)): row for row in range(len(AMONG))}
    for row in rows:
        log_time[places[str(row.configuration)]] = np.log(row.time_s)
    no_promise(log_time, trials)
    assert not any("0 past jobs" in row.reason for row in rows)


@settings(max_examples=25, deadline=None)
@given(
    times=st.dictionaries(st.integers(0, WIDTHS - 1), st.floats(100, 1e5), min_size=1, max_size=5),
    failed=st.integers(WIDTHS, len(AMONG) - 1) | st.none(),
    method=st.sampled_from([CherryPick(), Ernest()]),
)
@example(times={0: 9_000.0, 1: 4_400.0, 2: 2_500.0}, failed=WIDTHS + 1, method=CherryPick())
def test_no_method_that_knows_trials_alone_ranks_beyond_linear(
    times: dict[int, float], failed: int | None, method: CherryPick | Ernest
) -> None:
    trials = tried(times)
    trials = trials if failed is None else trials.with_trial(failed, 14_000.0, 1.0, False)
    places = {str(AMONG.configuration(row)): row for row in range(len(AMONG))}
    log_time = np.full(len(AMONG), np.nan)
    for row in method.recommend(Request(Job("new"), AMONG, observed=trials)):
        log_time[places[str(row.configuration)]] = np.log(row.time_s)
    no_promise(log_time, trials)


@pytest.mark.parametrize("method", [Transfer(), CherryPick(), Ernest()])
def test_what_lies_outside_the_trials_says_so(method: Transfer | CherryPick | Ernest) -> None:
    trials = tried({0: 10_500.0, 1: 5_400.0, 3: 2_900.0})
    for row in method.recommend(Request(Job("new"), AMONG, observed=trials)):
        wide, other = row.configuration.workers > 4, row.configuration.instance != AMONG.name[0]
        assert row.outside == (wide or other)
        assert ("outside what was measured" in row.reason) == row.outside
        assert not wide or f"{row.configuration.workers} workers from 4" in row.reason
        assert not other or f"no run on {row.configuration.instance}" in row.reason


def test_what_was_tried_is_predicted_as_it_was_measured() -> None:
    times = {0: 9_000.0, 2: 4_000.0, 5: 2_500.0}
    rows = CherryPick().recommend(Request(Job("new"), AMONG, Objective.TIME, observed=tried(times)))
    predicted = {str(row.configuration): row.time_s for row in rows}
    for row, time_s in times.items():
        assert predicted[str(AMONG.configuration(row))] == pytest.approx(time_s, rel=0.02)


def test_one_trial_tells_little_of_other_widths() -> None:
    request = Request(Job("new"), AMONG, Objective.TIME, observed=tried({1: 6_000.0}))
    rows = {str(row.configuration): row for row in CherryPick().recommend(request)}
    wide = rows[str(AMONG.configuration(7))].time_interval
    assert wide.high > 2 * wide.low
    assert rows[str(AMONG.configuration(1))].time_s == pytest.approx(6_000, rel=0.05)
    # Four constants cannot be fitted to one width: it is the only one that Ernest knows.
    (known,) = Ernest().recommend(request)
    assert known.configuration == AMONG.configuration(1)
    assert known.time_s == pytest.approx(6_000)


def test_what_past_jobs_showed_of_memory_bounds_no_search() -> None:
    trials = tried({0: 1_000.0})
    history = made_history(2)
    least = physics.least_log_time(AMONG, trials, history)
    assert np.isneginf(least).all()  # they ran on up to 32 workers
    alone = physics.least_log_time(AMONG, trials, None)
    assert alone[1] == pytest.approx(np.log(500.0))
