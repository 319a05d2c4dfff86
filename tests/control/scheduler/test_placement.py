from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from control.scheduler.model import Assignment, Cluster, State
from control.scheduler.placement import Room, held_type, settle, settled
from tests.control.scheduler.worlds import cluster, lines, state, worlds
from twin.containers.compiled import compiled


@given(worlds(), st.integers(0, 2**31))
@settings(max_examples=200, deadline=None)
def test_a_job_keeps_its_servers_on_its_type_and_the_others_get_those_that_room_finds(
    world: tuple[Cluster, State], seed: int
) -> None:
    where, empty = world
    numbers = np.random.default_rng(seed)
    first, wanted = numbers.integers(-1, len(where.types), (2, len(empty)))
    wanted = np.where(numbers.random(len(empty)) < 0.5, first, wanted)
    room = Room(where, empty)
    for row in np.flatnonzero(first >= 0).tolist():
        room.place(row, (int(first[row]),))
    before = replace(empty, held=room.plan())
    stays = (wanted >= 0) & (held_type(where, before) == wanted)
    room = Room(where, before)
    room.keep(before.held.of(stays))
    fresh = np.flatnonzero((wanted >= 0) & ~stays)
    order = np.lexsort((before.job[fresh], before.submit_s[fresh], -before.gpus[fresh]))
    placed = [room.place(row, (int(wanted[row]),)) for row in fresh[order].tolist()]
    plan, held = room.plan(), before.held
    for function in (settled, compiled(settled)):
        *found, complete = function(
            wanted, np.lexsort((before.job, before.submit_s, -before.gpus)), held.row, held.server, held.gpus,
            before.gpus, before.together, before.up, where.server_gpus, where.server_type, where.rack,
        )  # fmt: skip
        assert sorted(zip(*found, strict=True)) == [*zip(plan.row, plan.server, plan.gpus, strict=True)]
        assert complete == all(placed)
        if complete:
            settled_plan = settle(where, before, wanted, function)
            assert [settled_plan.row.tolist(), settled_plan.server.tolist(), settled_plan.gpus.tolist()] == [
                plan.row.tolist(), plan.server.tolist(), plan.gpus.tolist(),
            ]  # fmt: skip


def test_jobs_that_run_make_room_for_a_larger_gang_that_must_stay_together() -> None:
    where = cluster((0, 4), (0, 4))
    # Four jobs hold two GPUs of each server. A gang of four needs a whole one.
    held = Assignment(np.arange(4), np.array([0, 0, 1, 1]), np.ones(4, np.int64))
    before = state(where, [1, 1, 1, 1, 4], together=np.ones(5, np.bool_), held=held)
    given = lines(before, settle(where, before, np.zeros(5, np.int64), settled))
    assert given == {(4, 0, 4), (0, 1, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1)}


def test_jobs_that_run_stay_if_moving_them_makes_no_room() -> None:
    where = cluster((0, 4), (0, 4))
    held = Assignment(np.arange(2), np.array([0, 1]), np.array([3, 3]))
    before = state(where, [3, 3, 2], together=np.ones(3, np.bool_), held=held)
    assert lines(before, settle(where, before, np.zeros(3, np.int64), settled)) == {(0, 0, 3), (1, 1, 3)}
