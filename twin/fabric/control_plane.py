"""Simulate detection, routing and reconciling after one fault. Every step is an event in SimPy.

For: the order of events on a small fabric to the millisecond, for the explorer, and as a check of
failover.py. Not for: many faults (failover.py). BFD sessions of links that the fault leaves alone change
nothing and are left out. A BGP daemon waits hold_s from the first news until it selects paths, and then takes
all news into account.
Source: the THORN-ML chapter (chapter 3 of a doctoral thesis); measurements on the testbed for the holds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy

from control.fabric import Direction, FaultKind, PlannedFault
from twin.fabric.around import Around
from twin.fabric.faults import dead_links
from twin.fabric.journal import NO_CAUSE, Journal, Step
from twin.fabric.model import NO_SPINE, Delay, Handling, Scheme, Topology
from twin.fabric.sessions import End, Pace, Wire, bfd_pace, lacp_pace
from twin.fabric.steps import BY_NCCL, OVERLAYS

Process = Generator[simpy.Event, Any, None]


def control_plane(
    env: simpy.Environment,
    topology: Topology,
    fault: PlannedFault,
    handling: Handling,
    seed: np.random.SeedSequence,
) -> Journal:
    """Put the processes of `fault` on `topology` into env. The returned journal fills as env runs.

    Raises ScenarioError as faults.check_faults does.
    """
    fabric = Fabric(env, topology, fault, handling, np.random.default_rng(seed))
    env.process(fabric.break_and_repair())
    return fabric.journal


@dataclass(slots=True)
class Fabric:
    """The machines around the fault's links.

    wires: a wire per session. speakers: machine → BGP daemon. links: (host, uplink) of the dead links.
    broken, repaired: rows of the journal for the fault and its repair (NO_CAUSE: not yet).
    noticed: (machine, other end) of links known to be dead. around: the hosts' fast paths, if there are any.
    """

    env: simpy.Environment
    topology: Topology
    fault: PlannedFault
    handling: Handling
    random: np.random.Generator
    journal: Journal = field(default_factory=Journal)
    wires: list[Wire] = field(default_factory=list)
    speakers: dict[str, _Speaker] = field(default_factory=dict)
    broken: int = NO_CAUSE
    noticed: set[tuple[str, str]] = field(default_factory=set)
    repaired: int = NO_CAUSE
    links: list[tuple[int, int]] = field(default_factory=list)
    around: Around | None = None

    def __post_init__(self) -> None:
        if self.handling.control.fast is not None and self.handling.scheme in OVERLAYS:
            self.around = Around(self, self.handling.control.fast)
        dead = dead_links(self.topology, [self.fault])
        self.links = list(zip(dead.host.tolist(), dead.uplink.tolist(), strict=True))
        pace = self._pace()
        if pace is None:
            return
        for host, uplink in self.links:
            tor = int(self.topology.tor_of[host, uplink])
            self._session(pace, f"host {host}", f"tor {tor}", self.topology.delay_s)
        if self.fault.kind is FaultKind.TOR and self.topology.spines > NO_SPINE:
            for spine in range(self.topology.spines):
                self._session(pace, f"spine {spine}", f"tor {self.fault.tor}", self.topology.spine_delay_s)

    def _pace(self) -> Pace | None:
        if self.handling.scheme is Scheme.BOND:
            return lacp_pace(self.handling.bond)
        return bfd_pace(self.handling.timers) if self.handling.scheme in OVERLAYS else None

    def _session(self, pace: Pace, near: str, far: str, delay_s: float) -> None:
        wire = Wire(self.env, delay_s)
        ends = [
            End(wire, sends, pace, self.random, self._hears(here, other))
            for sends, here, other in ((Direction.OUT, near, far), (Direction.IN, far, near))
        ]
        ends[0].join(ends[1])
        ends[1].join(ends[0])
        self.wires.append(wire)

    def _hears(self, here: str, other: str) -> Callable[[bool], None]:
        protocol = "LACP" if self.handling.scheme is Scheme.BOND else "BFD"

        def changed(up: bool) -> None:
            if up:
                cause = self.repaired
                self.write(here, Step.SESSION_UP, f"{protocol}: session with {other} is up", cause)
            elif not self._failed(here):
                self.notice(here, other, f"{protocol}: session with {other} is down")

        return changed

    def _failed(self, name: str) -> bool:
        """Return whether `name` is the switch that failed as a whole and therefore does nothing."""
        return self.fault.kind is FaultKind.TOR and name == f"tor {self.fault.tor}"

    def break_and_repair(self) -> Process:
        """Break and repair the fault's links."""
        fault, name = self.fault, _name(self.fault, self.topology)
        yield self.env.timeout(fault.at_s - self.env.now)
        ways = set(Direction) if fault.one_way is None else {fault.one_way}
        for wire in self.wires:
            wire.lost |= ways
        self.broken = self.write(name, Step.BROKEN, "packets are lost" + ", silently" * fault.silent)
        if self.handling.scheme is Scheme.REROUTE:
            self.env.process(self._rebuild())
        elif not fault.silent and self.handling.scheme not in (Scheme.NONE, *BY_NCCL):
            self._lose_carriers()
        if np.isinf(fault.down_s):
            return
        yield self.env.timeout(fault.down_s)
        for wire in self.wires:
            wire.lost.clear()
        self.repaired = self.write(name, Step.REPAIRED, "the link works again")
        if self.noticed and self.handling.scheme in OVERLAYS:
            for host, uplink in self.links:
                self.env.process(self._use_again(host, uplink))

    def _lose_carriers(self) -> None:
        for host, uplink in self.links:
            tor = int(self.topology.tor_of[host, uplink])
            self.env.process(self._lose_carrier(f"host {host}", f"tor {tor}"))
            if self.fault.kind is not FaultKind.TOR:
                self.env.process(self._lose_carrier(f"tor {tor}", f"host {host}"))
        if self.fault.kind is FaultKind.TOR:
            for spine in range(self.topology.spines):
                self.env.process(self._lose_carrier(f"spine {spine}", f"tor {self.fault.tor}"))

    def _lose_carrier(self, here: str, other: str) -> Process:
        if self.handling.scheme is Scheme.BOND and here.startswith("host"):
            yield self.env.timeout(self.random.uniform(0.0, self.handling.bond.miimon_s))
        else:
            yield self.pause(self.handling.control.carrier_s)
        if self.repaired == NO_CAUSE:
            self.notice(here, other, f"no carrier from {other}", carrier=True)

    def notice(self, here: str, other: str, what: str, *, carrier: bool = False) -> None:
        """Record that `here` knows that its link to `other` is dead. Only the first call has an effect."""
        if (here, other) in self.noticed:
            return
        self.noticed.add((here, other))
        cause = self.write(here, Step.DETECTED, what, self.broken)
        if self.handling.scheme is Scheme.BOND:
            self.env.process(self._turn_bond(here, other, cause))
            return
        if here.startswith("host") and self.around is not None:
            host, tor = int(here.removeprefix("host ")), int(other.removeprefix("tor "))
            self.env.process(self.around.lost(host, tor, cause, carrier=carrier))
        if carrier and here.startswith("host"):
            installed = self.write(here, Step.INSTALLED, f"the kernel skips next hop {other}", cause)
            self.env.process(self.reconcile(here, installed))
            return
        self.speaker(here).tell(other, cause)

    def speaker(self, name: str) -> _Speaker:
        """Return the BGP daemon of a machine."""
        return self.speakers.setdefault(name, _Speaker(self, name))

    def neighbours(self, tor: str) -> list[str]:
        """Return the hosts at `tor` whose link to it works."""
        index = int(tor.removeprefix("tor "))
        there = np.flatnonzero((self.topology.tor_of == index).any(axis=1)).tolist()
        dead = {host for host, _ in self.links}
        return [f"host {host}" for host in there if host not in dead]

    def reconcile(self, here: str, cause: int) -> Process:
        """Dump the tables after the routes have changed. The tunnel rules stay as they are."""
        if self.handling.scheme is Scheme.THORN:
            yield self.pause(self.handling.control.rule_s)
            self.write(here, Step.RECONCILED, "dumped and compared: no tunnel rule changes", cause)

    def _turn_bond(self, here: str, other: str, cause: int) -> Process:
        if here.startswith("host"):
            self.write(here, Step.INSTALLED, f"the bond leaves its device to {other}", cause)
        else:
            yield self.pause(self.handling.control.route_s)
            self.write(here, Step.INSTALLED, "MLAG: by the peer switch", cause)

    def _rebuild(self) -> Process:
        yield self.env.timeout(self.handling.reroute.timeout_s)
        if self.repaired != NO_CAUSE:
            return
        cause = self.write("job", Step.DETECTED, "a collective made no progress: timed out", self.broken)
        yield self.env.timeout(self.handling.reroute.rebuild_s)
        self.write("job", Step.INSTALLED, "communicator rebuilt on what works", cause)

    def _use_again(self, host: int, uplink: int) -> Process:
        yield self.pause(self.handling.control.session_up_s)
        tor = int(self.topology.tor_of[host, uplink])
        cause = self.write(f"host {host}", Step.USED_AGAIN, f"routes by tor {tor} again", self.repaired)
        yield from self.reconcile(f"host {host}", cause)

    def pause(self, delay: Delay) -> simpy.Event:
        """Return the event of a delay drawn at random."""
        return self.env.timeout(float(delay.draw(1, self.random)[0]))

    def write(self, where: str, step: Step, what: str, cause: int = NO_CAUSE) -> int:
        """Write a row of the journal at the present time and return its index."""
        return self.journal.write(float(self.env.now), where, step, what, cause)


