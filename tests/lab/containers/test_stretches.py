"""A coarser series has the sums of the fine one, and says how many periods there are in a row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator.model import Reason
from lab.containers.metrics import UNLIMITED_BYTES
from lab.containers.run.stretches import stretches
from lab.containers.run.tables import periods
from twin.containers.model import Series

MIB = 1 << 20


def made(seed: int, length: int, count: int) -> Series:
    rng = np.random.default_rng(seed)
    shape = (length, count)
    limit = rng.integers(MIB, 100 * MIB, shape)
    limit[rng.random(shape) < 0.1] = UNLIMITED_BYTES
    return Series(
        demand_cores=rng.random(shape, np.float32),
        usage_cores=rng.random(shape, np.float32),
        quota_cores=np.where(rng.random(shape) < 0.1, np.inf, rng.random(shape)).astype(np.float32),
        backlog_s=rng.random(shape, np.float32),
        throttled=rng.random(shape) < 0.5,
        throttled_s=rng.random(shape, np.float32),
        memory_bytes=rng.integers(0, 100 * MIB, shape),
        limit_bytes=limit,
        cpu_reason=rng.choice([0, 0, int(Reason.UNUSED), int(Reason.THROTTLED)], shape).astype(np.uint8),
        up=rng.random(shape) < 0.7,
    )


@given(
    seed=st.integers(0, 99), length=st.integers(1, 60), count=st.integers(1, 4), together=st.integers(2, 70)
)
@settings(max_examples=60, deadline=None)
def test_nothing_is_lost_in_rows_of_many_periods(seed, length, count, together):
    fine = made(seed, length, count)
    last, coarse, counts = stretches(fine, together)
    weight = counts["periods"]
    assert last[-1] == length - 1
    assert (weight.sum(axis=0) == length).all()
    assert (counts["up_periods"].sum(axis=0) == fine.up.sum(axis=0)).all()
    assert (counts["throttled_periods"].sum(axis=0) == (fine.throttled & fine.up).sum(axis=0)).all()
    np.testing.assert_allclose(
        (coarse.usage_cores * weight).sum(axis=0), fine.usage_cores.sum(axis=0), rtol=1e-5
    )
    np.testing.assert_allclose(coarse.throttled_s.sum(axis=0), fine.throttled_s.sum(axis=0), rtol=1e-5)
    assert (coarse.backlog_s == fine.backlog_s[last]).all()
    for row, end in enumerate(last):
        own = slice(end + 1 - weight[row, 0], end + 1)
        for i in range(count):
            up = fine.up[own, i]
            counted = up if up.any() else np.ones_like(up)
            assert coarse.up[row, i] == up.any()
            limits, quotas = fine.limit_bytes[own, i][counted], fine.quota_cores[own, i][counted]
            if (limits == UNLIMITED_BYTES).any():
                assert coarse.limit_bytes[row, i] == UNLIMITED_BYTES
            else:
                assert abs(coarse.limit_bytes[row, i] - limits.mean()) <= 0.5
            assert coarse.quota_cores[row, i] == pytest.approx(quotas.mean(dtype=np.float64), rel=1e-5)
            reasons = fine.cpu_reason[own, i]
            assert coarse.cpu_reason[row, i] == (reasons[reasons > 0][-1] if reasons.any() else 0)


def test_the_table_of_a_coarse_series_counts_the_periods_of_a_row():
    table = periods(made(1, 10, 2), ("a", "b"), together=4).to_pandas()
    assert table["period"].tolist() == [3, 3, 7, 7, 9, 9]
    assert table["periods"].tolist() == [4, 4, 4, 4, 2, 2]
    assert "periods" not in periods(made(1, 10, 2), ("a", "b")).column_names
