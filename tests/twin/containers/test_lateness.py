import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twin.containers.lateness import work_lateness
from twinbed import InvariantError

PERIOD_S = 0.1


def column(*values):
    return np.array(values, np.float64)[:, None]


def test_work_done_as_it_arrives_is_not_late():
    demand = column(0.5, 0.0, 2.0)
    assert work_lateness(demand, demand, PERIOD_S, [0.5, 1.0]).tolist() == [0.0, 0.0]


def test_half_speed_makes_the_last_unit_as_late_as_the_burst_was_long():
    # 200 ms of work in 200 ms, done at half a core in 400: unit x arrives at x and is done at 2x.
    late_s = work_lateness(column(1, 1, 0, 0), column(0.5, 0.5, 0.5, 0.5), PERIOD_S, [0, 0.25, 0.5, 1])
    assert late_s == pytest.approx([0.0, 0.05, 0.1, 0.2], abs=1e-6)


def test_a_period_of_delay_is_a_period_late_for_everyone():
    late_s = work_lateness(column(1, 1, 0), column(0, 1, 1), PERIOD_S, [0.01, 0.5, 0.99])
    assert late_s == pytest.approx([0.1, 0.1, 0.1], abs=1e-6)


def test_work_never_done_is_late_until_the_end():
    # Arrives over the first 100 ms of 400: between 300 and 400 ms late.
    late_s = work_lateness(column(1, 0, 0, 0), column(0, 0, 0, 0), PERIOD_S, [0.0, 0.5, 1.0])
    assert late_s == pytest.approx([0.3, 0.35, 0.4], abs=1e-6)


def test_containers_are_pooled_by_work_not_by_number():
    # c0: 9 core-periods not late; c1: one core-period, 100 ms late.
    demand = np.array([[9.0, 1.0], [0.0, 0.0]])
    done = np.array([[9.0, 0.0], [0.0, 1.0]])
    late_s = work_lateness(demand, done, PERIOD_S, [0.89, 0.91])
    assert late_s == pytest.approx([0.0, 0.1], abs=1e-6)


def test_no_work_has_no_lateness():
    assert np.isnan(work_lateness(np.zeros((3, 2)), np.zeros((3, 2)), PERIOD_S, [0.5])).all()
    assert np.isnan(work_lateness(np.zeros((0, 2)), np.zeros((0, 2)), PERIOD_S, [0.5])).all()


def test_rounding_to_float32_makes_nothing_late():
    rng = np.random.default_rng(0)
    demand = rng.exponential(0.7, (5000, 3)) * (rng.random((5000, 3)) < 0.5)
    done = ((demand * PERIOD_S) / PERIOD_S * (1 + 1e-15)).astype(np.float32)
    late_s = work_lateness(demand.astype(np.float32), done, PERIOD_S, [0.5, 0.999])
    assert late_s.tolist() == [0.0, 0.0]


def test_arrays_of_different_shapes_are_refused():
    with pytest.raises(InvariantError):
        work_lateness(np.zeros((3, 2)), np.zeros((2, 2)), PERIOD_S, [0.5])


def sampled(demand, done, quantiles):
    """Return the same figures by inverting both cumulative curves at many evenly spaced units of work."""
    periods, count = demand.shape
    at = np.arange(periods + 1) * PERIOD_S
    late, weight = [], []
    for i in range(count):
        arrived = np.concatenate([[0.0], np.cumsum(demand[:, i])])
        served = np.concatenate([[0.0], np.cumsum(done[:, i])])
        if arrived[-1] == 0.0:
            continue
        work = (np.arange(20_000) + 0.5) / 20_000 * arrived[-1]
        late.append(_when(served, at, work) - _when(arrived, at, work))
        weight.append(np.full(len(work), arrived[-1]))
    late, weight = np.concatenate(late), np.concatenate(weight)
    order = np.argsort(late)
    below = np.cumsum(weight[order])
    return late[order][np.searchsorted(below, np.array(quantiles) * below[-1])]


def _when(curve, at, work):
    index = np.searchsorted(curve, work)
    inside = np.minimum(index, len(curve) - 1)
    rise = np.maximum(curve[inside] - curve[inside - 1], 1e-300)
    when = at[inside - 1] + (work - curve[inside - 1]) / rise * PERIOD_S
    return np.where(index < len(curve), when, at[-1])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_agrees_with_inverting_the_cumulative_curves(seed):
    rng = np.random.default_rng(seed)
    demand = rng.exponential(1.0, (30, 3)) * (rng.random((30, 3)) < 0.6)
    done, backlog = np.zeros((30, 3)), np.zeros(3)
    for row in range(30):
        backlog += demand[row]
        done[row] = np.minimum(backlog, rng.uniform(0.2, 2.0, 3))
        backlog -= done[row]
    quantiles = [0.1, 0.5, 0.9, 0.99]
    # Neighbouring samples of the reference are up to a few tenths of a per mille of the work apart.
    low, high = (sampled(demand, done, np.clip(np.array(quantiles) + d, 0, 1 - 1e-9)) for d in (-1e-3, 1e-3))
    late_s = work_lateness(demand, done, PERIOD_S, quantiles)
    assert ((late_s >= low - 1e-4) & (late_s <= high + 1e-4)).all()
