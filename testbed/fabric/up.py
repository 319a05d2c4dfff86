"""A fabric comes up: namespaces, cables, overlay, routing, and the wait until every way is known to all.

For: making a fabric and knowing whether it is complete. Not for: taking it down (leftovers.py) nor breaking
it (faults.py). What is there is asked of the kernel's tables, which traffic follows, and not of the daemons;
only whether BFD watches is bfdd's to say.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from testbed.containers.interrupts import Interrupts
from testbed.containers.ownership import lasting_run, new_run
from testbed.fabric import devices, doctor, frr, leftovers, topology
from testbed.fabric.fast_path import processes
from testbed.fabric.links import run_in
from testbed.fabric.model import Daemon, Fabric, Host, Plan, Tor
from testbed.fabric.plan import fabric_of
from testbed.fabric.state import State, claim, read, write
from twinbed import BackendError

CONVERGENCE_TIMEOUT_S = 60.0
"""A fabric of 4 hosts takes a few seconds on an idle machine of two cores."""

_WORKERS = 8
_POLL_S = 0.05
_BROADCAST = "00:00:00:00:00:00"
_SHOWN = 5

Progress = Callable[[str], None]


def up(plan: Plan, *, lasting: bool = False, progress: Progress | None = None) -> Fabric:
    """Makes a fabric and returns when it has converged.

    lasting: it is to outlive this process; otherwise it is left over as soon as this process has ended.
    progress: is told what is done now. Raises BackendError when this machine cannot, when a fabric of that
    name is there, or when something is still missing after CONVERGENCE_TIMEOUT_S; whatever happens, what was
    made by then is removed.
    """
    say = progress or (lambda _: None)
    doctor.require()
    fabric = fabric_of(plan)
    with Interrupts() as interrupts:
        leftovers.make_way(plan.name)
        claim(State(plan, new_run()))
        try:
            _make(fabric, say)
            if lasting:
                write(State(plan, lasting_run(plan.name)))
        except BaseException:
            # Ctrl-C again would leave things half removed.
            interrupts.shield()
            leftovers.remove(plan.name)
            raise
    return fabric


def _make(fabric: Fabric, say: Progress) -> None:
    say(f"{len(fabric.namespaces)} namespaces and their cables")
    topology.build(fabric)
    say("addresses and overlay")
    parts = [*fabric.routers, *(end for host in fabric.hosts for end in host.endpoints)]
    _each(lambda part: devices.set_up(fabric, part), parts)
    say(f"FRR in {len(fabric.routers)} of them")
    _each(lambda router: _start(fabric.plan, router), fabric.routers)
    if fabric.plan.fast_path:
        say(f"the fast path at {len(fabric.hosts)} hosts")
        processes.launch(fabric)
    say("routes and tunnels")
    wait_converged(fabric, CONVERGENCE_TIMEOUT_S)


def load(name: str) -> Fabric:
    """The fabric that is up under a name. Raises BackendError where there is none."""
    return fabric_of(read(name).plan)


def wait_converged(fabric: Fabric, within_s: float) -> None:
    """Returns when nothing is missing. Raises BackendError with what is, after within_s seconds."""
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
    """What is missing until every host reaches every other by every ToR; empty: nothing is."""
    missing = [each for host in fabric.hosts for each in _missing_at_host(fabric, host)]
    missing += [each for tor in fabric.tors for each in _missing_at_tor(fabric, tor)]
    if missing:
        return missing
    # Asked last, since it costs most.
    missing = [each for router in fabric.routers for each in _missing_sessions(router)]
    return missing + (processes.missing(fabric) if fabric.plan.fast_path else [])


def _start(plan: Plan, router: Host | Tor) -> None:
    frr.configure(plan, router)
    frr.start(plan, router.namespace)


def _each(do: Callable[[Any], None], parts: Iterable[object]) -> None:
    """Side by side; after the first error, or Ctrl-C, what has not begun does not begin."""
    pool = ThreadPoolExecutor(_WORKERS)
    try:
        for _ in pool.map(do, parts):
            pass
    finally:
        pool.shutdown(cancel_futures=True)


def _missing_at_host(fabric: Fabric, host: Host) -> list[str]:
    devices_wanted = {each.device for each in host.uplinks}
    routes = _next_hops(host.namespace)
    tunnels = {
        (each["mac"], each["dst"])
        for each in _table(host.namespace, "bridge", "-j", "fdb", "show", "dev", host.tunnel)
        if "dst" in each
    }
    missing = []
    for other in fabric.hosts:
        if other is host:
            continue
        lacking = devices_wanted - routes.get(other.loopback, set())
        missing += [f"{host.namespace}: {other.loopback} by {each}" for each in sorted(lacking)]
        for mac in (_BROADCAST, *(end.mac for end in other.endpoints)):
            if (mac, other.loopback) not in tunnels:
                missing.append(f"{host.namespace}: {mac} at {other.loopback}")
    return missing


def _missing_at_tor(fabric: Fabric, tor: Tor) -> list[str]:
    routes = _next_hops(tor.namespace)
    return [
        f"{tor.namespace}: {host.loopback} by {tor.ports[host.index]}"
        for host in fabric.hosts
        if tor.ports[host.index] not in routes.get(host.loopback, set())
    ]


def _missing_sessions(router: Host | Tor) -> list[str]:
    try:
        answer = frr.show(router.namespace, "show bfd peers json", Daemon.BFDD)
    except BackendError as error:
        return [str(error)]
    peers = json.loads(answer)
    wanted = len(router.uplinks) if isinstance(router, Host) else len(router.ports)
    there = sum(each["status"] == "up" for each in peers)
    return [] if there >= wanted else [f"{router.namespace}: {there} of {wanted} BFD sessions"]


def _next_hops(namespace: str) -> dict[str, set[str]]:
    """Devices by which a destination is reached, those without carrier left out."""
    found: dict[str, set[str]] = {}
    for route in _table(namespace, "ip", "-j", "route", "show"):
        for each in route.get("nexthops", (route,)):
            if not {"linkdown", "dead"} & set(each.get("flags", ())):
                found.setdefault(route["dst"], set()).add(each.get("dev", ""))
    return found


def _table(namespace: str, *command: str) -> list[dict[str, Any]]:
    done = run_in(namespace, command)
    if done.returncode:
        raise BackendError(f"{' '.join(command)} in {namespace}: {done.stderr.strip()}; is it going down?")
    rows: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return rows
