"""What every scheduler must do, whatever it decides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.scheduler import POLICIES, make
from control.scheduler import settings as checked
from control.scheduler.model import Cluster, State
from control.scheduler.tiresias import TiresiasSettings
from lab.check.watched_scheduler import require_possible
from tests.control.scheduler.worlds import SHORT, after, cluster, lines, permuted, state, worlds
from twinbed import ScenarioError

BLOCKING = ("fifo", "fifo-fastest", "fifo-moving", "fifo-packed", "yarn", "allox", "pollux")
"""Policies under which a GPU may idle while a gang that fits waits: the head of a queue blocks, a job waits
for a better type, or the next search is not due."""
WORK_CONSERVING = [name for name in POLICIES if name not in BLOCKING]
every = pytest.mark.parametrize("policy", POLICIES)


@every
@given(worlds())
@settings(max_examples=40, deadline=None)
def test_gangs_are_whole_and_no_gpu_is_given_twice(policy: str, world: tuple[Cluster, State]) -> None:
    where, before = world
    scheduler = make(policy, where, 0, SHORT)
    for _ in range(3):
        given = scheduler.on_round(before)
        require_possible(
            where,
            before,
            given,
            mixes_types=scheduler.mixes_types,
            forks=scheduler.forks,
            elastic=scheduler.elastic,
        )
        assert scheduler.wake_s(before, given) > before.now_s
        before = after(before, given)


@every
@given(worlds(), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_the_order_of_the_jobs_changes_nothing(policy: str, world: tuple[Cluster, State], random) -> None:
    where, before = world
    order = list(range(len(before)))
    random.shuffle(order)
    other = permuted(before, np.array(order, np.int64))
    one, two = make(policy, where, 7, SHORT), make(policy, where, 7, SHORT)
    first, second = one.on_round(before), two.on_round(other)
    if "gavel" not in policy and policy != "las":  # a programme may have several equally good solutions
        assert lines(before, first) == lines(other, second)
    else:
        require_possible(where, other, second, mixes_types=False)


@every
@given(worlds())
@settings(max_examples=20, deadline=None)
def test_the_same_seed_and_history_give_the_same_answer(policy: str, world: tuple[Cluster, State]) -> None:
    where, before = world
    one, two = make(policy, where, 3, SHORT), make(policy, where, 3, SHORT)
    for _ in range(2):
        first, second = one.on_round(before), two.on_round(before)
        assert lines(before, first) == lines(before, second)
        before = after(before, first)


@pytest.mark.parametrize("policy", WORK_CONSERVING)
@given(worlds(kinds=1))
@settings(max_examples=40, deadline=None)
def test_no_gpu_idles_while_a_waiting_gang_fits(policy: str, world: tuple[Cluster, State]) -> None:
    where, before = world
    before = replace(before, together=np.zeros(len(before), np.bool_))
    scheduler = make(policy, where, 0, SHORT)
    for _ in range(2):
        given = scheduler.on_round(before)
        waits = np.setdiff1d(np.flatnonzero(before.throughput[:, 0, 0] > 0), given.row)
        free = int(where.capacity(before.up).sum() - given.gpus.sum())
        assert not (before.gpus[waits] <= free).any()
        before = after(before, given)


@pytest.mark.parametrize("policy", ["fifo", "fifo-backfill", "fifo-fastest", "fifo-packed", "yarn", "allox"])
@given(worlds())
@settings(max_examples=25, deadline=None)
def test_queues_by_arrival_never_preempt(policy: str, world: tuple[Cluster, State]) -> None:
    where, before = world
    before = replace(before, up=np.ones_like(before.up))
    scheduler = make(policy, where, 0, SHORT)
    given = scheduler.on_round(before)
    again = scheduler.on_round(after(before, given))
    assert lines(before, given) <= lines(before, again)


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "hadar"])
def test_a_job_that_goes_on_keeps_its_servers(policy: str) -> None:
    where = cluster((0, 4), (0, 4))
    before = state(where, [4, 2])
    scheduler = make(policy, where, 0, SHORT)
    given = scheduler.on_round(before)
    assert lines(before, given) == lines(before, scheduler.on_round(after(before, given)))
    assert len(given.row) == 2


@every
def test_an_empty_queue_gets_nothing(policy: str) -> None:
    where = cluster((0, 4))
    assert make(policy, where, 0).on_round(state(where, [])).row.size == 0


def test_an_unknown_scheduler_is_refused_with_a_close_name() -> None:
    with pytest.raises(ScenarioError, match=r"no scheduler 'gavl'; close: .*gavel"):
        make("gavl", cluster((0, 1)), 0)


def test_settings_are_refused_by_key_and_range() -> None:
    with pytest.raises(ScenarioError, match=r"tiresias.knop: there is no such key; known: knob"):
        checked("tiresias", {"knop": 1.0})
    with pytest.raises(ScenarioError, match=r"tiresias.knob: -1.0 is outside \[0, any\]"):
        checked("tiresias", {"knob": -1.0})
    with pytest.raises(ScenarioError, match="fifo: has no settings"):
        checked("fifo", {})
    with pytest.raises(ScenarioError, match="each threshold must be above"):
        TiresiasSettings((7200.0, 3600.0))
