from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from control.scheduler import make
from control.scheduler.gavel import MaxMin
from control.scheduler.model import NO_SHARING, Cluster, Real, Sharing, State
from control.scheduler.pairs import SharedMaxMin, Units
from tests.control.scheduler.worlds import cluster, lines, state, table, worlds


def speeds(before: State, units: Units) -> Real:
    """Return each job's speed under these shares, steps/s."""
    alone = before.throughput[:, :, 0]
    got = np.zeros(len(before))
    for first, second, x in zip(units.first.tolist(), units.second.tolist(), units.x, strict=True):
        if second < 0:
            got[first] += float(alone[first] @ x)
            continue
        kept = before.sharing.of(before.job[[first, second]], before.job[[second, first]])
        got[first] += float((alone[first] * kept[0]) @ x)
        got[second] += float((alone[second] * kept[1]) @ x)
    return got


def least(where: Cluster, before: State, got: Real) -> float:
    speed = before.throughput[:, :, 0]
    capacity = where.capacity(before.up)
    able = ((speed > 0) & (before.gpus[:, None] <= capacity)).any(axis=1)
    mix = speed @ capacity / max(int(capacity.sum()), 1)
    level = got * before.gpus / (before.weight * np.where(mix > 0, mix, 1.0))
    return float(level[able].min(initial=np.inf))


@given(worlds())
@settings(max_examples=25, deadline=None)
def test_the_shares_are_feasible_and_sharing_never_lowers_the_least_level(
    world: tuple[Cluster, State],
) -> None:
    where, before = world
    units = SharedMaxMin(where, 0).units(before)
    time = np.zeros(len(before))
    np.add.at(time, units.first, units.x.sum(axis=1))
    paired = units.second >= 0
    np.add.at(time, units.second[paired], units.x[paired].sum(axis=1))
    assert (time <= 1 + 1e-6).all()
    assert (before.gpus[units.first] @ units.x <= where.capacity(before.up) + 1e-5).all()
    assert (before.gpus[units.first[paired]] == before.gpus[units.second[paired]]).all()
    if len(before):
        alone = (before.throughput[:, :, 0] * MaxMin(where).shares(before)).sum(axis=1)
        with_pairs = least(where, before, speeds(before, units))
        assert with_pairs >= least(where, before, alone) * (1 - 1e-4) - 1e-9


@given(worlds())
@settings(max_examples=30, deadline=None)
def test_without_pairs_it_is_the_programme_over_jobs(world: tuple[Cluster, State]) -> None:
    where, before = world
    before = replace(before, sharing=NO_SHARING)
    got = speeds(before, SharedMaxMin(where, 0).units(before))
    alone = (before.throughput[:, :, 0] * MaxMin(where).shares(before)).sum(axis=1)
    assert np.allclose(got, alone, rtol=1e-4, atol=1e-5)


def test_three_equal_jobs_that_keep_most_of_their_speed_share_one_gpu() -> None:
    # Two run at once, each at 0.8: 1.6 of a GPU for three jobs, alike.
    where = cluster((0, 1))
    before = state(where, [1, 1, 1], sharing=Sharing(np.zeros(3, np.int64), np.full((1, 1, 1), 0.8)))
    units = SharedMaxMin(where, 0).units(before)
    assert speeds(before, units) == pytest.approx([1.6 / 3] * 3)


def test_a_pair_is_made_only_on_the_type_where_both_gain() -> None:
    # There is one GPU of each type. On type 1 the two jobs keep 0.3 each, which is less than taking turns.
    where = cluster((0, 1), (1, 1))
    kept = np.array([[[0.9, 0.3]]])
    jobs = state(
        where, [1] * 4, throughput=table(*[(1, 1)] * 4), sharing=Sharing(np.zeros(4, np.int64), kept)
    )
    units = SharedMaxMin(where, 0).units(jobs)
    paired = units.second >= 0
    assert units.x[paired][:, 0].sum() > 0.9
    assert not units.x[paired][:, 1].any()


def test_the_time_of_two_classes_together_is_divided_evenly_among_the_jobs_of_each() -> None:
    # Job 0 keeps 0.8 beside either of the others, which keep 0.8 beside it and nothing beside each other.
    # With t in pairs and 1 − t for the others alone, 0.8 t = (1 − 0.2 t) / 2 at t = 5 / 9.
    where = cluster((0, 1))
    kept = np.array([[[0.0], [0.8]], [[0.8], [0.0]]])
    before = state(where, [1, 1, 1], sharing=Sharing(np.array([0, 1, 1]), kept))
    assert speeds(before, SharedMaxMin(where, 0).units(before)) == pytest.approx([4 / 9] * 3)


@pytest.mark.parametrize("policy", ["gavel-sharing", "gandiva"])
def test_a_type_that_is_full_leaves_the_next_to_others(policy: str) -> None:
    where = cluster((0, 1), (1, 1))
    before = state(where, [1, 1])
    assert {(job, gpus) for job, _, gpus in lines(before, make(policy, where, 0).on_round(before))} == {
        (0, 1),
        (1, 1),
    }
