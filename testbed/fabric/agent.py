"""The process on a host that keeps its tunnel rules in step with what routing wrote: one event loop.

For: driving a `RuleController` (the very object that the twin drives) with this namespace's kernel: what it
says becomes events, instructions become dumps, rule changes and timers. Not for: deciding
(control.reconciler), nor for running it as a process (agent_process.py). Killed at any moment it leaves rules
that its successor takes over by their owner's mark.

A dump is read in one go while messages wait in the socket. What they say is looked at right after it: a table
that came in several parts, and of which a message came meanwhile, may lack an entry. The kernel marks that
itself for some tables only (NLM_F_DUMP_INTR), and for forwarding entries never.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from control.reconciler.model import Table
from control.reconciler.ports import (
    ALL_TABLES,
    ArmTimer,
    Changed,
    Dump,
    Dumped,
    DumpFailed,
    Event,
    Installed,
    InstallFailed,
    Instruction,
    Overflowed,
    RuleChange,
    RuleController,
    Started,
    Timer,
    TimerFired,
)
from testbed.fabric.dumps import read_tables
from testbed.fabric.monitor import Monitor
from testbed.fabric.netlink import Socket
from testbed.fabric.rules.port import Applier
from twinbed import BackendError

Watch = Callable[[Event, list[Instruction]], None]


@dataclass(slots=True)
class Counters:
    """What an agent did. dumps, rule_changes: rules changed; refused: of them; dump_s, change_s: seconds
    spent on each in all; slowest_dump_s, slowest_change_s: the longest one."""

    dumps: int = 0
    rule_changes: int = 0
    refused: int = 0
    dump_s: float = 0.0
    change_s: float = 0.0
    slowest_dump_s: float = 0.0
    slowest_change_s: float = 0.0


class Agent:
    """A controller in front of this namespace's kernel. Usable as a context manager.

    applier: puts rules in; it is closed with the agent, and the rules stay. watch: called with each event and
    the instructions that the controller answered it with, before they are carried out. Times are seconds of
    CLOCK_MONOTONIC. Raises BackendError where there is no netlink.
    """

    def __init__(self, controller: RuleController, applier: Applier, watch: Watch | None = None) -> None:
        self._controller, self.applier, self._watch = controller, applier, watch
        self._requests: deque[Dump | RuleChange] = deque()
        self._due_s: dict[Timer, float] = {}
        self.counters = Counters()
        self._tables = Socket()
        self.monitor = Monitor({*applier.ports, self._tables.port})
        self._poll = select.epoll()
        self._poll.register(self.monitor, select.EPOLLIN)

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it; rules stay. Idempotent."""
        self.applier.close()
        self._tables.close()
        self.monitor.close()
        self._poll.close()

    def start(self) -> None:
        """The controller's first event."""
        self._feed(Started(time.monotonic()))

    def step(self, within_s: float) -> None:
        """Waits within_s at most for something to do, and does it: what the kernel said, then timers that are
        due, then one request."""
        if self._requests:
            within_s = 0.0
        elif self._due_s:
            within_s = min(within_s, max(min(self._due_s.values()) - time.monotonic(), 0.0))
        self._poll.poll(within_s)
        for event in self._heard():
            self._feed(event)
        self._fire()
        if self._requests:
            self._carry_out(self._requests.popleft())

    # --- events --------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        instructions = self._controller.handle(event)
        if self._watch is not None:
            self._watch(event, instructions)
        for each in instructions:
            if isinstance(each, ArmTimer):
                self._due_s[each.timer] = time.monotonic() + each.after_s
            else:
                self._requests.append(each)

    def _fire(self) -> None:
        now_s = time.monotonic()
        for timer in [timer for timer, due_s in self._due_s.items() if due_s <= now_s]:
            del self._due_s[timer]
            self._feed(TimerFired(now_s, timer))

    def _heard(self) -> list[Changed | Overflowed]:
        """What the kernel said."""
        overflows = self.monitor.overflows
        events = self.monitor.read(time.monotonic())
        if self.monitor.overflows != overflows:
            # It listens on another socket; the old one took itself off.
            self._poll.register(self.monitor, select.EPOLLIN)
        return events

    # --- requests ------------------------------------------------------------------------------------

    def _carry_out(self, asked: Dump | RuleChange) -> None:
        if isinstance(asked, Dump):
            self._dump(asked)
        else:
            self._change(asked)

    def _dump(self, asked: Dump) -> None:
        began_s = time.monotonic()
        try:
            found = read_tables(self._tables)
            rules = self.applier.read()
        except (OSError, BackendError) as error:
            self._feed(DumpFailed(time.monotonic(), asked.request, str(error)))
            return
        heard = self._heard()
        changed = _tables_of(heard)
        incomplete = found.interrupted | (found.in_parts & changed)
        if rules.interrupted or (rules.in_parts and Table.RULES in changed):
            incomplete |= {Table.RULES}
        now_s = time.monotonic()
        counters, took_s = self.counters, now_s - began_s
        counters.dumps += 1
        counters.dump_s += took_s
        counters.slowest_dump_s = max(counters.slowest_dump_s, took_s)
        self._feed(Dumped(now_s, asked.request, found.state, rules.rules, incomplete))
        for event in heard:
            # It came before the dump was over, but a controller's time does not go back.
            self._feed(replace(event, at_s=now_s))

    def _change(self, asked: RuleChange) -> None:
        began_s = time.monotonic()
        refused = self.applier.carry_out(asked)
        now_s = time.monotonic()
        counters, took_s = self.counters, now_s - began_s
        counters.rule_changes += len(asked.rules.mac)
        counters.change_s += took_s
        counters.slowest_change_s = max(counters.slowest_change_s, took_s)
        if refused is None:
            self._feed(Installed(now_s, asked.request))
        else:
            counters.refused += len(refused.rows)
            self._feed(InstallFailed(now_s, asked.request, refused.rows, refused.why, refused.full))


def _tables_of(events: list[Changed | Overflowed]) -> frozenset[Table]:
    """Which may have changed."""
    if any(isinstance(each, Overflowed) for each in events):
        return ALL_TABLES
    return frozenset(table for each in events if isinstance(each, Changed) for table in each.tables)


if __name__ == "__main__":
    import sys

    from testbed.fabric.agent_process import main

    sys.exit(main())