@dataclass(slots=True)
class _Speaker:
    """A machine's BGP daemon. News wait for its hold and are then handled together."""

    fabric: Fabric
    name: str
    news: list[tuple[str, int]] = field(default_factory=list)

    def tell(self, lost: str, cause: int) -> None:
        """Tell the daemon that next hop or destination `lost` is gone. cause: row that says so."""
        self.news.append((lost, cause))
        if len(self.news) == 1:
            self.fabric.env.process(self._select())

    def _select(self) -> Process:
        fabric, control = self.fabric, self.fabric.handling.control
        yield fabric.env.timeout(control.hold_s)
        (_, cause), *_ = self.news
        lost = ", ".join(dict.fromkeys(machine for machine, _ in self.news))
        self.news = []
        if self.name.startswith("tor"):
            cause = fabric.write(self.name, Step.WITHDRAWN, f"its port to {lost} leads nowhere", cause)
            spines = (f"spine {spine}" for spine in range(fabric.topology.spines))
            for neighbour in (*fabric.neighbours(self.name), *spines):
                fabric.env.process(self._announce(neighbour, lost, cause))
            return
        selected = fabric.write(self.name, Step.SELECTED, f"paths without {lost}", cause)
        yield fabric.pause(control.route_s)
        installed = fabric.write(self.name, Step.INSTALLED, f"the kernel forwards without {lost}", selected)
        if self.name.startswith("host"):
            yield from fabric.reconcile(self.name, installed)

    def _announce(self, neighbour: str, lost: str, cause: int) -> Process:
        fabric = self.fabric
        yield fabric.pause(fabric.handling.control.message_s)
        told = fabric.write(neighbour, Step.TOLD, f"{self.name} has no direct path to {lost}", cause)
        fabric.speaker(neighbour).tell(self.name, told)


def _name(fault: PlannedFault, topology: Topology) -> str:
    if fault.kind is FaultKind.TOR:
        return f"tor {fault.tor}"
    if fault.kind is FaultKind.NIC:
        return f"nic {topology.nic_of[fault.host, fault.uplink]} of host {fault.host}"
    return f"{fault.kind} host {fault.host} – tor {topology.tor_of[fault.host, fault.uplink]}"
