"""One pair of NCCL ends through failing ports, with every step an event in SimPy that walks port_tables.py.

For: which parts arrive how often, which states are walked and when, and a check of port_failover.py's closed
form. Not for: jobs (port_failover.story) or how queue pairs send packet by packet (packets.py): here a part
that meets an outage is sent again at the rungs of its ladder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any

import numpy as np
import simpy

from control.fabric import Direction
from tests.twin.fabric.port_tables import (
    DEVICE,
    FAILOVER_STATUSES,
    RECEIVER,
    REQUEST,
    SENDER,
    Context,
    Device,
    Request,
    Table,
    step,
)
from twin.fabric.model import Floats, Whole
from twin.fabric.port_failover import PortFailover
from twin.fabric.retransmission import Ladder

Process = Generator[simpy.Event, Any, Any]
SENDS, RECEIVES = "sender", "receiver"


@dataclass(frozen=True, slots=True)
class PortLoss:
    """An outage of a port, s. way: what is lost, OUT data and IN acknowledgements (None: both)."""

    port: int
    begin_s: float
    end_s: float
    way: Direction | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A report of an adapter to an end, other than its errors. event: an event of port_tables.DEVICE."""

    at_s: float
    port: int
    event: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """The fates of the messages.

    arrived: int64[messages, ports], how often the receiver took each part. done_s: float64[messages], when
    the sender reported each message complete, s (NaN: never). died_s: when the communicator failed, s (inf:
    it did not); reason: of what. walk: (time, machine, state, event, next state), in the order of time.
    devices: (end, port) → state at the end.
    """

    arrived: Whole
    done_s: Floats
    died_s: float
    reason: str
    walk: Sequence[tuple[float, str, StrEnum, str, StrEnum]]
    devices: dict[tuple[str, int], Device]


def exchange(
    library: PortFailover,
    ladder: Ladder,
    *,
    messages: int,
    part_s: float,
    losses: Sequence[PortLoss] = (),
    events: Sequence[Event] = (),
    in_flight: int = 1,
    every_s: float = 0.0,
    both_ends: bool = True,
) -> Exchange:
    """Send messages, each striped over all ports, until all are complete or the communicator has failed.

    part_s: time of a part on its port, s, short beside the ladder's waits. in_flight: messages at once.
    every_s: least time between two of them, s. both_ends: whether the receiver notices errors, too.
    """
    pair = _Pair(library, ladder, part_s, losses, in_flight, both_ends)
    pair.env.process(pair.send_all(messages, every_s))
    for event in events:
        pair.env.process(pair.report(event))
    pair.env.run(until=pair.over)
    # Contexts go on after the last message as long as they have something to say.
    if pair.died_s == inf:
        pair.env.run(until=pair.env.now + library.start_s + (library.tries + 1) * library.ack_s)
    arrived = np.array([[pair.arrived[m, p] for p in range(library.ports)] for m in range(messages)])
    done_s = np.array([pair.done_s.get(message, np.nan) for message in range(messages)])
    return Exchange(arrived, done_s, pair.died_s, pair.reason, pair.walk, pair.devices)


