"""An agent on a host, its kernel's tables and the netlink channel between them, in SimPy.

For: the contract of a `RuleController` (control/reconciler) in virtual time. The host loses, doubles, delays
and reorders notifications, overflows its socket, interrupts dumps, refuses rule changes, crashes and
restarts. Not for: the tables themselves (kernel_tables.py), nor what routing writes into them.
A dump reads table after table, each in two parts at two instants. An entry that is moved between the two may
be missed, as in the kernel's walk over its hash table; the dump reports a table that changed meanwhile as
interrupted (NLM_F_DUMP_INTR). Rule changes are made one after another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import simpy

from control.reconciler.model import ForwardingState, Rules, Table
from control.reconciler.ports import (
    Add,
    ArmTimer,
    Changed,
    Dump,
    Dumped,
    Event,
    Installed,
    InstallFailed,
    Overflowed,
    Replace,
    RuleChange,
    RuleController,
    Started,
    Timer,
    TimerFired,
)
from testbed.fabric.agent import Watch
from tests.contract.reconciler.kernel_tables import FULL, KernelTables, Row

_Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True, slots=True)
class Netlink:
    """What the kernel's channel does to messages, and how long it takes.

    message_s: time from a change until its notification is in the socket, s.
    read_s: time in which the agent reads one notification, s.
    buffer_messages: number of notifications for which the socket has room.
    dump_s, dump_entry_s: time of a dump as a whole and for each entry, s.
    rule_s: time of a rule change, s.
    loss, duplication, reordering: shares of the notifications that are lost, come twice, and come overtaken_s
    late.
    rule_failure: share of the rule changes that the kernel refuses for a passing reason.
    answer_loss: share of the answers to dumps and rule changes that never come.
    """

    message_s: float
    read_s: float
    buffer_messages: int
    dump_s: float
    dump_entry_s: float
    rule_s: float
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    overtaken_s: float = 0.0
    rule_failure: float = 0.0
    answer_loss: float = 0.0


class Host:
    """A kernel and an agent that can be started, crash and be started again.

    netlink: the channel; it may be exchanged during a run.
    messages_lost: number of notifications that never reached the controller.
    watch: called with each event and the controller's instructions before they are carried out.
    The same seed and the same changes give the same run.
    """

    def __init__(
        self,
        env: simpy.Environment,
        tables: KernelTables,
        netlink: Netlink,
        seed: np.random.SeedSequence,
        watch: Watch | None = None,
    ) -> None:
        self._env, self._tables = env, tables
        self.netlink = netlink
        self._random = np.random.default_rng(seed)
        self._watch = watch
        self._controller: RuleController | None = None
        self._life = 0  # starts and crashes so far; what an earlier life began has no effect
        self._socket: deque[Changed] = deque()
        self._overflowed = self._reading = False
        self._armed: dict[Timer, int] = {}
        self._changes = simpy.Store(env)
        self.messages_lost = 0
        tables.listeners.append(self._on_change)

    def start(self, controller: RuleController) -> None:
        """Start a new agent process with this controller. It subscribes to notifications."""
        self.crash()
        self._controller = controller
        self._changes = simpy.Store(self._env)
        self._env.process(self._change_rules(self._changes, self._life))
        self._feed(Started(self._env.now))

    def crash(self) -> None:
        """End the agent with its socket and timers. Rules stay, and a rule change may be half done."""
        self._life += 1
        self._controller = None
        self._socket.clear()
        self._overflowed = self._reading = False
        self._armed.clear()

    # --- notifications -------------------------------------------------------------------------------

    def _on_change(self, table: Table) -> None:
        if self._controller is None:
            return
        link, random = self.netlink, self._random
        if random.random() < link.loss:
            self.messages_lost += 1
            return
        message = Changed(0.0, frozenset({table}))
        for _ in range(2 if random.random() < link.duplication else 1):
            late_s = link.overtaken_s if random.random() < link.reordering else 0.0
            self._later(link.message_s + late_s, self._arrive, message)

    def _arrive(self, message: Changed) -> None:
        if len(self._socket) >= self.netlink.buffer_messages:
            self._overflowed = True
            self.messages_lost += 1
        else:
            self._socket.append(message)
        if not self._reading:
            self._reading = True
            self._later(self.netlink.read_s, self._read)

    def _read(self) -> None:
        now_s = self._env.now
        self._reading = False
        if self._overflowed:
            # The kernel reports the loss before it hands out what is left.
            self._overflowed = False
            self._feed(Overflowed(now_s))
        elif self._socket:
            message = self._socket.popleft()
            self._feed(Changed(now_s, message.tables))
        if self._socket or self._overflowed:
            self._reading = True
            self._later(self.netlink.read_s, self._read)

    # --- instructions --------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        if self._controller is None:
            return
        instructions = self._controller.handle(event)
        if self._watch is not None:
            self._watch(event, instructions)
        for instruction in instructions:
            if isinstance(instruction, Dump):
                self._env.process(self._dump(instruction, self._life))
            elif isinstance(instruction, ArmTimer):
                self._arm(instruction)
            else:
                self._changes.put(instruction)

    def _answer(self, event: Event) -> None:
        if self._random.random() >= self.netlink.answer_loss:
            self._feed(event)

    def _dump(self, asked: Dump, life: int) -> _Process:
        env, tables, link = self._env, self._tables, self.netlink
        yield env.timeout(link.dump_s)
        read: dict[Table, Any] = {}
        incomplete = set()
        for table in Table:
            version = tables.version(table)
            rows = tables.size(table)
            part = int(self._random.integers(0, rows + 1))
            yield env.timeout(part * link.dump_entry_s)
            first = tables.dump(table, slice(part))
            yield env.timeout((rows - part) * link.dump_entry_s)
            read[table] = _joined(first, tables.dump(table, slice(part, None)))
            if tables.version(table) != version:
                incomplete.add(table)
        if life == self._life:
            state = ForwardingState(
                read[Table.BRIDGE_FDB], read[Table.EVPN_FDB], read[Table.ROUTES], read[Table.NEIGHBOURS]
            )
            self._answer(Dumped(env.now, asked.request, state, read[Table.RULES], frozenset(incomplete)))

    def _change_rules(self, changes: simpy.Store, life: int) -> _Process:
        """Carry out rule changes in the order of the instructions, while this life of the agent lasts."""
        env, link = self._env, self.netlink
        while life == self._life:
            change: RuleChange = yield changes.get()
            failed: list[int] = []
            why, full = "", False
            for number, row in enumerate(_rows(change.rules)):
                yield env.timeout(link.rule_s)
                if life != self._life:
                    return
                refused = self._change_rule(change, row)
                if refused is not None:
                    failed.append(number)
                    why, full = why or refused, full or refused == FULL
            if failed:
                self._answer(InstallFailed(env.now, change.request, np.array(failed), why, full))
            else:
                self._answer(Installed(env.now, change.request))

    def _change_rule(self, change: RuleChange, row: Row) -> str | None:
        if self._random.random() < self.netlink.rule_failure:
            return "EBUSY: the adapter did not take it"
        if isinstance(change, Add):
            return self._tables.add_rule(row, quiet=True)
        if isinstance(change, Replace):
            return self._tables.replace_rule(row, quiet=True)
        return self._tables.delete_rule(row, quiet=True)

    def _arm(self, asked: ArmTimer) -> None:
        number = self._armed.get(asked.timer, 0) + 1
        self._armed[asked.timer] = number
        self._later(asked.after_s, self._fire, asked.timer, number)

    def _fire(self, timer: Timer, number: int) -> None:
        if self._armed.get(timer) == number:
            self._feed(TimerFired(self._env.now, timer))

    def _later(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action(*arguments)` after delay_s of virtual time if the agent still lives then."""
        life = self._life

        def act(_: simpy.Event) -> None:
            if life == self._life:
                action(*arguments)

        event = self._env.timeout(delay_s)
        event.callbacks.append(act)


def _joined(first: Any, rest: Any) -> Any:
    """Join two parts of a table."""
    columns = [spec.name for spec in fields(first)]
    return type(first)(*(np.concatenate((getattr(first, name), getattr(rest, name))) for name in columns))


def _rows(rules: Rules) -> list[Row]:
    return list(zip(*(getattr(rules, spec.name).tolist() for spec in fields(Rules)), strict=True))
