"""What every backend does with an allocator's decisions.

The cases assert directions and books, not times: the machine under real containers may be busy. CANNOT lists
what a backend does not do, and why; such a case must fail on that backend.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from control.allocator import make
from control.allocator.escra import Escra
from control.allocator.escra_settings import EscraSettings
from control.allocator.hpa import HpaSettings
from control.allocator.model import Decision
from lab.check.behaviour import HOST_CORES, MIB, PERIOD_S, broken, steady, workload
from tests.contract.contract_backends import Backend, Ran
from tests.contract.scripted_allocator import Scripted, copied, cpu, memory, requests
from twin.containers.model import Replication

pytestmark = pytest.mark.slow

_V2_HOLD = (
    "cgroup v2 has no hold: memory.high slows tasks down and lets them above the limit by up to 16 MiB "
    "(testbed/containers/cgroup/oom_trap.py, TrapV2)"
)
_NO_SQUEEZE = (
    "the kernel does not take away memory that is in use: v1 refuses the write (EBUSY), and on v2 the driver "
    "does not ask for the kills that it would mean; the smallest limit that fits stays, and is tried again"
)
_OWN_HOST = "the host is the machine: nothing limits what all containers of an agent or a pod hold together"
_PODMANS_OWN = "what Podman runs is started again by Podman; it is limited, never started, by us"
_OWN_PACE = "agents report when periods end"
_NO_REPLICAS = (
    "a run's containers are made before it, with their network and their load: none is started in it"
)

_CASES = {
    "test_replicas_come_when_requests_are_used_up": (_NO_REPLICAS, ("", "-remote", "-podman"), (1, 2)),
    "test_left_to_the_killer_a_container_is_restarted": (_PODMANS_OWN, ("-podman",), (1, 2)),
    "test_without_a_trap_the_kernel_kills_and_the_allocator_hears_of_it": (
        _PODMANS_OWN,
        ("-podman",),
        (1, 2),
    ),
    "test_a_restart_for_new_limits_is_no_kill": (_PODMANS_OWN, ("-podman",), (1, 2)),
    "test_a_limit_below_what_is_held_is_in_force_at_once": (_NO_SQUEEZE, ("", "-remote", "-podman"), (1, 2)),
    "test_nobody_goes_above_the_limit_while_it_is_held": (_V2_HOLD, ("", "-remote", "-podman"), (2,)),
    "test_a_host_whose_memory_is_full_loses_its_largest_container": (
        _OWN_HOST,
        ("-remote", "-podman"),
        (1, 2),
    ),
    "test_reports_may_come_twice_a_period_and_a_write_then_refills": (_OWN_PACE, ("-remote",), (1, 2)),
}

CANNOT = {
    (f"linux{remote}-v{version}", case): why
    for case, (why, remotes, versions) in _CASES.items()
    for remote in remotes
    for version in versions
}
"""(backend, case) → why it cannot."""

OMEGA = 1.2
TOTAL = 600 * MIB
GRAIN_CORES = 2e-5
"""Records of an agent are in whole microseconds of a period of 0.1 s; three of them are rounded here."""
JOINS, LEAVES, PERIODS = 8, 18, 26


# --- CPU ---------------------------------------------------------------------------------------------


def test_a_quota_is_in_force_within_one_period(backend: Backend) -> None:
    def lower_and_raise(stats):
        decided = {5: 0.05, 9: 0.15}.get(len(allocator.periods))
        return None if decided is None else Decision(cpu=cpu(stats.ids, decided))

    allocator = Scripted(quota=0.1, period=lower_and_raise)
    ran = backend.run(workload(np.full((15, 1), 0.6)), allocator)

    reported = [float(stats.quota_cores[0]) for stats in allocator.periods]
    # The record after the decision may belong to a period that ended while the decision was carried out.
    assert reported[:5] == pytest.approx([0.1] * 5)
    assert reported[6:9] == pytest.approx([0.05] * 3)
    assert reported[10:] == pytest.approx([0.15] * len(reported[10:]))
    assert ran.outcome.limit_changes == 2


def test_nobody_uses_more_than_the_quotas_in_force(backend: Backend) -> None:
    ran = backend.run(workload(np.full((14, 2), 0.5)), Scripted(quota=[0.05, 0.1]))

    used = ran.series.usage_cores[2:].mean(0)
    # The kernel lends slices of 5 ms and takes them back from the next period.
    assert (used <= np.array([0.05, 0.1]) + 0.02).all()
    assert (used > 0).all()


def test_throttled_exactly_where_demand_exceeds_the_quota(backend: Backend) -> None:
    demand = np.tile([0.4, 0.06], (14, 1))
    # The whole machine is enough, even for a process that started late and catches up.
    ran = backend.run(workload(demand), Scripted(quota=[0.04, HOST_CORES]))

    wants_more, has_enough = ran.series.throttled[2:].mean(0)
    assert wants_more >= 0.8
    assert has_enough <= 0.1
    assert ran.outcome.nr_throttled[0] > ran.outcome.nr_throttled[1]


def test_an_unchanged_quota_is_no_change(backend: Backend) -> None:
    same = Scripted(quota=0.2, period=lambda stats: Decision(cpu=cpu(stats.ids, 0.2)))
    assert backend.run(workload(np.full((10, 1), 0.05)), same).outcome.limit_changes == 0


def crowded(wants: list[float], periods: int):
    """Return containers that want these numbers of CPUs, on a host with only as many CPUs as this machine."""
    cores = float(os.cpu_count() or 1)
    load = workload(np.tile(np.array(wants) * cores, (periods, 1)), omega=8 * cores, threads=cores)
    return replace(load, host_cores=np.full(len(wants), cores))


def shares_of(ran: Ran) -> np.ndarray:
    """Return each container's mean share of the host in the second half, when all have long started."""
    used = ran.series.usage_cores[len(ran.series.usage_cores) // 2 :] / (os.cpu_count() or 1)
    whole = used.sum(1) > 0.8  # Other programs that keep one of several CPUs busy change the shares.
    return (used[whole] if whole.sum() >= 5 else used).mean(0)


def test_a_full_host_is_shared_in_proportion_to_requests(backend: Backend) -> None:
    ran = backend.run(crowded([1.0, 1.0], backend.periods(40)), Scripted(requests=[0.25, 0.75]))

    light, heavy = shares_of(ran)
    assert 2.0 <= heavy / light <= 4.5


def test_what_a_heavy_container_leaves_goes_to_whom_needs_it(backend: Backend) -> None:
    # The heavy container wants so little that something is left even where other programs take nearly all.
    ran = backend.run(crowded([1.0, 0.02], backend.periods(40)), Scripted(requests=[0.25, 0.75]))
    light, heavy = shares_of(ran)
    # By weight alone the light container gets a third of the other.
    assert light > 0.6 * heavy > 0.0
    assert not ran.series.throttled.any()


def test_a_new_request_changes_the_share(backend: Backend) -> None:
    turned = []

    def turn_round(stats):
        # On a busy machine a container may miss a report.
        if turned or len(allocator.periods) < periods // 3 or len(stats.ids) < 2:
            return None
        turned.append(stats.ids)
        return Decision(requests=requests(sorted(stats.ids), [0.75, 0.25]))

    periods = backend.periods(60)
    allocator = Scripted(requests=[0.25, 0.75], period=turn_round)
    ran = backend.run(crowded([1.0, 1.0], periods), allocator)

    first, second = shares_of(ran)
    assert first > 1.5 * second
    assert ran.series.request_cores[-1].tolist() == [0.75, 0.25]
    assert ran.outcome.limit_changes == 0


def test_replicas_come_when_requests_are_used_up(backend: Backend) -> None:
    demand = np.full((16, 3), 0.1)
    hpa = HpaSettings(target_utilisation=0.5, max_replicas=3, sync_interval_s=1.0, readiness_s=0.0)
    replication = Replication(np.zeros(3, np.int64), np.arange(3), demand[:, :1], 1, hpa)
    load = replace(workload(demand), replication=replication)
    ran = backend.run(load, Scripted(requests=0.05))

    counts = ran.series.up.sum(1)
    # One replica uses twice its request; with three, each uses two thirds of it.
    assert (counts[0], counts[-1]) == (1, 3)


# --- memory ------------------------------------------------------------------------------------------


def growing(periods: int) -> np.ndarray:
    """Return a demand of 24 MiB, and of 48 MiB from the fourth period on."""
    wanted = np.full((periods, 1), 24 * MIB)
    wanted[4:] = 48 * MIB
    return wanted


def test_a_container_at_its_limit_is_held_granted_and_goes_on(backend: Backend) -> None:
    def grant(event):
        limit[0] += 8 * MIB
        return Decision(memory=memory(event.ids, limit[0]))

    limit = [32 * MIB]
    periods = backend.periods(16)
    load = workload(np.full((periods, 1), 0.05), growing(periods))
    allocator = Scripted(limit=32 * MIB, oom=grant)
    ran = backend.run(load, allocator)

    assert len(allocator.ooms) == len(ran.events("oom")) >= 2
    assert len(ran.events("grant")) == len(allocator.ooms)
    assert (np.concatenate([event.needed_bytes for event in allocator.ooms]) >= 1).all()
    assert not ran.events("kill")
    assert ran.series.up.all()
    assert ran.series.limit_bytes[-1, 0] == limit[0] >= 48 * MIB
    assert ran.series.memory_bytes[-1, 0] >= 40 * MIB


@pytest.fixture(scope="module")
def once() -> dict[str, Ran]:
    return {}


@pytest.fixture
def held(backend: Backend, once: dict[str, Ran]) -> Ran:
    """Return a run in which nobody answers until the tenth period, and then the limit is raised."""

    def raise_late(stats):
        late = stats.at_s > 1.0 and not raised
        return Decision(memory=memory(stats.ids, raised.append(1) or 96 * MIB)) if late else None

    raised: list[int] = []
    if backend.name not in once:
        periods = backend.periods(16)
        load = workload(np.full((periods, 1), 0.05), growing(periods))
        once[backend.name] = backend.run(load, Scripted(limit=32 * MIB, period=raise_late))
    return once[backend.name]


def test_held_without_an_answer_is_not_killed_and_goes_on_once_it_fits(held: Ran) -> None:
    assert held.events("oom")
    assert not held.events("kill")
    assert held.series.memory_bytes[-1, 0] >= 40 * MIB


def test_nobody_goes_above_the_limit_while_it_is_held(held: Ran) -> None:
    waiting = held.series.limit_bytes[:, 0] == 32 * MIB
    assert waiting[:8].all()
    assert (held.series.memory_bytes[waiting, 0] <= 32 * MIB).all()


def test_a_limit_below_what_is_held_is_in_force_at_once(backend: Backend) -> None:
    def squeeze(stats):
        return Decision(memory=memory(stats.ids, 16 * MIB)) if len(allocator.periods) == 6 else None

    allocator = Scripted(limit=96 * MIB, period=squeeze)
    ran = backend.run(workload(np.full((12, 1), 0.05), 48 * MIB), allocator)

    assert not ran.events("kill")
    assert ran.series.limit_bytes[-1, 0] == 16 * MIB


def test_left_to_the_killer_a_container_is_restarted(backend: Backend) -> None:
    def refuse_once(event):
        refused.append(event)
        return Decision(kill=event.ids) if len(refused) == 1 else Decision(memory=memory(event.ids, 96 * MIB))

    refused: list = []
    periods = backend.periods(20)
    load = workload(np.full((periods, 1), 0.05), growing(periods))
    ran = backend.run(load, Scripted(limit=32 * MIB, oom=refuse_once))

    assert len(ran.events("kill")) == len(ran.events("restart")) == 1
    assert ran.series.up[-1, 0]


def test_without_a_trap_the_kernel_kills_and_the_allocator_hears_of_it(backend: Backend) -> None:
    allocator = Scripted(
        limit=32 * MIB, traps_oom=False, oom=lambda event: Decision(memory=memory(event.ids, 96 * MIB))
    )
    periods = backend.periods(20)
    ran = backend.run(workload(np.full((periods, 1), 0.05), growing(periods)), allocator)

    assert len(allocator.ooms) == 1
    for kind in ("oom", "kill", "restart"):
        assert len(ran.events(kind)) == 1, kind
    assert not ran.events("grant")
    assert ran.series.up[-1, 0]
    assert ran.series.memory_bytes[-1, 0] >= 40 * MIB


def test_a_restart_for_new_limits_is_no_kill(backend: Backend) -> None:
    def restart_once(stats):
        due = stats.at_s > 0.5 and not done
        return Decision(cpu=cpu(stats.ids, 1.0), restart=done.append(1) or stats.ids) if due else None

    done: list[int] = []
    periods = backend.periods(32)  # An emulated guest takes longer to start the container again.
    ran = backend.run(workload(np.full((periods, 1), 0.05)), Scripted(quota=0.5, period=restart_once))

    assert len(ran.events("restart")) == 1
    assert not ran.events("kill")
    assert ran.series.up[-1, 0]
    assert ran.series.quota_cores[-1, 0] == pytest.approx(1.0)


# --- Escra, one run for several cases ----------------------------------------------------------------


@pytest.fixture(scope="module")
def escra() -> dict[str, tuple[Escra, Ran]]:
    return {}


@pytest.fixture
def pooled(request, backend: Backend, escra) -> tuple[Escra, Ran]:
    """Return three containers under Escra: one leaves after LEAVES periods, one joins after JOINS."""
    # A case that is tried again gets a new run.
    if backend.name not in escra or getattr(request.node, "execution_count", 1) > 1:
        demand = np.full((PERIODS, 3), 0.05)
        demand[::6, 0] = demand[1::6, 0] = 0.6
        present = np.ones(demand.shape, np.bool_)
        present[LEAVES:, 1] = False
        present[:JOINS, 2] = False
        rule = EscraSettings(reclaim_interval_s=0.55, reclaim_margin_bytes=16 * MIB, gamma=0.05)
        allocator = Recorded(rule)
        load = workload(demand, omega=OMEGA, total_bytes=TOTAL, present=present)
        escra[backend.name] = allocator, backend.run(load, allocator)
    return escra[backend.name]


class Recorded(Escra):
    """Escra, and the reports that it received."""

    def __init__(self, settings: EscraSettings) -> None:
        super().__init__(settings)
        self.told: list = []

    def on_period(self, stats):
        self.told.append(copied(stats))
        return super().on_period(stats)


def test_the_quotas_never_exceed_the_applications_limit(pooled: tuple[Escra, Ran]) -> None:
    _, ran = pooled
    assert len(ran.quota_sums) >= PERIODS // 3
    assert max(ran.quota_sums) <= OMEGA + 1e-6
    assert ran.outcome.limit_changes > 0


def test_a_reclaim_returns_bytes_to_the_pool(pooled: tuple[Escra, Ran]) -> None:
    allocator, ran = pooled
    assert ran.events("reclaim")
    first_limit = ran.events("join", 0)[0][2]
    assert ran.series.limit_bytes[-1, 0] < first_limit
    held = ran.series.memory_bytes[-1, 0]
    assert held <= ran.series.limit_bytes[-1, 0] <= held + 32 * MIB
    assert allocator.memory.limit_bytes.sum() + allocator.memory.pool_bytes[0] == TOTAL
    assert allocator.memory.pool_bytes[0] > TOTAL // 2


def test_limits_in_force_are_those_in_the_allocators_books(pooled: tuple[Escra, Ran]) -> None:
    allocator, ran = pooled
    there = np.flatnonzero(ran.series.quota_cores[-1] > 0)
    assert there.tolist() == [0, 2]
    # A sweep may come after the last row. Then only the events have it.
    last = dict(zip(ran.outcome.events.container, ran.outcome.events.limit_bytes, strict=True))
    booked = allocator.memory.limit_bytes[allocator.memory.limit_bytes > 0]
    assert sorted(last[column] for column in there.tolist()) == sorted(booked.tolist())


def test_who_joins_gets_limits_and_who_leaves_gives_them_back(pooled: tuple[Escra, Ran]) -> None:
    _, ran = pooled

    (joined_s, _, limit), *more = ran.events("join", 2)
    assert joined_s >= JOINS * PERIOD_S - 1e-9
    assert limit > 0
    assert not more
    assert not ran.series.up[: JOINS - 1, 2].any()
    assert ran.series.quota_cores[-1, 2] > 0

    ((left_s, _, _),) = ran.events("leave", 1)
    assert left_s >= LEAVES * PERIOD_S - 1e-9
    assert not ran.series.up[-2:, 1].any()
    assert (ran.series.quota_cores[-2:, 1] == 0).all()


def test_unused_runtime_is_the_quota_less_what_was_used(pooled: tuple[Escra, Ran]) -> None:
    allocator, ran = pooled
    for stats in allocator.told:
        assert (stats.unused_cores >= 0).all()
        assert (stats.unused_cores <= stats.quota_cores + 1e-9).all()
        plain = ~stats.throttled & (stats.usage_cores < stats.quota_cores)
        left = stats.quota_cores[plain] - stats.usage_cores[plain]
        # A write within the period refilled the runtime by what had been used so far, or cut it by what CPUs
        # had brought back from the period before.
        assert (stats.unused_cores[plain] >= left - ran.lent_cores - GRAIN_CORES).all()


def test_every_present_container_reports_every_period(pooled: tuple[Escra, Ran]) -> None:
    allocator, ran = pooled
    told = sum(len(stats.ids) for stats in allocator.told)
    assert told == ran.outcome.reports
    # A container that joins or leaves has an incomplete period, and takes its time on a busy machine.
    expected = PERIODS + LEAVES + (PERIODS - JOINS)
    assert expected - 9 <= told + ran.lost <= expected + 9


def test_what_was_used_is_what_was_done(backend: Backend, pooled: tuple[Escra, Ran]) -> None:
    _, ran = pooled
    used_s = ran.series.usage_cores.sum(0, dtype=np.float64) * PERIOD_S
    # CPU time of a newcomer's start before its first whole period is in no record.
    start_s = np.array([0.0, 0.0, backend.periods(0) * PERIOD_S / 3])
    assert (np.abs(used_s - ran.outcome.done_s) <= 0.2 + start_s).all()


# --- policies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["autopilot", "autothrottle"])
def test_policies_run_unchanged(backend: Backend, policy: str) -> None:
    # A container whose limit is set before its memory has grown would be killed.
    periods = backend.periods(5)
    intervals = {"update_interval_s": periods * PERIOD_S, "sample_interval_s": PERIOD_S}
    parameters = intervals if policy == "autopilot" else {}
    ran = backend.run(steady(periods + 7), make(policy, parameters))

    assert broken(ran.outcome) == []


def test_a_host_whose_memory_is_full_loses_its_largest_container(backend: Backend) -> None:
    # A kernel tries for seconds to reclaim memory before it kills.
    periods = backend.periods(70)
    held = np.tile([64 * MIB, 40 * MIB], (periods, 1))
    held[periods // 5 :, 0] = 160 * MIB
    load = replace(workload(np.full(held.shape, 0.05), held), host_memory_bytes=140 * MIB)
    ran = backend.run(load, Scripted(quota=0.5, limit=300 * MIB))

    largest, smaller = ([at_s for at_s, *_ in ran.events("kill", column)] for column in (0, 1))
    # Until a killed process's memory is free, the kernel kills who else asks for a page (MMF_OOM_SKIP).
    beside = [at_s for at_s in smaller if min(abs(at_s - killed_s) for killed_s in largest) <= PERIOD_S]
    assert len(largest) > len(smaller) == len(beside) * (backend.name != "twin")


def test_reports_may_come_twice_a_period_and_a_write_then_refills(backend: Backend) -> None:
    def alternate(stats):
        # Each report is answered with another quota, so that each quota is written and refills the runtime.
        return Decision(cpu=cpu(stats.ids, 0.1 + 0.001 * (len(allocator.periods) % 2)))

    allocator = Scripted(quota=0.1, period=alternate)
    load = replace(workload(np.full((24, 1), 1.0)), report_interval_s=PERIOD_S / 2)
    ran = backend.run(load, allocator)

    told = np.diff([stats.at_s for stats in allocator.periods])
    assert np.median(told) == pytest.approx(PERIOD_S / 2, abs=0.02)
    # The quota is 10 ms per period. A refill in the middle allows up to 20 ms.
    assert ran.series.usage_cores[4:].mean() > 0.14