@dataclass(slots=True)
class _Pair:
    library: PortFailover
    ladder: Ladder
    part_s: float
    losses: Sequence[PortLoss]
    in_flight: int
    both_ends: bool
    env: simpy.Environment = field(default_factory=simpy.Environment)
    over: simpy.Event = field(init=False)
    devices: dict[tuple[str, int], Device] = field(default_factory=dict)
    queues: list[simpy.Store] = field(init=False)
    mail: dict[int, simpy.Store] = field(default_factory=dict)
    acknowledged: dict[int, simpy.Event] = field(default_factory=dict)
    arrived: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    missing: dict[int, set[int]] = field(default_factory=dict)
    complete: dict[int, simpy.Event] = field(default_factory=dict)
    done_s: dict[int, float] = field(default_factory=dict)
    walk: list[tuple[float, str, StrEnum, str, StrEnum]] = field(default_factory=list)
    died_s: float = inf
    reason: str = ""

    def __post_init__(self) -> None:
        ports = range(self.library.ports)
        self.over = self.env.event()
        self.devices = {(end, port): Device.OK for end in (SENDS, RECEIVES) for port in ports}
        self.queues = [simpy.Store(self.env) for _ in ports]
        for port in ports:
            self.env.process(self._pair(port))

    def send_all(self, messages: int, every_s: float) -> Process:
        slots = simpy.Resource(self.env, self.in_flight)
        last = []
        for message in range(messages):
            slot = slots.request()
            yield slot
            last.append(self.env.process(self._message(message, slots, slot)))
            yield self.env.timeout(every_s)
        yield self.env.all_of(last)
        if not self.over.triggered:
            self.over.succeed()

    def _message(self, message: int, slots: simpy.Resource, slot: Any) -> Process:
        self.missing[message] = set(range(self.library.ports))
        self.complete[message] = self.env.event()
        for part in range(self.library.ports):
            self.queues[self._route(part)].put((message, part))
        yield self.complete[message]
        self.done_s[message] = self.env.now
        slots.release(slot)

    def _route(self, port: int) -> int:
        """Return the port that carries what belongs to `port`: itself, or the next one that is ok."""
        order = [(port + further) % self.library.ports for further in range(self.library.ports)]
        return next((other for other in order if self.devices[SENDS, other] is Device.OK), port)

    def _pair(self, port: int) -> Process:
        """Send what is queued at a port, part by part."""
        while True:
            message, part = yield self.queues[port].get()
            if (yield from self._sent(port, message, part)):
                self._finish(message, part)
                continue
            failed = [(message, part), *self.queues[port].items]
            self.queues[port].items.clear()
            self.error(SENDS, port, "retry exceeded")
            parts = defaultdict(list)
            for lost_message, lost_part in failed:
                parts[lost_message].append(lost_part)
            for lost_message, lost_parts in parts.items():
                self.env.process(self._request(lost_message, lost_parts))

    def _sent(self, port: int, message: int, part: int) -> Process:
        """Send a part over a port's queue pair and return whether it was acknowledged. The pair itself drops
        what it has already."""
        begin_s, taken = self.env.now, False
        for rung_s in (0.0, *self.ladder.rungs_s):
            yield self.env.timeout(max(begin_s + rung_s - self.env.now, 0.0))
            out, back = self._works(port, Direction.OUT), self._works(port, Direction.IN)
            yield self.env.timeout(self.part_s)
            if out and not taken:
                taken = True
                self.arrived[message, part] += 1
            if out and back:
                return True
        yield self.env.timeout(max(begin_s + self.ladder.error_s - self.env.now, 0.0))
        return False

    def _works(self, port: int, way: Direction) -> bool:
        return not any(
            loss.port == port and loss.begin_s <= self.env.now < loss.end_s and loss.way in (None, way)
            for loss in self.losses
        )

    def _finish(self, message: int, part: int) -> None:
        self.missing[message].discard(part)
        if not self.missing[message] and not self.complete[message].triggered and self.died_s == inf:
            self.complete[message].succeed()

    # --- requests ------------------------------------------------------------------------------------------

    def _request(self, message: int, parts: list[int]) -> Process:
        """Take the parts of a request that a failed port left open to their end."""
        name = f"request {message}"
        yield self.env.timeout(self.library.probe_delay_s)
        state = self._step(REQUEST, name, Request.PENDING, "probe delay")
        if not (yield from self._read(self._route(parts[0]))):
            self._die(self._step(REQUEST, name, state, "read fails"), "a probe failed")
            return
        state = self._step(REQUEST, name, state, "read completes")
        absent = [part for part in parts if not self.arrived[message, part]]
        if not absent:
            self._step(REQUEST, name, state, "all parts arrived")
        else:
            state = self._step(REQUEST, name, state, "parts missing")
            for part in absent:
                if not (yield from self._sent(self._route(part), message, part)):
                    self._die(self._step(REQUEST, name, state, "fails again"), "a resent part failed")
                    return
            self._step(REQUEST, name, state, "completes")
        for part in parts:
            self._finish(message, part)

    def _read(self, port: int) -> Process:
        begin_s = self.env.now
        for rung_s in (0.0, *self.ladder.rungs_s):
            yield self.env.timeout(max(begin_s + rung_s - self.env.now, 0.0))
            if self._works(port, Direction.OUT) and self._works(port, Direction.IN):
                yield self.env.timeout(self.library.probe_rtt_s)
                return True
        yield self.env.timeout(max(begin_s + self.ladder.error_s - self.env.now, 0.0))
        return False

    # --- ports ---------------------------------------------------------------------------------------------

    def report(self, event: Event) -> Process:
        """Let the sender's adapter report an event."""
        yield self.env.timeout(event.at_s)
        if event.event in ("asynchronous error", "port error", "port active"):
            self._device(SENDS, event.port, event.event)
        else:
            self.error(SENDS, event.port, event.event)

    def error(self, end: str, port: int, status: str) -> None:
        """Meet a completion error at one end of a port."""
        state = self.devices[end, port]
        others = [other for other in range(self.library.ports) if other != port]
        if status not in FAILOVER_STATUSES:
            self._device(end, port, "other status")
        elif any(self.devices[end, other] is not Device.OK for other in others):
            self._device(end, port, "error, another port not ok")
        elif not self.library.redundant:
            self._device(end, port, "error, no other port")
        elif state is Device.OK:
            self._device(end, port, "error")
            if end == SENDS and self.both_ends:
                self.env.process(self._later(port, status))
            if self.library.recovery:
                self._device(end, port, "recovery enabled")
                self.env.process(self._calls(port) if end == SENDS else self._listens(port))

    def _later(self, port: int, status: str) -> Process:
        yield self.env.timeout(self.library.receiver_lag_s)
        self.error(RECEIVES, port, status)

    def _device(self, end: str, port: int, event: str) -> None:
        after = self._step(DEVICE, f"{end} {port}", self.devices[end, port], event)
        self.devices[end, port] = Device(after)
        self._die(after, event)

    def _step(self, table: Table, machine: str, state: StrEnum, event: str) -> StrEnum:
        after = step(table, state, event)
        self.walk.append((float(self.env.now), machine, state, event, after))
        return after

    def _die(self, state: StrEnum, reason: str) -> None:
        if state in (Device.FATAL, Request.FATAL) and self.died_s == inf:
            self.died_s, self.reason = float(self.env.now), reason
            if not self.over.triggered:
                self.over.succeed()

    # --- recovery ------------------------------------------------------------------------------------------

    def _calls(self, port: int) -> Process:
        """Act as the sender's context."""
        library, name = self.library, f"{SENDS}'s context {port}"
        self.acknowledged[port] = self.env.event()
        yield self.env.timeout(library.start_s)
        state = self._step(SENDER, name, Context.INIT, "start delay")
        for attempt in range(library.tries):
            state = self._step(SENDER, name, state, "batch due")
            if self._works(port, Direction.OUT) and port in self.mail:
                self.mail[port].put(attempt)
            came = self.acknowledged[port]
            yield came | self.env.timeout(max(library.ack_s, library.interval_s))
            if came.triggered:
                self._step(SENDER, name, state, "acknowledged")
                self._again(SENDS, port)
                return
            last = attempt == library.tries - 1
            state = self._step(SENDER, name, state, "last timeout" if last else "timeout")
        self._given_up(SENDS, port)

    def _listens(self, port: int) -> Process:
        """Act as the receiver's context."""
        library, name = self.library, f"{RECEIVES}'s context {port}"
        self.mail[port] = simpy.Store(self.env)
        yield self.env.timeout(library.start_s)
        state = self._step(RECEIVER, name, Context.INIT, "start delay")
        attempts, row, expected = 1, 0, -1
        while attempts < library.tries:
            letter = self.mail[port].get()
            silence = self.env.timeout(library.alive_s)
            yield letter | silence
            if letter.triggered:
                number = int(letter.value or 0)
                row = row + 1 if number == expected else 1
                expected = number + 1
                if row >= library.batches and self._works(port, Direction.IN):
                    state = self._step(RECEIVER, name, state, "enough in order")
                    self.acknowledged[port].succeed()
                    self._step(RECEIVER, name, state, "acknowledged")
                    self._again(RECEIVES, port)
                    return
                continue
            letter.cancel()
            attempts += 1
            last = attempts >= library.tries
            state = self._step(RECEIVER, name, state, "last timeout" if last else "timeout")
        self._given_up(RECEIVES, port)

    def _again(self, end: str, port: int) -> None:
        self._device(end, port, "context succeeds")
        self._device(end, port, "progress")

    def _given_up(self, end: str, port: int) -> None:
        if end == RECEIVES:
            del self.mail[port]
        self._device(end, port, "context fails")
        self._device(end, port, "progress")
