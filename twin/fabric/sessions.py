"""Simulate the two ends of a BFD session packet by packet in SimPy, and LACP as far as it works the same way.

For: the time at which an end notices silence or hears of it from the peer, and at which the session is up
again after a repair. Not for: the same times as distributions (bfd.py), nor the consequences
(control_plane.py). Source: RFC 5880 §6.2, §6.8.3–6.8.7; IEEE 802.1AX for LACP's timers.
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
"""Times that differ by less than this are equal, s."""
LOST_LACPDUS = 3
"""Number of LACPDUs in a row whose loss is a fault (IEEE 802.1AX)."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Sending intervals and patience of an end.

    interval_s: interval of an end that is up, s. slow_s: interval of an end that is not up, s.
    least, greatest: bounds of the time between packets as shares of the interval.
    multiplier: number of packets in a row whose loss is a fault.
    """

    interval_s: float
    multiplier: int
    least: float
    greatest: float
    slow_s: float


def bfd_pace(timers: BfdTimers) -> Pace:
    """Return how a BFD session paces its packets (RFC 5880)."""
    least, greatest = spacing(timers.multiplier)
    slow_s = max(SLOW_INTERVAL_S, timers.interval_s)
    return Pace(timers.interval_s, timers.multiplier, least, greatest, slow_s)


def lacp_pace(bond: Bond) -> Pace:
    """Return the pace of LACPDUs, which have no jitter and are sent as often when the partner is gone."""
    return Pace(bond.lacp_s, LOST_LACPDUS, 1.0, 1.0, bond.lacp_s)


@dataclass(slots=True)
class Wire:
    """A link. Packets sent in a lost direction never arrive. delay_s: one-way delay, s."""

    env: simpy.Environment
    delay_s: float
    lost: set[Direction] = field(default_factory=set)

    def carry(self, direction: Direction, arrive: Callable[[], None]) -> None:
        """Call `arrive` when a packet sent now arrives, unless it is lost."""
        if direction not in self.lost:
            timeout = self.env.timeout(self.delay_s)
            timeout.callbacks.append(lambda _: arrive())


class End:
    """One end of a session that is up at the beginning. It calls `changed` when it comes up or ceases to be
    up."""

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
        """Begin to talk to `peer`, in a random phase."""
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
                # §6.8.7: a change is announced at once.
                continue

    def _transmit(self) -> None:
        peer, state, interval_s = self._peer, self._state, self._interval_s()
        if peer is not None:
            self._wire.carry(self._sends, lambda: peer.receive(state, interval_s))

    def receive(self, state: BfdState, interval_s: float) -> None:
        """Receive a packet from an end in `state` that announces interval_s."""
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
