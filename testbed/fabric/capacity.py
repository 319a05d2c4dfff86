"""Refuse a fabric for which this machine has no room, before anything is made.

For: `twinbed testbed up`. Not for: what a kernel lacks (doctor.py). Source: measured with fabrics of 2 to 48
hosts on a VM of two cores. With 32 hosts BFD needs 1.7 cores, and the fabric converges in 25 s; with 48 it
would need 2.5, and convergence takes two minutes.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.fabric.model import Plan
from twinbed import BackendError

_PACKET_S = 0.65e-3
"""CPU time of both ends of a BFD session per packet, s: 0.59 to 0.77 ms at 107 to 2,560 packets/s."""

_PLANE_PACKET_S, _PLANE_CORES = 0.08e-3, 0.008
"""CPU time per packet with our own data plane, s, and the further use of its process in each router, cores.
Measured: 4 to 16 sessions took 0.04 to 0.11 cores at 160 to 800 packets/s."""

_BUSY = 0.85
"""Largest share of the cores that BFD may use. The rest is for routing and applications."""

_ROUTER_MIB, _FAST_PATH_MIB, _NAMESPACE_MIB = 25.0, 27.0, 0.25
"""Memory of FRR in a namespace, of a fast path, and of a namespace with a cable in the kernel, MiB."""

_ROUTER_TASKS = 12
"""Number of FRR's threads in a namespace."""

_NODE_FILES = 2
"""Number of open files for each namespace while cables are made: both ends of its shell's terminal."""


@dataclass(frozen=True, slots=True)
class _Resource:
    """A limited resource. needed: function: plan, number of hosts → needed amount. free: function that
    returns the amount free on this machine now. hint: advice for the error."""

    name: str
    needed: Callable[[Plan, int], float]
    free: Callable[[], float]
    hint: str = ""


def require(plan: Plan) -> None:
    """Raise BackendError, naming the scarcest resource and the number of hosts that would fit."""
    free = [(scarce, scarce.free()) for scarce in _RESOURCES]

    def lacking(hosts: int) -> list[tuple[float, _Resource, float]]:
        ratios = ((scarce.needed(plan, hosts) / max(there, 1e-9), scarce, there) for scarce, there in free)
        return sorted((row for row in ratios if row[0] > 1), key=lambda row: -row[0])

    if not (problems := lacking(plan.hosts)):
        return
    ratio, scarce, there = problems[0]
    fits = next((hosts for hosts in range(plan.hosts - 1, 1, -1) if not lacking(hosts)), 0)
    raise BackendError(
        f"hosts: {plan.hosts} need {ratio * there:,.4g} {scarce.name}, and this machine has {there:,.4g} to "
        f"spare; {fits or 'not even 2'} would fit{scarce.hint}"
    )


def _routers(plan: Plan, hosts: int) -> int:
    return hosts + plan.storage + plan.tors + plan.spines


def _namespaces(plan: Plan, hosts: int) -> int:
    return _routers(plan, hosts) + (hosts + plan.storage) * plan.endpoints * len(plan.tenants)


def _cores(plan: Plan, hosts: int) -> float:
    sessions = (hosts + plan.storage) * plan.uplinks + plan.tors * plan.spines + plan.peer_link * plan.racks
    packets_per_s = 2 * sessions / plan.bfd.interval_s
    if plan.bfd_plane:
        return packets_per_s * _PLANE_PACKET_S + _routers(plan, hosts) * _PLANE_CORES
    return packets_per_s * _PACKET_S


def _memory_mib(plan: Plan, hosts: int) -> float:
    fast = (hosts + plan.storage + plan.spines) * _FAST_PATH_MIB * plan.fast_path
    return _routers(plan, hosts) * _ROUTER_MIB + fast + _namespaces(plan, hosts) * _NAMESPACE_MIB


def _tasks(plan: Plan, hosts: int) -> float:
    # Shells of all namespaces run while cables are made, and FRR afterwards.
    return max(_routers(plan, hosts) * _ROUTER_TASKS, _namespaces(plan, hosts))


def _free_memory_mib() -> float:
    line = next(row for row in Path("/proc/meminfo").read_text().splitlines() if "MemAvailable" in row)
    return int(line.split()[1]) / 1024


def _free_tasks() -> float:
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    return min(_number("kernel/pid_max"), _number("kernel/threads-max")) - running


def _free_files() -> float:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] - len([*Path("/proc/self/fd").iterdir()])


def _number(name: str) -> int:
    return int(Path("/proc/sys", name).read_text())


_RESOURCES = (
    _Resource(
        "cores for BFD",
        _cores,
        lambda: _BUSY * len(os.sched_getaffinity(0)),
        ", or more with slower timers (bfd) or bfd_plane",
    ),
    _Resource("MiB of memory", _memory_mib, _free_memory_mib),
    _Resource("processes and threads", _tasks, _free_tasks),
    _Resource("network namespaces", _namespaces, lambda: _number("user/max_net_namespaces")),
    _Resource(
        "open files", lambda plan, hosts: _NODE_FILES * _namespaces(plan, hosts), _free_files, " (ulimit -n)"
    ),
)
