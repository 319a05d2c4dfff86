"""The fast paths of hosts and spines in virtual time.

For: the hosts that turn away from a dead link, and the hosts and spines that receive their reports. The
deciding objects are the same as on real machines; only carrying out is simulated. Not for: detecting a dead
link (sessions.py), nor BGP (control_plane.py). The fast path's timers are left out: BGP has confirmed long
before a report would have to be repeated.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from control.fabric import BfdState, BfdTimers
from control.fast_path.bfd import Control
from control.fast_path.fast_path import FastPath as Policy
from control.fast_path.message import Report
from control.fast_path.ports import CarrierLost, Event, Heard, Routes, Started, Steer, Tell, Told
from control.fast_path.settings import FastPathSettings
from twin.fabric.journal import Step
from twin.fabric.model import FastPath

if TYPE_CHECKING:
    from twin.fabric.control_plane import Fabric

Process = Generator[simpy.Event, Any, None]

_NEVER_S = 1e9
"""A BFD interval so long that no session ever times out, s."""


class Around:
    """The fast paths of all hosts and spines. One is created at the first event of its machine."""

    def __init__(self, stage: Fabric, delays: FastPath) -> None:
        self._stage, self._delays = stage, delays
        self._policies: dict[str, Policy] = {}

    def lost(self, host: int, tor: int, cause: int, *, carrier: bool) -> Process:
        """Handle the news that the host's link to a ToR is dead. cause: row of the journal that says so.

        carrier: whether the link has lost its carrier, so that the host's kernel skips the hop.
        """
        stage = self._stage
        yield stage.pause(self._delays.late_s)
        uplink = int(np.flatnonzero(stage.topology.tor_of[host] == tor)[0])
        acted = stage.write(f"host {host}", Step.SELECTED, f"fast path: around tor {tor}", cause)
        steered, report = self._handled(f"host {host}", CarrierLost(stage.env.now, uplink))
        if report is not None:
            spines = (f"spine {spine}" for spine in range(stage.topology.spines))
            for machine in (*stage.neighbours(f"tor {tor}"), *spines):
                stage.env.process(self._told(machine, report, tor, acted))
        if steered and not carrier:
            yield from self._installed(f"host {host}", f"fast path: not by tor {tor}", acted)

    def _told(self, machine: str, report: Report, tor: int, cause: int) -> Process:
        stage = self._stage
        yield stage.pause(self._delays.told_s)
        about = f"host {report.sender}"
        told = stage.write(machine, Step.TOLD, f"{about} is not to be reached by tor {tor}", cause)
        steered, _ = self._handled(machine, Told(stage.env.now, report))
        if steered:
            yield from self._installed(machine, f"fast path: {about} not by tor {tor}", told)

    def _installed(self, machine: str, what: str, cause: int) -> Process:
        stage = self._stage
        yield stage.pause(self._delays.route_s)
        installed = stage.write(machine, Step.INSTALLED, what, cause)
        if machine.startswith("host"):
            yield from stage.reconcile(machine, installed)

    def _handled(self, machine: str, event: Event) -> tuple[bool, Report | None]:
        """Return (whether the machine turns away from a path, the report that it sends to the others)."""
        instructions = self._policy(machine).handle(event)
        steered = any(isinstance(instruction, Steer) for instruction in instructions)
        return steered, next((tell.report for tell in instructions if isinstance(tell, Tell)), None)

    def _policy(self, machine: str) -> Policy:
        if machine not in self._policies:
            now_s, topology = self._stage.env.now, self._stage.topology
            kind, number = machine.split()
            # Spines are numbered after the hosts.
            own = int(number) + (kind == "spine") * topology.hosts
            tors = topology.tor_of[own].tolist() if kind == "host" else list(range(topology.tors))
            others = [other for other in range(topology.hosts) if other != own]
            policy = Policy(own, tors, others, FastPathSettings())
            policy.handle(Started(now_s))
            for link in range(len(tors)):
                policy.handle(Heard(now_s, link, Control(0, BfdState.UP, BfdTimers(_NEVER_S, 1))))
            policy.handle(Routes(now_s, {other: self._hops(tors, other) for other in others}, {}))
            self._policies[machine] = policy
        return self._policies[machine]

    def _hops(self, tors: list[int], other: int) -> frozenset[int]:
        """Return the links on shortest paths: links to ToRs that the other host has, or else all (through
        spines)."""
        shared = np.flatnonzero(np.isin(tors, self._stage.topology.tor_of[other])).tolist()
        return frozenset(shared or range(len(tors)))
