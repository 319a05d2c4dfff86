"""Keep a host's tunnel rules in step with the state that routing wrote, in one event loop.

For: driving a `RuleController` (the same object that the twin drives) with this namespace's kernel.
Notifications become events; instructions become dumps, rule changes and timers. Not for: deciding
(control.reconciler), or running it as a process (agent_process.py). Source: our design. If the agent is
killed, its rules stay, and its successor finds them by the owner's mark.

A dump is read in one go while messages wait in the socket, and the messages are read right after it. A table
may lack an entry if it came in several parts and a message about it came meanwhile. The kernel itself marks
this for some tables only (NLM_F_DUMP_INTR), and never for forwarding entries.
"""

from __future__ import annotations

import select
import signal
import time

if __name__ == "__main__":
    # Until the agent handles it, Ctrl-C ends the process at once and without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

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
class AgentCounters:
    """Counters of an agent.

    dumps: number of dumps read. rule_changes: number of rules to change. refused: number of these that the
    kernel refused. dump_s, change_s: total time of dumps and of changes, s. slowest_dump_s, slowest_change_s:
    time of the slowest dump and change, s.
    """

    dumps: int = 0
    rule_changes: int = 0
    refused: int = 0
    dump_s: float = 0.0
    change_s: float = 0.0
    slowest_dump_s: float = 0.0
    slowest_change_s: float = 0.0


class Agent:
    """A controller in front of this namespace's kernel. Usable as a context manager.

    applier: object that installs rules. It is closed with the agent, and the rules stay. watch: function
    called with every event and the controller's instructions before they are carried out. Times are
    CLOCK_MONOTONIC, s. Raises BackendError if there is no netlink.
    """

    def __init__(self, controller: RuleController, applier: Applier, watch: Watch | None = None) -> None:
        self._controller, self.applier, self._watch = controller, applier, watch
        self._requests: deque[Dump | RuleChange] = deque()
        self._due_s: dict[Timer, float] = {}
        self.counters = AgentCounters()
        self._tables = Socket()
        self.monitor = Monitor({*applier.ports, self._tables.port})
        self._poll = select.epoll()
        self._poll.register(self.monitor, select.EPOLLIN)

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the agent; the rules stay. Idempotent."""
        self.applier.close()
        self._tables.close()
        self.monitor.close()
        self._poll.close()

    def start(self) -> None:
        """Give the controller its first event."""
        self._feed(Started(time.monotonic()))

    def step(self, within_s: float) -> None:
        """Wait at most within_s, then handle notifications, due timers and one request."""
        if self._requests:
            within_s = 0.0
        elif self._due_s:
            within_s = min(within_s, max(min(self._due_s.values()) - time.monotonic(), 0.0))
        self._poll.poll(within_s)
        for event in self._heard():
            self._feed(event)
        self._fire()
        if self._requests:
            request = self._requests.popleft()
            if isinstance(request, Dump):
                self._dump(request)
            else:
                self._change(request)

    # --- events --------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        instructions = self._controller.handle(event)
        if self._watch is not None:
            self._watch(event, instructions)
        for instruction in instructions:
            if isinstance(instruction, ArmTimer):
                self._due_s[instruction.timer] = time.monotonic() + instruction.after_s
            else:
                self._requests.append(instruction)

    def _fire(self) -> None:
        now_s = time.monotonic()
        for timer in [timer for timer, due_s in self._due_s.items() if due_s <= now_s]:
            del self._due_s[timer]
            self._feed(TimerFired(now_s, timer))

    def _heard(self) -> list[Changed | Overflowed]:
        """Return the kernel's notifications."""
        overflows = self.monitor.overflows
        events = self.monitor.read(time.monotonic())
        if self.monitor.overflows != overflows:
            # The monitor has a new socket; epoll has dropped the closed one by itself.
            self._poll.register(self.monitor, select.EPOLLIN)
        return events

    # --- requests ------------------------------------------------------------------------------------

    def _dump(self, request: Dump) -> None:
        began_s = time.monotonic()
        try:
            tables = read_tables(self._tables)
            rules = self.applier.read()
        except (OSError, BackendError) as error:
            self._feed(DumpFailed(time.monotonic(), request.request, str(error)))
            return
        heard = self._heard()
        changed = _tables_of(heard)
        incomplete = tables.interrupted | (tables.in_parts & changed)
        if rules.interrupted or (rules.in_parts and Table.RULES in changed):
            incomplete |= {Table.RULES}
        now_s = time.monotonic()
        counters, took_s = self.counters, now_s - began_s
        counters.dumps += 1
        counters.dump_s += took_s
        counters.slowest_dump_s = max(counters.slowest_dump_s, took_s)
        self._feed(Dumped(now_s, request.request, tables.state, rules.rules, incomplete))
        for event in heard:
            # The event came before the dump was over, but the controller's time must not go back.
            self._feed(replace(event, at_s=now_s))

    def _change(self, request: RuleChange) -> None:
        began_s = time.monotonic()
        refused = self.applier.carry_out(request)
        now_s = time.monotonic()
        counters, took_s = self.counters, now_s - began_s
        counters.rule_changes += len(request.rules.mac)
        counters.change_s += took_s
        counters.slowest_change_s = max(counters.slowest_change_s, took_s)
        if refused is None:
            self._feed(Installed(now_s, request.request))
        else:
            counters.refused += len(refused.rows)
            self._feed(InstallFailed(now_s, request.request, refused.rows, refused.why, refused.full))


def _tables_of(events: list[Changed | Overflowed]) -> frozenset[Table]:
    """Return the tables that may have changed."""
    if any(isinstance(event, Overflowed) for event in events):
        return ALL_TABLES
    return frozenset(table for event in events if isinstance(event, Changed) for table in event.tables)


if __name__ == "__main__":
    import sys

    from testbed.fabric.agent_process import main

    sys.exit(main())
