"""The straightforward model of a queue pair: SimPy, with a process for every packet on its way.

For: the baseline of bench_rdma, and an independent check of twin.fabric.packets. One process sends, one
watches the ACK timer. Each packet that gets through is a process that flies to the receiver and returns as
its answer. To its advantage the model leaves out shared links and partners that answer.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence

import simpy

from twin.fabric.model import QueuePair

Steps = Generator[simpy.Event, None, None]
Times = Sequence[tuple[float, float]]


class Connection:
    """A reliable connection over a link of its own. down, answers_down: (begin, end) of the outages, s."""

    def __init__(
        self, qp: QueuePair, packets: int, wire_s: float, delay_s: float, down: Times, answers_down: Times
    ) -> None:
        self.env = simpy.Environment()
        self._qp, self._packets, self._wire_s, self._delay_s = qp, packets, wire_s, delay_s
        self._down, self._answers_down = down, answers_down
        self._next = self._oldest = self._end = self._expected = self._high = 0
        self._told = False
        self._waits_s = qp.ladder.waits_s
        self._retries = len(self._waits_s) - 1
        self._deadline_s = self._looks_at_s = math.inf
        self._changed = self.env.event()
        self._armed = self.env.event()
        self._posted_s = 0.0
        self.latency_s: list[float] = []
        self.retransmitted = self.timeouts = self.naks = 0
        self.error_at_s = math.nan

    def run(self, messages: int) -> None:
        """Send messages one after another until all are acknowledged or the connection is in error."""
        self.env.process(self._watch())
        self.env.run(until=self.env.process(self._send(messages)))

    def _send(self, messages: int) -> Steps:
        self._end = self._packets
        while len(self.latency_s) < messages and math.isnan(self.error_at_s):
            if self._next >= min(self._end, self._oldest + self._qp.window):
                self._changed = self.env.event()
                yield self._changed
                continue
            number, began_s = self._next, self.env.now
            self._next += 1
            self.retransmitted += number < self._high
            self._high = max(self._high, number + 1)
            if self._deadline_s == math.inf:
                self._arm()
            yield self.env.timeout(self._wire_s)
            if not any(begin < self.env.now and end > began_s for begin, end in self._down):
                self.env.process(self._fly(number))

    def _fly(self, number: int) -> Steps:
        yield self.env.timeout(self._delay_s)
        nak = number > self._expected
        if nak and self._told:
            return
        self._told = nak or (self._told and number != self._expected)
        self._expected += number == self._expected
        expected = self._expected
        if any(begin <= self.env.now < end for begin, end in self._answers_down):
            return
        yield self.env.timeout(self._delay_s)
        if math.isnan(self.error_at_s):
            self._hear(expected, nak)

    def _hear(self, expected: int, nak: bool) -> None:
        if expected > self._oldest:
            self._oldest, self._next = expected, max(self._next, expected)
            self._retries = len(self._waits_s) - 1
            self._deadline_s = math.inf
            if expected < self._next:
                self._arm()
            if expected == self._end:
                self.latency_s.append(self.env.now - self._posted_s)
                self._posted_s = self.env.now
                self._end += self._packets
        if nak and expected == self._oldest and self._next > expected:
            self.naks += 1
            self._go_back()
        self._wake(self._changed)

    def _go_back(self) -> None:
        self._deadline_s = math.inf
        if self._retries == 0:
            self.error_at_s = self.env.now
        else:
            self._retries -= 1
            self._next = self._oldest
        self._wake(self._changed)

    def _arm(self) -> None:
        self._deadline_s = self.env.now + self._waits_s[len(self._waits_s) - 1 - self._retries]
        # After progress a wait may end before the one that the watcher sleeps through.
        if self._deadline_s < self._looks_at_s:
            self._wake(self._armed)

    def _watch(self) -> Steps:
        while True:
            self._looks_at_s = self._deadline_s
            if self._deadline_s == math.inf:
                self._armed = self.env.event()
                yield self._armed
            elif self.env.now < self._deadline_s:
                self._armed = self.env.event()
                yield self.env.timeout(self._deadline_s - self.env.now) | self._armed
            else:
                self.timeouts += 1
                self._go_back()

    @staticmethod
    def _wake(event: simpy.Event) -> None:
        if not event.triggered:
            event.succeed()
