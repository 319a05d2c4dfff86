"""How much CPU requests get together: less money than rivals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.advice import budget, memory
from control.advice.model import MIB
from tests.control.advice.usages import usage

RATES = budget.Rates(core=0.03, byte=0.004 / (1 << 30))


def price(cores, size):
    return cores.sum() * RATES.core + size.sum() * RATES.byte


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000), rows=st.integers(1, 4), spread=st.floats(0.0, 2.0), risk=st.floats(0.01, 0.3)
)
def test_all_requests_cost_less_than_any_rivals_or_have_nearly_the_cpu_of_one(seed, rows, spread, risk):
    random = np.random.default_rng(seed)
    held = random.uniform(50, 5000, (rows, 1)) * random.uniform(0.5, 1, (rows, 150)) * MIB
    own = usage(random.lognormal(-1, spread, (rows, 150)), held)
    size = memory.sizes(own)[0]
    total = budget.ceiling(own, risk, np.ones(rows), size, RATES)
    rivals = budget.rivals(own, risk)
    cpu_alone = 0.99 * min(rival.cores.sum() for rival in rivals)
    least = min(price(rival.cores, rival.bytes) for rival in rivals)
    assert total == pytest.approx(cpu_alone) or price(np.array([total]), size) < least


def test_what_memory_saves_is_there_for_cpu():
    # krr: 1 core and 1,150 MiB; ours 1,000 MiB. 150 MiB cost 0.000586, a 51st of a core.
    own = usage(np.ones((1, 200)), np.full((1, 200), 1000.0 * MIB))
    total = budget.ceiling(own, 0.05, np.ones(1), np.array([1000.0 * MIB]), RATES)
    money = 0.99 * (0.03 + 1150 / 1024 * 0.004)
    assert total == pytest.approx((money - 1000 / 1024 * 0.004) / 0.03)
    assert budget.ceiling(own, 0.05, np.full(1, 3.0), np.array([1000.0 * MIB]), RATES) == pytest.approx(
        3 * total
    )
    free = budget.Rates(core=0.0, byte=RATES.byte)
    assert budget.ceiling(own, 0.05, np.ones(1), np.array([1000.0 * MIB]), free) == pytest.approx(0.99)


def test_rows_of_few_samples_have_rivals_too():
    for rival in budget.rivals(usage(np.ones((2, 5)), np.full((2, 5), 9.0 * MIB)), 0.05):
        assert (rival.cores > 0).all()
        assert (rival.bytes >= 9 * MIB).all()
