"""Arrival processes: counts, gaps and rates against theory; fixed seeds, bounds at 4.4 standard errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from twin.containers.requests import arrivals
from twinbed import InvariantError

SIGMAS = 4.4
RATES = st.lists(st.floats(0.0, 50.0), min_size=1, max_size=8)


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def in_range(at_s: np.ndarray, duration_s: float) -> bool:
    return bool((np.diff(at_s) >= 0).all() and (at_s >= 0).all() and (at_s < duration_s).all())


@pytest.mark.parametrize(
    ("rate_rps", "duration_s", "count"), [(400.0, 300.0, 120_000), (3.0, 1.5, 5), (0.1, 1.0, 1)]
)
def test_fixed_arrivals_are_evenly_spaced_from_zero(rate_rps, duration_s, count):
    at_s = arrivals.fixed(rate_rps, duration_s)
    assert len(at_s) == count
    assert at_s[0] == 0.0
    assert np.allclose(np.diff(at_s), 1 / rate_rps)
    assert in_range(at_s, duration_s)


def test_poisson_counts_and_gaps_are_those_of_the_process():
    rate_rps, duration_s = 300.0, 400.0
    at_s = arrivals.poisson(rate_rps, duration_s, generator())
    mean = rate_rps * duration_s
    assert abs(len(at_s) - mean) < SIGMAS * np.sqrt(mean)
    assert stats.kstest(np.diff(at_s), "expon", args=(0, 1 / rate_rps)).pvalue > 1e-5
    per_second = np.bincount(at_s.astype(int), minlength=int(duration_s))
    dispersion = per_second.var(ddof=1) / per_second.mean()
    assert abs(dispersion - 1) < SIGMAS * np.sqrt(2 / (duration_s - 1))


def test_bursts_come_on_top_of_the_base_in_the_last_part_of_each_cycle():
    at_s = arrivals.burst(50.0, 600.0, 20.0, 10.0, 2000.0, generator())
    within = at_s % 20.0
    for part, rate_rps in ((within < 10.0, 50.0), (within >= 10.0, 650.0)):
        mean = rate_rps * 1000.0
        assert abs(part.sum() - mean) < SIGMAS * np.sqrt(mean - 50_000 + 1)
    assert np.isin(arrivals.fixed(50.0, 2000.0), at_s).all()
    assert in_range(at_s, 2000.0)


@pytest.mark.parametrize(("duration_s", "in_burst_s"), [(5.0, 0.0), (15.0, 5.0), (25.0, 10.0)])
def test_a_run_may_end_in_the_middle_of_a_cycle(duration_s, in_burst_s):
    at_s = arrivals.burst(0.0, 600.0, 20.0, 10.0, duration_s, generator())
    mean = 600.0 * in_burst_s
    assert abs(len(at_s) - mean) <= SIGMAS * np.sqrt(mean)
    assert in_range(at_s, duration_s)


def test_bursts_as_long_as_the_cycle_are_one_stream():
    at_s = arrivals.burst(50.0, 600.0, 10.0, 10.0, 100.0, generator())
    assert abs(len(at_s) - 65_000) < SIGMAS * np.sqrt(60_000)


@settings(deadline=None)
@given(RATES, st.floats(0.01, 20.0), st.sampled_from(["poisson", "even"]), st.integers(0, 2**32))
def test_piecewise_arrivals_are_ascending_within_their_time_and_repeatable(rates, step_s, spacing, seed):
    at_s = arrivals.piecewise(rates, step_s, generator(seed), spacing)
    again = arrivals.piecewise(rates, step_s, generator(seed), spacing)
    assert in_range(at_s, len(rates) * step_s)
    assert np.array_equal(at_s, again)
    idle = np.array(rates) == 0
    step = np.minimum((at_s / step_s).astype(int), len(rates) - 1)
    # An arrival at a step's very edge may be counted to the step before by the division above.
    edge = np.isclose(at_s, (step + 1) * step_s) | np.isclose(at_s, step * step_s)
    assert not (idle[step] & ~edge).any()


@settings(deadline=None)
@given(RATES, st.floats(0.01, 20.0))
def test_even_spacing_makes_up_the_whole_demand_and_carries_over_fractions(rates, step_s):
    at_s = arrivals.piecewise(rates, step_s, None, "even")
    assert len(at_s) == pytest.approx(sum(rates) * step_s, abs=1.001)


def test_piecewise_poisson_counts_follow_each_rate():
    rates = np.array([100.0, 0.0, 400.0])
    at_s = arrivals.piecewise(rates, 100.0, generator())
    counts = np.bincount((at_s // 100.0).astype(int), minlength=3)
    assert (np.abs(counts - rates * 100) <= SIGMAS * np.sqrt(rates * 100)).all()


def test_wandering_rates_are_uniform_over_their_range_and_correlated_as_asked():
    low, high, correlation_s, step_s = 56.0, 548.0, 20.0, 1.0
    rates = arrivals.wandering_rates(low, high, correlation_s, step_s, 400_000.0, generator())
    assert len(rates) == 400_000
    assert rates.min() >= low
    assert rates.max() <= high
    independent = 400_000 / (2 * correlation_s)
    spread = (high - low) / np.sqrt(12)
    assert abs(rates.mean() - (low + high) / 2) < SIGMAS * spread / np.sqrt(independent)
    quantiles = np.quantile(rates, [0.1, 0.5, 0.9])
    assert np.allclose((quantiles - low) / (high - low), [0.1, 0.5, 0.9], atol=0.02)
    normal = (rates - rates.mean()) / rates.std()
    for lag in (5, 20, 40):
        measured = float((normal[:-lag] * normal[lag:]).mean())
        assert measured == pytest.approx(np.exp(-lag / correlation_s), abs=0.05)


def test_wandering_rates_between_equal_bounds_stand_still():
    assert (arrivals.wandering_rates(5.0, 5.0, 1.0, 0.5, 10.0, generator()) == 5.0).all()


def test_timestamps_outside_the_run_are_left_out():
    at_s = arrivals.timestamps([-1.0, 3.0, 0.0, 10.0, 9.99], 10.0)
    assert at_s.tolist() == [0.0, 3.0, 9.99]


def test_kinds_come_in_proportion_to_their_weights():
    at_s = arrivals.fixed(1000.0, 100.0)
    made = arrivals.with_kinds(at_s, [3.0, 0.0, 1.0], generator())
    assert np.array_equal(made.at_s, at_s)
    assert made.kind.dtype == np.int64
    counts = np.bincount(made.kind, minlength=3)
    assert counts[1] == 0
    assert abs(counts[0] - 75_000) < SIGMAS * np.sqrt(100_000 * 0.75 * 0.25)


def test_no_arrivals_are_empty_arrays():
    rng = generator()
    empties = [
        arrivals.fixed(0.0, 10.0),
        arrivals.poisson(0.0, 10.0, rng),
        arrivals.burst(0.0, 0.0, 20.0, 10.0, 60.0, rng),
        arrivals.piecewise([0.0, 0.0], 1.0, rng),
        arrivals.piecewise([], 1.0, rng),
        arrivals.timestamps([], 10.0),
    ]
    for at_s in empties:
        assert (at_s.shape, at_s.dtype) == ((0,), np.float64)
        made = arrivals.with_kinds(at_s, [1.0], rng)
        assert (made.kind.shape, made.kind.dtype) == ((0,), np.int64)


@pytest.mark.parametrize(
    "call",
    [
        lambda rng: arrivals.fixed(-1.0, 10.0),
        lambda rng: arrivals.poisson(float("nan"), 10.0, rng),
        lambda rng: arrivals.poisson(1.0, 0.0, rng),
        lambda rng: arrivals.poisson(1.0, float("inf"), rng),
        lambda rng: arrivals.burst(1.0, 1.0, 10.0, 20.0, 100.0, rng),
        lambda rng: arrivals.burst(-1.0, 1.0, 20.0, 10.0, 100.0, rng),
        lambda rng: arrivals.piecewise([1.0], 1.0, None),
        lambda rng: arrivals.wandering_rates(5.0, 1.0, 1.0, 1.0, 10.0, rng),
        lambda rng: arrivals.timestamps([float("nan")], 1.0),
        lambda rng: arrivals.with_kinds(np.zeros(1), [0.0], rng),
    ],
)
def test_what_no_text_should_have_let_through_is_our_bug(call):
    with pytest.raises(InvariantError):
        call(generator())
