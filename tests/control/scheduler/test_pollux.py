"""Pollux: what it gives to jobs that may grow, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from control.scheduler import make
from control.scheduler.model import Cluster, Elastic, State
from control.scheduler.pollux import Pollux, PolluxSettings, fit
from lab.check.watched_scheduler import require_possible
from tests.control.scheduler.worlds import SHORT, after, cluster, lines, permuted, state, worlds
from twin.containers.compiled import compiled
from twinbed import ScenarioError

COUNT = np.arange(65)
LINEAR, FLAT = COUNT.astype(float), np.minimum(COUNT, 1).astype(float)


def elastic(*speeds: np.ndarray, kind: list[int]) -> Elastic:
    return Elastic(np.array(kind), np.array([[speed, speed] for speed in speeds]))


def test_a_speed_is_relative_to_that_of_the_gang_on_few_servers() -> None:
    speeds = Elastic(np.array([0, -1]), np.array([[[0, 0.25, 0.5, 0.75], [0, 0.25, 0.4, 0.6]]]))
    gpus, spread = np.array([2, 3, 4]), np.array([1, 0, 0])
    # A gang of two, on two servers, on three GPUs, and on more than are known; one that cannot change.
    for job, wanted in ((0, [0.8, 1.5, 0.0]), (1, [1.0, 0.0, 0.0])):
        assert speeds.speed_up(np.array([job]), np.array([2]), gpus, spread).tolist() == pytest.approx(wanted)


def test_a_gang_without_a_speed_of_its_own_is_compared_with_nothing() -> None:
    speeds = Elastic(np.array([0]), np.array([[[0, 0, 0.5]] * 2]))
    assert speeds.speed_up(np.array([0]), np.array([1]), np.array([2]), np.array([0])).tolist() == [0.5]


@given(worlds(elastic=True))
@settings(max_examples=30, deadline=None)
def test_jobs_that_may_grow_have_gpus_that_are_there_and_gangs_are_whole(
    world: tuple[Cluster, State],
) -> None:
    where, before = world
    scheduler = make("pollux", where, 0, SHORT)
    for _ in range(3):
        plan = scheduler.on_round(before)
        require_possible(where, before, plan, mixes_types=False, elastic=True)
        before = after(before, plan)


@given(worlds(elastic=True))
@settings(max_examples=30, deadline=None)
def test_with_a_loop_it_decides_the_same(world: tuple[Cluster, State]) -> None:
    where, before = world
    plain, loop = (make("pollux", where, 3, SHORT) for _ in range(2))
    loop.compile(lambda function: function)
    for _ in range(2):
        plan = plain.on_round(before)
        assert lines(before, loop.on_round(before)) == lines(before, plan)
        before = after(before, plan, passes_s=60.0)


def test_the_loop_is_the_same_compiled() -> None:
    random = np.random.default_rng(1)
    kind, gpus = random.integers(0, 2, (9, 6)), random.integers(0, 5, (9, 6))
    order = random.permuted(np.tile(np.arange(6), (9, 1)), axis=1)
    gang, flexible = random.integers(1, 5, 6), random.random(6) < 0.5
    one, two = gpus.copy(), gpus.copy()
    fit(kind, one, order, gang, flexible, np.array([7, 5]))
    compiled(fit)(kind, two, order, gang, flexible, np.array([7, 5]))
    assert one.tolist() == two.tolist() != gpus.tolist()


@given(worlds(elastic=True))
@settings(max_examples=15, deadline=None)
def test_the_order_of_the_jobs_changes_nothing(world: tuple[Cluster, State]) -> None:
    where, before = world
    other = permuted(before, np.arange(len(before))[::-1])
    one, two = make("pollux", where, 7, SHORT), make("pollux", where, 7, SHORT)
    assert lines(before, one.on_round(before)) == lines(other, two.on_round(other))


def test_gpus_go_where_they_are_worth_something() -> None:
    where = cluster((0, 4), (0, 4))
    before = state(where, [1, 1], elastic=elastic(LINEAR, FLAT, kind=[0, 1]))
    plan = make("pollux", where, 0).on_round(before)
    got = np.bincount(plan.row, plan.gpus, 2)
    assert got.tolist() == [7, 1]
    alike = replace(before, elastic=elastic(LINEAR, kind=[0, 0]))
    plan = make("pollux", where, 0).on_round(alike)
    assert np.bincount(plan.row, plan.gpus, 2).tolist() == [4, 4]


def test_between_two_searches_everybody_keeps_what_they_have() -> None:
    where = cluster((0, 4), (0, 4))
    before = state(where, [1, 1], elastic=elastic(LINEAR, kind=[0, 0]))
    scheduler = make("pollux", where, 0)
    plan = scheduler.on_round(before)
    assert scheduler.wake_s(before, plan) == before.now_s + 60
    soon = replace(after(before, plan, passes_s=30.0), elastic=elastic(LINEAR, FLAT, kind=[0, 1]))
    assert lines(soon, scheduler.on_round(soon)) == lines(before, plan)


def test_a_young_job_is_not_moved_and_an_old_one_is() -> None:
    where = cluster((0, 8))
    before = state(where, [1], elastic=elastic(LINEAR, kind=[0]))
    small = PolluxSettings()
    for age_s, gpus in ((10.0, 7), (100_000.0, 8)):
        scheduler = Pollux(where, 0, small)
        scheduler.on_round(before)
        held = replace(before, held=replace(scheduler.on_round(before), gpus=np.array([7])))
        old = replace(held, now_s=age_s + 1000.0, submit_s=np.array([1000.0]))
        assert scheduler.on_round(old).gpus.tolist() == [gpus]


def test_quotas_and_growing_jobs_do_not_go_together() -> None:
    with pytest.raises(ScenarioError, match="outgrow their queues' quotas"):
        make("pollux", cluster((0, 4), queues=2, queue_most=np.array([0.5, 1.0])), 0)
