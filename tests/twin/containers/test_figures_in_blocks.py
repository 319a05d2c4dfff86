"""Figures that are measured block by block equal those of the whole run, within the stated rounding."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import maximum_filter1d, minimum_filter1d

from twin.containers import lateness_blocks
from twin.containers.lateness import work_lateness
from twin.containers.lateness_blocks import LatenessInBlocks
from twin.containers.reversals import Reversals
from twin.containers.sketch import Sketch

WANTED = (0.5, 0.8, 0.99)
PERIOD_S = 0.1
some_rows = st.integers(1, 120)


def parts(rng, length):
    """Slices that together are a whole of that length."""
    cuts = np.unique(rng.integers(0, length + 1, rng.integers(0, 6)))
    edges = np.unique([0, *cuts.tolist(), length])
    return [slice(first, last) for first, last in pairwise(edges)]


@given(st.integers(0, 10_000), st.integers(1, 400), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_quantiles_of_a_sketch_are_within_a_thousandth(seed, length, count):
    rng = np.random.default_rng(seed)
    values = (rng.normal(0.5, 1.0, (length, count)) * 10.0 ** rng.integers(-6, 6, count)).astype(np.float32)
    counted = rng.random((length, count)) < rng.random(count)
    sketch = Sketch(count)
    for part in parts(rng, length):
        sketch.add(values[part], counted[part])
    own, pooled = sketch.quantiles(WANTED)
    for i in range(count):
        kept = values[counted[:, i], i]
        near(own[i], kept)
    near(pooled, values[counted])


def near(told, values):
    """Check quantiles. Each order statistic is off by at most its bin, so an interpolated value is off by at
    most the bins of its neighbours."""
    if not len(values):
        assert np.isnan(told).all()
        return
    ordered = np.sort(values.astype(np.float64))
    for quantile, value in zip(WANTED, told, strict=True):
        position = quantile * (len(ordered) - 1)
        low = ordered[int(position)]
        high = ordered[min(int(position) + 1, len(ordered) - 1)]
        off = max(abs(low), abs(high)) * 2.0**-10 + 2.0**-19
        assert value == pytest.approx(np.quantile(ordered, quantile), abs=off)


def oracle(limits, within):
    changed = np.flatnonzero(limits[1:] != limits[:-1]) + 1
    if not changed.size:
        return 0
    before, after = limits[changed - 1], limits[changed]
    size, shift = within + 1, -((within + 1) // 2)
    least = minimum_filter1d(limits, size, mode="nearest", origin=shift)[changed]
    most = maximum_filter1d(limits, size, mode="nearest", origin=shift)[changed]
    return int(np.count_nonzero(np.where(after > before, least <= before, most >= before)))


@given(st.integers(0, 10_000), some_rows, st.integers(1, 30))
@settings(max_examples=80, deadline=None)
def test_changes_taken_back_are_counted_across_blocks(seed, length, within):
    rng = np.random.default_rng(seed)
    limits = rng.choice([1.0, 1.5, 2.0, 3.0, np.inf], (length, 3)).astype(np.float32)
    limits[:, 1] = np.repeat(limits[:, 1], 7)[:length]
    up = rng.random((length, 3)) < 0.8
    reversals = Reversals(3, within)
    for part in parts(rng, length):
        reversals.add(limits[part], up[part])
    expected = [oracle(limits[up[:, i], i].astype(np.float64), within) for i in range(3)]
    assert reversals.counts().tolist() == expected


def served(rng, length, count, quota):
    """Demand, and what a quota lets be done of it, first in, first out."""
    demand = (rng.lognormal(-1.0, 1.0, (length, count)) * (rng.random((length, count)) < 0.7)).astype(
        np.float32
    )
    done, backlog = np.zeros_like(demand), np.zeros(count)
    for row in range(length):
        backlog += demand[row]
        done[row] = np.minimum(backlog, quota)
        backlog -= done[row]
    return demand, done


@pytest.mark.parametrize("most_waiting", [8192, 20])
@given(seed=st.integers(0, 10_000), length=st.integers(1, 400), quota=st.sampled_from([0.2, 0.5, 1.0, 9.0]))
@settings(max_examples=40, deadline=None)
def test_lateness_in_blocks_is_that_of_the_whole(most_waiting, seed, length, quota):
    rng = np.random.default_rng(seed)
    demand, done = served(rng, length, 3, quota)
    measured = LatenessInBlocks(3, PERIOD_S)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lateness_blocks, "_MOST_WAITING", most_waiting)
        for part in parts(rng, length):
            measured.add(demand[part], done[part])
        own, pooled = measured.quantiles(WANTED)
    # Arrivals are put together only where more than so many wait.
    coarse = length * PERIOD_S * 2 / most_waiting if length > most_waiting else 0.0
    for told, columns in [*((own[i], [i]) for i in range(3)), (pooled, [0, 1, 2])]:
        exact = work_lateness(demand[:, columns], done[:, columns], PERIOD_S, WANTED)
        np.testing.assert_allclose(told, exact, rtol=2.0**-8, atol=2.0**-13 + 1e-4 + coarse)
