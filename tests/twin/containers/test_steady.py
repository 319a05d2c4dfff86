"""The replay under steady limits agrees with the full simulation, and skips only what cannot matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.twin.containers.scripted import NO_LIMIT, Scripted, machine, run, steady_load, workload
from twin.containers.steady import NO_BYTES, Load, live
from twinbed import InvariantError

MIB = 1 << 20


def load(cores, memory=None, *, bursts=(1.0,), present=None):
    """Return a load of one container."""
    more = {"memory": memory, "present": present}
    return steady_load([cores], bursts=bursts, **{key: [row] for key, row in more.items() if row is not None})


def lived(history, quota=np.inf, limit=NO_BYTES, **given):
    return live(history, np.array([quota]), np.array([limit], np.int64), machine(**given))


@settings(max_examples=60, deadline=None)
@given(cores=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=40), quota=st.floats(0.05, 3.0))
def test_throttling_and_lateness_are_those_of_the_simulation(cores, quota):
    ours = lived(load(cores), quota)
    full = run(workload(cores, threads=max(1.0, np.ceil(max(cores)))), Scripted(quota=quota), machine())
    assert ours.throttled[0] == full.nr_throttled[0]
    assert ours.periods[0] == full.nr_periods[0]
    assert ours.arrived_s[0] == pytest.approx(full.arrived_s[0])
    arrived = np.array(cores) * 0.1
    late_s = np.minimum(full.series.backlog_s[:, 0], arrived).sum()
    assert ours.late_s[0] == pytest.approx(late_s, abs=1e-5)


def test_an_interval_that_is_refined_is_the_same_as_its_periods():
    shape = [0.5, 1.5, 0.2, 1.8]
    coarse = lived(load([0.4, 1.0, 0.4], bursts=shape), 0.8)
    fine = lived(load([mean * part for mean in (0.4, 1.0, 0.4) for part in shape]), 0.8)
    assert coarse.throttled[0] == fine.throttled[0] > 0
    assert coarse.late_s[0] == pytest.approx(fine.late_s[0])


def test_without_a_quota_nothing_is_throttled_or_late():
    outcome = lived(load([5.0, 0.1, 9.0]))
    assert (outcome.throttled[0], outcome.late_s[0], outcome.periods[0]) == (0, 0.0, 0)


@pytest.mark.parametrize("peak", [9, 10, 11])
def test_memory_above_the_limit_is_an_event_and_a_restart_as_in_the_simulation(peak):
    memory = [MIB] * 30 + [peak * MIB] * 30 + [MIB] * 60
    cores = [0.1] * len(memory)
    ours = lived(load(cores, memory), limit=10 * MIB, restart_s=1.0)
    script = Scripted(limit=10 * MIB, traps_oom=False)
    full = run(workload(cores, memory=memory), script, machine(restart_s=1.0))
    kinds = full.events.kind
    assert ours.oom_events[0] == kinds.count("oom") == (0 if peak <= 10 else ours.oom_events[0])
    assert ours.restarts[0] == kinds.count("restart")
    assert (ours.oom_events[0] > 1) == (peak > 10)  # it comes up while memory is still high, and waits longer


def test_a_container_that_comes_late_begins_without_backlog():
    present = [False, False, True, True]
    outcome = lived(load([0.0, 0.0, 2.0, 0.1], present=present), 0.5)
    assert outcome.arrived_s[0] == pytest.approx(0.21)
    assert outcome.periods[0] == 2


def test_many_containers_are_each_as_if_alone():
    random = np.random.default_rng(1)
    cores = random.random((37, 50))
    memory = np.zeros(cores.shape, np.int64)
    there = np.ones(cores.shape, np.bool_)
    history = Load(cores, memory, there, 0.1, np.ones((1, 1)), np.zeros(cores.shape, np.uint8))
    quotas = random.uniform(0.2, 1.0, 37)
    together = live(history, quotas, np.full(37, NO_LIMIT), machine())
    alone = [lived(load(list(row)), quota).throttled[0] for row, quota in zip(cores, quotas, strict=True)]
    assert together.throttled.tolist() == alone


def test_arrays_that_do_not_belong_together_are_refused():
    with pytest.raises(InvariantError, match="a rehearsal of arrays"):
        live(load([1.0]), np.ones(2), np.ones(2, np.int64), machine())
    with pytest.raises(InvariantError, match="not above zero"):
        lived(load([1.0]), 0.0)


def test_no_containers_have_no_results():
    nobody = np.zeros((0, 3))
    history = Load(nobody, nobody.astype(np.int64), nobody > 0, 1.0, np.ones((1, 1)), nobody.astype(np.uint8))
    assert all(len(part) == 0 for part in live(history, np.zeros(0), np.zeros(0, np.int64), machine()))
