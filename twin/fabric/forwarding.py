"""An agent on a host, its kernel's tables and the netlink between them, in SimPy.

For: driving a `RuleController` (control/reconciler) as a real host would: notifications that are lost,
doubled, late and out of order, a socket that overflows, dumps that take time and are interrupted, rule
changes that fail, crashes and restarts. Not for: the tables themselves (tables.py), nor for what routing
writes into them.

A dump reads table after table, each in two parts at two instants, so that an entry which is moved in between
may be missed, as in the kernel's walk over its hash table; a table that changed meanwhile is reported as
interrupted (NLM_F_DUMP_INTR). Rule changes are made one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import simpy

from control.reconciler.model import EvpnFdb, ForwardingState, Rules, Table
from control.reconciler.ports import (
    Add,
    ArmTimer,
    Changed,
    Dump,
    Dumped,
    Event,
    Installed,
    InstallFailed,
    Instruction,
    Overflowed,
    Replace,
    RuleChange,
    RuleController,
    Started,
    Timer,
    TimerFired,
)
from twin.fabric.tables import FULL, KernelTables, Row

Watch = Callable[[Event, list[Instruction]], None]

_Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True, slots=True)
class Netlink:
    """What the kernel's channel does to messages, and what it takes.

    loss, duplication, reordering: shares of the notifications that are lost, come twice, and come overtaken_s
    late; message_s: from a change until it lies in the socket; buffer_messages: how many may lie there;
    read_s: the agent takes for one; dump_s, dump_entry_s: of a dump, as a whole and for each entry; rule_s:
    of a rule change; rule_failure: share of the rule changes that the kernel refuses for no lasting reason;
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
    """A kernel, and an agent that may be started, crash and be started again.

    netlink: may be exchanged on the way. messages_lost: notifications that never reached the controller.
    watch: called with each event and the instructions that the controller answered it with, before they are
    carried out. Same seed and same changes, same story.
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
        self._life = 0  # starts and crashes so far: what an earlier life began has no effect
        self._socket: deque[Changed] = deque()
        self._overflowed = self._reading = False
        self._armed: dict[Timer, int] = {}
        self._changes = simpy.Store(env)
        self.messages_lost = 0
        tables.listeners.append(self._on_change)

    def start(self, controller: RuleController) -> None:
        """A new agent process with this controller subscribes and begins."""
        self.crash()
        self._controller = controller
        self._changes = simpy.Store(self._env)
        self._env.process(self._change_rules(self._changes, self._life))
        self._feed(Started(self._env.now))

    def crash(self) -> None:
        """The agent is gone, with its socket and its timers; rules stay. A rule change may be half done."""
        self._life += 1
        self._controller = None
        self._socket.clear()
        self._overflowed = self._reading = False
        self._armed.clear()

    # --- notifications -------------------------------------------------------------------------------

    def _on_change(self, table: Table, row: Row, gone: bool) -> None:
        if self._controller is None:
            return
        link, random = self.netlink, self._random
        if random.random() < link.loss:
            self.messages_lost += 1
            return
        entries = EvpnFdb(*(np.array([value]) for value in row)) if table is Table.EVPN_FDB else None
        message = Changed(0.0, frozenset({table}), entries, gone)
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
            self._feed(Changed(now_s, message.tables, message.entries, message.gone))
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
        found: dict[Table, Any] = {}
        incomplete = set()
        for table in Table:
            version = tables.version(table)
            rows = tables.size(table)
            part = int(self._random.integers(0, rows + 1))
            yield env.timeout(part * link.dump_entry_s)
            first = tables.dump(table, slice(part))
            yield env.timeout((rows - part) * link.dump_entry_s)
            found[table] = _joined(first, tables.dump(table, slice(part, None)))
            if tables.version(table) != version:
                incomplete.add(table)
        if life == self._life:
            state = ForwardingState(
                found[Table.BRIDGE_FDB], found[Table.EVPN_FDB], found[Table.ROUTES], found[Table.NEIGHBOURS]
            )
            self._answer(Dumped(env.now, asked.request, state, found[Table.RULES], frozenset(incomplete)))

    def _change_rules(self, changes: simpy.Store, life: int) -> _Process:
        """Carries out rule changes in the order in which they were asked for, for as long as this life
        lasts."""
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
        """Calls `action(*arguments)` after delay_s of virtual time, if the agent still lives then."""
        life = self._life

        def act(_: simpy.Event) -> None:
            if life == self._life:
                action(*arguments)

        event = self._env.timeout(delay_s)
        event.callbacks.append(act)


def _joined(first: Any, rest: Any) -> Any:
    """One table of two parts."""
    columns = [spec.name for spec in fields(first)]
    return type(first)(*(np.concatenate((getattr(first, name), getattr(rest, name))) for name in columns))


def _rows(rules: Rules) -> list[Row]:
    return list(zip(*(getattr(rules, spec.name).tolist() for spec in fields(Rules)), strict=True))
