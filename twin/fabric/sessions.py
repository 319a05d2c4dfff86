"""Two ends that keep hearing each other, packet by packet in SimPy: BFD, and LACP as far as it is the same.

For: when an end notices silence or is told, and when the session is up again after a repair. Not for: the
same as distributions (bfd.py), nor what anybody does then (control_plane.py).
Source: RFC 5880 §6.2, §6.8.3–6.8.7; IEEE 802.1AX for LACP's timers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy

from control.fabric import BfdState, BfdTimers, Direction
from twin.fabric.bfd import RECEIVED, SLOW_INTERVAL_S, spacing
from twin.fabric.model import Bond

_ROUNDING_S = 1e-12
_LOST_LACPDUS = 3


@dataclass(frozen=True, slots=True)
class Pace:
    """interval_s between packets, times least … greatest; `multiplier` of them lost are a fault; slow_s: the
    interval of an end that is not up."""

    interval_s: float
    multiplier: int
    least: float
    greatest: float
    slow_s: float


def bfd_pace(timers: BfdTimers) -> Pace:
    """As RFC 5880 has it."""
    least, greatest = spacing(timers.multiplier)
    slow_s = max(SLOW_INTERVAL_S, timers.interval_s)
    return Pace(timers.interval_s, timers.multiplier, least, greatest, slow_s)


def lacp_pace(bond: Bond) -> Pace:
    """LACPDUs, without jitter and as often whether the partner is there or not."""
    return Pace(bond.lacp_s, _LOST_LACPDUS, 1.0, 1.0, bond.lacp_s)


@dataclass(slots=True)
class Wire:
    """A link: what is sent while its direction is lost never arrives."""

    env: simpy.Environment
    delay_s: float
    lost: set[Direction] = field(default_factory=set)

    def carry(self, direction: Direction, arrive: Callable[[], None]) -> None:
        """Calls `arrive` when a packet that is sent now is there, unless it is lost."""
        if direction not in self.lost:
            timeout = self.env.timeout(self.delay_s)
            timeout.callbacks.append(lambda _: arrive())


class End:
    """One end of a session that is up when it begins; `changed` hears of every change between up and not."""

    def __init__(
        self,
        wire: Wire,
        sends: Direction,
        pace: Pace,
        random: np.random.Generator,
        changed: Callable[[bool], None],
    ) -> None:
        self._env, self._wire, self._sends, self._pace = wire.env, wire, sends, pace
        self._random, self._changed = random, changed
        self._state = BfdState.UP
        self._until_s = self._env.now + pace.multiplier * pace.interval_s
        self._peer: End | None = None

    def join(self, peer: End) -> None:
        """Begins to talk to `peer`, in whatever phase."""
        self._peer = peer
        self._sender = self._env.process(self._send())
        self._watcher = self._env.process(self._watch())

    def _interval_s(self) -> float:
        return self._pace.interval_s if self._state is BfdState.UP else self._pace.slow_s

    def _send(self) -> Generator[simpy.Event, Any, None]:
        with suppress(simpy.Interrupt):
            yield self._env.timeout(self._random.uniform(0.0, self._interval_s()))
        while True:
            self._transmit()
            spaced_s = self._interval_s() * self._random.uniform(self._pace.least, self._pace.greatest)
            try:
                yield self._env.timeout(spaced_s)
            except simpy.Interrupt:
                # §6.8.7: what changed is said at once.
                continue

    def _transmit(self) -> None:
        peer, state, interval_s = self._peer, self._state, self._interval_s()
        if peer is not None:
            self._wire.carry(self._sends, lambda: peer.receive(state, interval_s))

    def receive(self, state: BfdState, interval_s: float) -> None:
        """A packet of an end in `state`, that says how often it sends."""
        self._until_s = self._env.now + self._pace.multiplier * max(interval_s, self._pace.interval_s)
        self._become(RECEIVED[self._state, state])

    def _watch(self) -> Generator[simpy.Event, Any, None]:
        while True:
            try:
                if self._state is BfdState.DOWN:
                    yield self._env.event()
                elif self._until_s - self._env.now > _ROUNDING_S:
                    yield self._env.timeout(self._until_s - self._env.now)
                else:
                    self._become(BfdState.DOWN)
            except simpy.Interrupt:
                continue

    def _become(self, state: BfdState) -> None:
        before, self._state = self._state, state
        if state is before:
            return
        for process in (self._sender, self._watcher):
            if process is not self._env.active_process:
                process.interrupt()
        if BfdState.UP in (before, state):
            self._changed(state is BfdState.UP)
