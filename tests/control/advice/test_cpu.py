"""CPU by rehearsal: as much as percentiles in all, least work late; limits inside the risk."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from control.advice import cpu
from tests.control.advice.usages import usage


def short_of(own):
    """A rehearsal without bursts or backlog: the share of intervals above the quota."""
    return lambda quota: np.array(
        [(values > level).mean() for values, level in zip(own.cores, quota, strict=True)]
    )


def late_of(own):
    """A rehearsal without bursts or backlog: the work above the quota."""
    return lambda quota: np.maximum(own.cores - quota[:, None], 0.0).sum(axis=1) * own.interval_s


def shared_out(own, total, highest):
    return cpu.least_late(*cpu.late_work(own, highest, [late_of(own)]), np.ones(own.rows), total)


def test_as_much_cpu_as_percentiles_take_goes_where_it_saves_most_work():
    random = np.random.default_rng(0)
    flat, spiky = random.uniform(0.9, 1.1, 400), np.where(np.arange(400) % 15, 0.1, 3.0)
    own = usage(np.stack([flat, spiky]))
    budget = cpu.percentile(own, 0.95)
    found = shared_out(own, budget.sum(), np.array([1.2, 3.1]))
    assert budget.sum() * 0.99 < found.sum() <= budget.sum()
    assert found[1] < budget[1]
    assert late_of(own)(found).sum() < late_of(own)(np.full(2, budget.sum() / 2)).sum()


def test_what_ran_lately_counts_more_than_what_ran_before():
    # Both rows used the same CPU time, but the first has stopped and the second has begun.
    early = np.where(np.arange(400) < 200, 2.0, 0.0)
    own = usage(np.stack([early, early[::-1]]))
    windows = [late_of(own.part(int(begin * 400), 400)) for begin in cpu.WINDOWS]
    levels, late = cpu.late_work(own, np.full(2, 2.1), windows)
    found = cpu.least_late(levels, late, np.ones(2), 2.2)
    assert found[1] > 1.9
    assert found[0] < 0.11


def test_levels_go_from_the_least_over_half_of_the_mean_to_what_always_suffices():
    own = usage([[1.0, 3.0] * 5, [0.0] * 10])
    levels, late = cpu.late_work(own, np.array([4.0, 0.0]), [late_of(own)])
    assert levels.shape == late.shape == (cpu.LEVELS, 2)
    assert (levels[0] == cpu.LEAST_CORES).all()
    assert levels[[1, -1], 0].tolist() == [1.0, 4.0]
    assert (np.diff(levels[:, 0]) > 0).all()
    assert (levels[1:, 1] <= cpu.LEAST_CORES + 2 * cpu.MILLICORE).all()
    assert late[-1].tolist() == [0.0, 0.0]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), rows=st.integers(1, 3), share=st.floats(0.0, 1.0))
def test_no_division_of_as_much_cpu_on_the_levels_leaves_less_work_late(data, rows, share):
    count = 4
    draw = st.lists(st.floats(0.01, 5), min_size=count * rows, max_size=count * rows)
    levels = np.cumsum(np.reshape(data.draw(draw), (count, rows)), axis=0)
    late = np.cumsum(np.reshape(data.draw(draw), (count, rows)), axis=0)[::-1]
    replicas = np.array(data.draw(st.lists(st.floats(0.1, 3), min_size=rows, max_size=rows)))
    least, most = ((line * replicas).sum() for line in (levels[0], levels[-1]))
    total = float(least + share * (most - least))
    found = cpu.least_late(levels, late, replicas, total)
    assert (found >= levels[0]).all()
    assert (found * replicas).sum() <= total * (1 + 1e-9)
    left = sum(
        late[max(np.flatnonzero(levels[:, row] <= found[row] * (1 + 1e-9))), row] for row in range(rows)
    )
    cost = levels * replicas
    # Each row's cost is rounded up to whole parts of the grid.
    room = total - rows * (total - least) / cpu.GRID
    for choice in itertools.product(range(count), repeat=rows):
        picked = np.array(choice), np.arange(rows)
        if cost[picked].sum() <= room:
            assert left <= late[picked].sum() + 1e-6


def test_what_no_level_can_use_goes_to_those_who_have_least():
    levels = np.array([[0.01, 0.01], [0.5, 0.5], [1.1, 1.1]])
    late = np.array([[5.0, 4.0], [5.0, 4.0], [0.0, 0.0]])
    assert cpu.least_late(levels, late, np.ones(2), 2.0).round(3).tolist() == [1.1, 0.9]
    assert cpu.least_late(levels[:, :1], late[:, :1], np.ones(1), 0.99).round(3).tolist() == [0.99]
    assert cpu.least_late(levels, late, np.ones(2), 2.4).round(3).tolist() == [1.2, 1.2]
    idle = np.array([[0.0, 4.0], [0.0, 4.0], [0.0, 0.0]])
    assert cpu.least_late(levels, idle, np.array([0.0, 1.0]), 1.1).round(3).tolist() == [0.01, 1.1]
    assert cpu.least_late(levels[:, :1], idle[:, :1], np.zeros(1), 1.1).round(3).tolist() == [0.01]


def test_of_many_rows_the_choice_is_nearly_as_good_as_the_hulls_allow():
    random = np.random.default_rng(1)
    levels = np.cumsum(random.uniform(0.01, 1, (6, 300)), axis=0)
    late = np.cumsum(random.uniform(0, 1, (6, 300)), axis=0)[::-1]
    total = float(levels.mean(axis=0).sum())
    found = cpu.least_late(levels, late, np.ones(300), total)
    assert found.sum() <= total
    rows = np.arange(300)
    left = late[(levels <= found * (1 + 1e-9)).sum(axis=0) - 1, rows].sum()
    # The bound of Lagrange: for any price of a core, no division within the total leaves less late.
    bound = max((late + price * levels).min(axis=0).sum() - price * total for price in np.linspace(0, 3, 301))
    assert bound <= left <= 1.01 * bound


@settings(max_examples=40, deadline=None)
@given(
    cores=st.lists(st.lists(st.floats(0, 8), min_size=8, max_size=8), min_size=1, max_size=6),
    total=st.floats(0.01, 30),
)
@example(cores=[[0.0] * 7 + [1.0]], total=0.010000000000000002)
def test_requests_are_positive_and_within_what_they_get_together(cores, total):
    own = usage(cores)
    highest = own.peak_cores() * 1.1
    found = shared_out(own, total, highest)
    assert (found >= cpu.LEAST_CORES).all()
    assert found.sum() <= max(total, own.rows * cpu.LEAST_CORES) * (1 + 1e-9)


def test_a_limit_stays_inside_the_risk_and_foresees_the_growth_it_has_seen():
    first, second = usage([np.linspace(0, 1, 100)]), usage([np.linspace(0, 1.5, 100)])
    whole = usage([np.concatenate([first.cores[0], second.cores[0]])])
    found = cpu.limits(np.array([2.0]), 0.05, short_of(first), short_of(second), short_of(whole))
    # 5 % of the whole lies above 1.35 cores; the second half needed 1.5 times what the first did.
    assert found[0] == pytest.approx(1.35 * 1.5, rel=0.01)
    assert short_of(whole)(found)[0] <= 0.05


def test_an_idle_container_gets_the_least():
    own = usage([np.zeros(10)])
    found = cpu.limits(np.array([0.0]), 0.05, *[short_of(own)] * 3)
    assert found.tolist() == [cpu.LEAST_CORES]
