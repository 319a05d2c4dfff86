"""Hosts' fast paths in virtual time: the very objects that decide on real hosts, and what carrying out takes.

For: which hosts turn away from a dead link, and whom they tell. Not for: how a link is found dead
(sessions.py), nor BGP (control_plane.py). Their timers are not needed here: BGP has confirmed long before a
report would have to be repeated.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

import numpy as np
import simpy

from control.fabric import BfdState, BfdTimers
from control.fast_path.bfd import Control
from control.fast_path.fast_path import FastPath as Policy
from control.fast_path.message import Report
from control.fast_path.ports import CarrierLost, Event, Heard, Routes, Started, Steer, Tell, Told
from control.fast_path.settings import FastPathSettings
from twin.fabric.journal import Step
from twin.fabric.model import Delay, FastPath, Topology

Process = Generator[simpy.Event, Any, None]

_NEVER_S = 1e9


class Stage(Protocol):
    """What fast paths need of the fabric that they are in."""

    env: simpy.Environment
    topology: Topology

    def pause(self, delay: Delay) -> simpy.Event:
        """A drawn delay."""
        ...

    def write(self, where: str, step: Step, what: str, cause: int) -> int:
        """A row now; its index."""
        ...

    def reconcile(self, here: str, cause: int) -> Process:
        """What follows new routes."""
        ...

    def neighbours(self, tor: str) -> list[str]:
        """Hosts that have a link to a switch that works."""
        ...


class Around:
    """All hosts' fast paths; a host's begins to matter, and to be, when something happens to it."""

    def __init__(self, stage: Stage, delays: FastPath) -> None:
        self._stage, self._delays = stage, delays
        self._policies: dict[int, Policy] = {}

    def lost(self, host: int, tor: int, cause: int, *, carrier: bool) -> Process:
        """The host's link to a ToR is dead, says row `cause`. carrier: lost, so its kernel skips it."""
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
        """(whether it turns away from something, what it tells the others)."""
        instructions = self._policy(host).handle(event)
        steered = any(isinstance(each, Steer) for each in instructions)
        return steered, next((each.report for each in instructions if isinstance(each, Tell)), None)

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
        """The uplinks on shortest paths: to ToRs that both have, or all, behind which there are spines."""
        tor_of = self._stage.topology.tor_of
        shared = np.flatnonzero(np.isin(tor_of[host], tor_of[other])).tolist()
        return frozenset(shared or range(len(tor_of[host])))
