"""Set up a fabric: namespaces, cables, overlay and routing, and wait until every host knows every path.

For: making a fabric, and checking whether it is complete. Not for: taking it down (leftovers.py) or breaking
it (faults.py). Source: our design. Completeness is read from the kernel's tables, which traffic follows, and
not from the daemons. Only the state of BFD sessions comes from bfdd.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from testbed.containers.interrupts import Interrupts
from testbed.fabric import capacity, devices, doctor, frr, impairments, leftovers, topology
from testbed.fabric.bfd_plane import processes as planes
from testbed.fabric.fast_path import processes
from testbed.fabric.links import output_of
from testbed.fabric.model import Daemon, Fabric, Host, Plan, Tor
from testbed.fabric.plan import fabric_of
from testbed.fabric.state import FabricState, claim, read, write
from twinbed import BackendError

CONVERGENCE_TIMEOUT_S = 60.0
"""Longest wait for convergence, s. A fabric of 4 hosts takes a few seconds on an idle machine of two cores.
"""

_WORKERS = 8
_POLL_S = 0.05
_BROADCAST = "00:00:00:00:00:00"
_SHOWN = 5

Progress = Callable[[str], None]


def up(plan: Plan, *, lasting: bool = False, progress: Progress | None = None) -> Fabric:
    """Make a fabric and return when it has converged.

    lasting: whether the fabric outlives this process. Otherwise it counts as left over once this process has
    ended.
    progress: function called with a description of each step. Raises BackendError if this machine cannot make
    it, if a fabric of that name is up, or if something is missing after CONVERGENCE_TIMEOUT_S. Then
    everything made so far is removed.
    """
    say = progress or (lambda _: None)
    doctor.require()
    capacity.require(plan)
    for impairment in plan.impairments:
        impairments.require(impairment)
    fabric = fabric_of(plan)
    with Interrupts() as interrupts:
        leftovers.make_way(plan.name)
        claim(FabricState(plan))
        try:
            _make(fabric, say)
            impairments.launch(fabric)
            if lasting:
                write(FabricState(plan, lasting=True))
        except BaseException:
            # A second Ctrl-C would leave the fabric half removed.
            interrupts.shield()
            leftovers.remove(plan.name)
            raise
    return fabric


def _make(fabric: Fabric, say: Progress) -> None:
    say(f"{len(fabric.namespaces)} namespaces and their cables")
    topology.build(fabric)
    say("addresses and overlay")
    parts = [*fabric.routers, *(end for host in fabric.hosts for end in host.endpoints)]
    _in_parallel(lambda part: devices.set_up(fabric, part), parts)
    say(f"FRR in {len(fabric.routers)} of them")
    _in_parallel(lambda router: _start(fabric, router), fabric.routers)
    if fabric.plan.fast_path:
        say(f"the fast path at {len(fabric.hosts)} hosts")
        processes.launch(fabric)
    say("routes and tunnels")
    wait_converged(fabric, CONVERGENCE_TIMEOUT_S)


def load(name: str) -> Fabric:
    """Return the fabric that is up under a name. Raises BackendError if there is none."""
    return fabric_of(read(name).plan)


def wait_converged(fabric: Fabric, within_s: float) -> None:
    """Return when nothing is missing. Raises BackendError naming what is missing after within_s seconds."""
    deadline = time.monotonic() + within_s
    while missing := converged(fabric):
        if time.monotonic() > deadline:
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            raise BackendError(
                f"fabric {fabric.plan.name} has not converged after {within_s:g} s; missing: "
                f"{'; '.join(missing[:_SHOWN])}{more}; is the machine busy? try again"
            )
        time.sleep(_POLL_S)


def converged(fabric: Fabric) -> list[str]:
    """Return what is missing until every host reaches every other over every ToR; empty if nothing is."""
    missing = [route for host in fabric.hosts for route in _missing_at_host(fabric, host)]
    missing += [route for switch in fabric.switches for route in _missing_at_switch(fabric, switch)]
    if missing:
        return missing
    # The sessions come last, because asking for them costs most.
    missing = [session for router in fabric.routers for session in _missing_sessions(router)]
    return missing + (processes.missing(fabric) if fabric.plan.fast_path else [])


def _start(fabric: Fabric, router: Host | Tor) -> None:
    frr.configure(fabric.plan, router)
    frr.start(fabric.plan, router.namespace)
    if fabric.plan.bfd_plane:
        planes.launch(fabric, router, frr.plane_socket(router.namespace))


def _in_parallel(do: Callable[[Any], None], parts: Iterable[object]) -> None:
    """Call `do` for all parts in parallel. After the first error, or Ctrl-C, no further call begins."""
    pool = ThreadPoolExecutor(_WORKERS)
    try:
        for _ in pool.map(do, parts):
            pass
    finally:
        pool.shutdown(cancel_futures=True)


def _missing_at_host(fabric: Fabric, host: Host) -> list[str]:
    uplinks = {uplink.device for uplink in host.uplinks}
    routes = _next_hops(host.namespace)
    tunnels = {
        (entry["ifname"], entry["mac"], entry["dst"])
        for entry in _table(host.namespace, "bridge", "-j", "fdb", "show")
        if "dst" in entry
    }
    missing = []
    for other in fabric.hosts:
        if other is host:
            continue
        lacking = uplinks - routes.get(other.loopback, set())
        missing += [f"{host.namespace}: {other.loopback} by {device}" for device in sorted(lacking)]
        for segment in other.segments:
            for mac in (_BROADCAST, *(end.mac for end in segment.endpoints)):
                if (segment.tunnel, mac, other.loopback) not in tunnels:
                    missing.append(f"{host.namespace}: {mac} at {other.loopback} over {segment.tunnel}")
    return missing


def _missing_at_switch(fabric: Fabric, switch: Tor) -> list[str]:
    routes = _next_hops(switch.namespace)
    return [
        f"{switch.namespace}: {host.loopback} by {device}"
        for host in fabric.hosts
        for device in sorted(_towards(fabric, switch, host) - routes.get(host.loopback, set()))
    ]


def _towards(fabric: Fabric, switch: Tor, host: Host) -> set[str]:
    """Return the devices over which a switch should reach a host."""
    if switch in fabric.spines:
        return {switch.ports[uplink.tor] for uplink in host.uplinks}
    ports = dict(zip(switch.below, switch.ports, strict=True))
    return {ports[host.index]} if host.index in ports else {uplink.device for uplink in switch.uplinks}


def _missing_sessions(router: Host | Tor) -> list[str]:
    try:
        answer = frr.show(router.namespace, "show bfd peers json", Daemon.BFDD)
    except BackendError as error:
        return [str(error)]
    peers = json.loads(answer)
    wanted = len(router.uplinks) if isinstance(router, Host) else router.neighbours
    up_now = sum(peer["status"] == "up" for peer in peers)
    return [] if up_now >= wanted else [f"{router.namespace}: {up_now} of {wanted} BFD sessions"]


def _next_hops(namespace: str) -> dict[str, set[str]]:
    """Return the devices over which each destination is reached, without those that have no carrier."""
    devices: dict[str, set[str]] = {}
    for route in _table(namespace, "ip", "-j", "route", "show"):
        for hop in route.get("nexthops", (route,)):
            if not {"linkdown", "dead"} & set(hop.get("flags", ())):
                devices.setdefault(route["dst"], set()).add(hop.get("dev", ""))
    return devices


def _table(namespace: str, *command: str) -> list[dict[str, Any]]:
    output = output_of(namespace, command, cure="is the fabric going down?")
    rows: list[dict[str, Any]] = json.loads(output or "[]")
    return rows
