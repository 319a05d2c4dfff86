"""Buckets and decay against Kubernetes' arithmetic, percentiles against exact weighted ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator.histogram import DecayingHistograms, exponential
from control.allocator.roster import Column

CPU = exponential(0.01, 1.05, 1000.0)
MEMORY = exponential(1e7, 1.05, 1e12)
DAY_S = 86_400.0
FIRST = np.array([0])


def histograms(rows=1, half_life_s=DAY_S, buckets=CPU):
    return DecayingHistograms(buckets, half_life_s, Column(rows, 0.0, np.float32, (buckets.count,)))


def add(histogram, value, weight=1.0, at_s=0.0, slots=FIRST):
    histogram.add(slots, np.full(len(slots), float(value)), weight, at_s)


def percentile(histogram, fraction, **how):
    return histogram.percentiles(FIRST, (fraction,), **how)[0, 0]


def test_buckets_are_as_many_and_as_wide_as_the_vpas():
    # ceil(log_1.05(1000 · 0.05 / 0.01 + 1)) + 1 = ceil(174.57) + 1 = 176; 1e12 over 1e7 is the same ratio
    assert (CPU.count, MEMORY.count) == (176, 176)
    # 0.01, 0.01 + 0.0105, 0.0205 + 0.011025
    assert CPU.ends[:3] == pytest.approx([0.01, 0.0205, 0.031525])


def test_a_value_on_an_end_falls_into_the_bucket_above():
    assert CPU.find(np.array([0.0, 0.00999, 0.01, 0.0205, 1e9])).tolist() == [0, 0, 1, 2, 175]


def test_the_lowest_end_not_below_a_value():
    assert CPU.at_or_above(np.array([0.0, 0.01, 0.0100001])) == pytest.approx([0.01, 0.01, 0.0205])


def test_the_last_bucket_answers_its_start():
    h = histograms()
    add(h, 5000.0)
    assert percentile(h, 0.9) == CPU.ends[-1] == CPU.ends[-2] >= 1000.0


@pytest.mark.parametrize(
    ("fraction", "end"), [(-0.5, 0.0205), (0.0, 0.0205), (1.0, 0.031525), (1.5, 0.031525)]
)
def test_fractions_outside_the_unit_interval_count_as_its_ends(fraction, end):
    h = histograms()
    add(h, 0.015)
    add(h, 0.025)
    assert percentile(h, fraction) == pytest.approx(end)


def test_an_empty_histogram_has_no_percentile():
    assert np.isnan(percentile(histograms(), 0.5))


def test_a_percentile_is_the_end_of_the_first_bucket_that_reaches_it():
    h = histograms()
    for value in np.repeat([0.005, 0.015, 0.025], [5, 4, 1]):
        add(h, value)
    # cumulated weight 5, 9, 10 of 10
    assert percentile(h, 0.5) == pytest.approx(0.01)
    assert percentile(h, 0.9) == pytest.approx(0.0205)
    assert percentile(h, 0.91) == pytest.approx(0.031525)


def test_a_sample_one_half_life_old_counts_half():
    h = histograms()
    add(h, 0.005, weight=1.0, at_s=0.0)
    add(h, 0.015, weight=1.0, at_s=DAY_S)
    # weights 1 and 2 of 3: a third is reached by the old sample, more is not
    assert percentile(h, 0.333) == pytest.approx(0.01)
    assert percentile(h, 0.334) == pytest.approx(0.0205)


def test_history_of_many_half_lives_neither_overflows_nor_lingers():
    h = histograms(half_life_s=1.0)
    for at_s in range(0, 2000, 7):
        add(h, 0.005, at_s=at_s)
        assert percentile(h, 0.99) == pytest.approx(0.01)
    add(h, 0.015, at_s=1e7)
    assert percentile(h, 0.01) == pytest.approx(0.0205)


def test_a_bucket_that_is_hit_when_weights_are_scaled_back_keeps_no_old_weight():
    """As under decaying_histogram.go, which scales all weights before it adds a sample."""
    h = histograms(half_life_s=1.0)
    for at_s in range(41):
        add(h, 0.005, at_s=at_s)
    add(h, 0.005, at_s=41.0)  # scales the weights back
    add(h, 0.015, at_s=43.0)
    # weights 1 + 1/2 + 1/4 + … = 2 at 41 s are 0.5 at 43 s, beside 1
    assert percentile(h, 0.3) == pytest.approx(0.01)
    assert percentile(h, 0.4) == pytest.approx(0.0205)


def test_a_sample_that_scales_the_weights_back_can_be_subtracted():
    h = histograms(half_life_s=1.0)
    add(h, 0.005, at_s=0.0)
    add(h, 0.015, at_s=40.0)
    h.subtract(FIRST, np.array([0.005]), 0.5, 41.0)  # more than is left of it
    assert percentile(h, 0.0) == pytest.approx(0.0205)


def test_what_is_subtracted_is_gone():
    h = histograms()
    add(h, 0.005, at_s=100.0)
    add(h, 5.0, weight=0.3, at_s=50_000.0)
    h.subtract(FIRST, np.array([5.0]), 0.3, 50_000.0)
    assert percentile(h, 1.0) == pytest.approx(0.01)


def test_the_percentile_of_load_counts_work_and_not_time():
    h = histograms()
    add(h, 0.005, weight=90.0)
    add(h, 0.995, weight=10.0)
    end = CPU.at_or_above(np.array([0.995]))[0]
    # 90 % of the time at 0.01 core is 0.9 of 0.9 + 10 · ~1 core: 8 % of the work
    assert percentile(h, 0.9) == pytest.approx(0.01)
    assert percentile(h, 0.09, of_load=True) == pytest.approx(end)
    assert percentile(h, 0.08, of_load=True) == pytest.approx(0.01)


def test_rows_do_not_touch_each_other():
    h = histograms(rows=3)
    h.add(np.array([2, 0]), np.array([0.015, 0.005]), np.array([1.0, 1.0]), 0.0)
    answer = h.percentiles(np.arange(3), (0.5,))[0]
    assert answer[[0, 2]] == pytest.approx([0.01, 0.0205])
    assert np.isnan(answer[1])


@settings(max_examples=60, deadline=None)
@given(
    samples=st.lists(
        st.tuples(st.floats(0, 100), st.integers(1, 50), st.integers(0, 5)), min_size=1, max_size=40
    ),
    fraction=st.sampled_from([0.1, 0.5, 0.9, 0.95, 1.0]),
)
def test_a_percentile_is_within_one_bucket_of_the_exact_weighted_one(samples, fraction):
    h = histograms()
    for value, weight, days in samples:
        add(h, value, weight=float(weight), at_s=days * DAY_S)
    values = np.array([value for value, _, _ in samples])
    weights = np.array([weight * 2.0**days for _, weight, days in samples])
    order = np.argsort(values)
    mass = np.cumsum(weights[order])
    exact = values[order][np.argmax(mass >= fraction * mass[-1])]
    assert percentile(h, fraction) == pytest.approx(CPU.ends[CPU.find(np.array([exact]))[0]])
