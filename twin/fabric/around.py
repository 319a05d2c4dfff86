"""The hosts' fast paths in virtual time.

For: the hosts that turn away from a dead link, and the hosts that receive their reports. The deciding objects
are the same as on real hosts; only carrying out is simulated. Not for: detecting a dead link (sessions.py),
nor BGP (control_plane.py). The fast path's timers are left out: BGP has confirmed long before a report would
have to be repeated.
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
    """The fast paths of all hosts. A host's fast path is created at the first event of the host."""

    def __init__(self, stage: Fabric, delays: FastPath) -> None:
        self._stage, self._delays = stage, delays
        self._policies: dict[int, Policy] = {}

    def lost(self, host: int, tor: int, cause: int, *, carrier: bool) -> Process:
        """Handle the news that the host's link to a ToR is dead. cause: row of the journal that says so.

        carrier: whether the link has lost its carrier, so that the host's kernel skips the hop.
        """
        stage = self._stage
        yield stage.pause(self._delays.late_s)
        uplink = int(np.flatnonzero(stage.topology.tor_of[host] == tor)[0])
        acted = stage.write(f"host {host}", Step.SELECTED, f"fast path: around tor {tor}", cause)
        steered, report = self._handled(host, CarrierLost(stage.env.now, uplink))
        if report is not None:
            for neighbour in stage.neighbours(f"tor {tor}"):
                stage.env.process(self._told(int(neighbour.removeprefix("host ")), report, tor, acted))
        if steered and not carrier:
            yield from self._installed(host, f"fast path: not by tor {tor}", acted)

    def _told(self, host: int, report: Report, tor: int, cause: int) -> Process:
        stage = self._stage
        yield stage.pause(self._delays.told_s)
        about = f"host {report.sender}"
        told = stage.write(f"host {host}", Step.TOLD, f"{about} is not to be reached by tor {tor}", cause)
        steered, _ = self._handled(host, Told(stage.env.now, report))
        if steered:
            yield from self._installed(host, f"fast path: {about} not by tor {tor}", told)

    def _installed(self, host: int, what: str, cause: int) -> Process:
        stage = self._stage
        yield stage.pause(self._delays.route_s)
        yield from stage.reconcile(f"host {host}", stage.write(f"host {host}", Step.INSTALLED, what, cause))

    def _handled(self, host: int, event: Event) -> tuple[bool, Report | None]:
        """Return (whether the host turns away from a path, the report that it sends to the others)."""
        instructions = self._policy(host).handle(event)
        steered = any(isinstance(instruction, Steer) for instruction in instructions)
        return steered, next((tell.report for tell in instructions if isinstance(tell, Tell)), None)

    def _policy(self, host: int) -> Policy:
        if host not in self._policies:
            now_s, tor_of = self._stage.env.now, self._stage.topology.tor_of
            others = [other for other in range(len(tor_of)) if other != host]
            policy = Policy(host, tor_of[host].tolist(), others, FastPathSettings())
            policy.handle(Started(now_s))
            for uplink in range(len(tor_of[host])):
                policy.handle(Heard(now_s, uplink, Control(0, BfdState.UP, BfdTimers(_NEVER_S, 1))))
            policy.handle(Routes(now_s, {other: self._hops(host, other) for other in others}, {}))
            self._policies[host] = policy
        return self._policies[host]

    def _hops(self, host: int, other: int) -> frozenset[int]:
        """Return the uplinks on shortest paths: uplinks to ToRs that both hosts have, or else all (through
        spines)."""
        tor_of = self._stage.topology.tor_of
        shared = np.flatnonzero(np.isin(tor_of[host], tor_of[other])).tolist()
        return frozenset(shared or range(len(tor_of[host])))
