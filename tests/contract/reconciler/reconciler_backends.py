"""The backends of the reconciler's contract: a kernel whose tables a case writes, and an agent in front of
it.

A case uses addresses 1, 2, … and hosts 1, 2, …; a backend translates them. The twin is one backend; real
kernels are in reconciler_linux.py. What a backend cannot do is declared in CANNOT (conftest.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np
import simpy

from control.reconciler.model import Representors, Table
from control.reconciler.ports import Dump, Event, Instruction, RuleController
from tests.contract.reconciler.kernel_tables import KernelTables, Row
from tests.contract.reconciler.simulated_agent import Host, Netlink

OWNER, STRANGER = 0xB0B, 0xA11CE
VNI, TUNNEL, REPRESENTOR = 100, 50, 10
UPLINKS = (2, 3)
REPRESENTORS = Representors(np.array([REPRESENTOR]), np.array([VNI]))

QUIET = Netlink(
    message_s=50e-6,
    read_s=20e-6,
    buffer_messages=400,
    dump_s=1e-3,
    dump_entry_s=4e-6,
    rule_s=360e-6,
)
"""A dump of 100,000 entries takes 0.4 s, and tc installs 2,800 rules a second."""


def mac(number: int) -> int:
    return (0x02 << 40) | number


def vtep(host: int) -> int:
    return (10 << 24) | host


def gateway(uplink: int) -> int:
    return (192 << 24) | uplink


class Backend(Protocol):
    """The actions of a case. dumps, rule_changes: how many of each the agent has requested so far."""

    dumps: int
    rule_changes: int

    def start(self, controller: RuleController) -> None: ...

    def crash(self) -> None: ...

    def learn(self, address: int, host: int) -> None:
        """Let routing install the entry in place of another host's."""

    def withdraw(self, address: int, host: int) -> None: ...

    def route(self, host: int, *, present: bool = True) -> None: ...

    def uplink(self, uplink: int, *, alive: bool) -> None:
        """Let the gateway at one of UPLINKS answer, or not."""

    def local(self, address: int, *, present: bool = True) -> None:
        """Let the address appear at the representor of this host, or vanish."""

    def strangers_rule(self, address: int, host: int) -> None:
        """Let another program install a rule."""

    def lose_our_rule(self, address: int) -> None:
        """Let another program remove one of our rules."""

    def take_only(self, rules: int) -> None:
        """Let the kernel refuse more rules than this number from now on."""

    def lose_messages(self, lost: bool) -> None:
        """Let the kernel lose all notifications from now on, or none."""

    def rules(self) -> dict[int, int]:
        """Return address → host of our rules."""

    def handles(self) -> dict[int, int]:
        """Return address → the kernel's handle of our rules."""

    def strangers(self) -> set[Row]:
        """Return the rules that are not ours."""

    def until(self, condition: Callable[[], bool], within_s: float) -> float:
        """Let time pass until the condition holds. Returns the time it took, s; fails the case after
        within_s.
        """

    def pass_time(self, seconds: float) -> None: ...


class Twin:
    """The twin, in virtual time."""

    def __init__(self, netlink: Netlink = QUIET, *, seed: int = 1) -> None:
        self.env = simpy.Environment()
        self.tables = KernelTables()
        self.host = Host(self.env, self.tables, netlink, np.random.SeedSequence(seed), self._watch)
        self.dumps = self.rule_changes = 0
        self.seen: Callable[[Event, list[Instruction]], None] | None = None
        for link in UPLINKS:
            self.uplink(link, alive=True)

    def _watch(self, event: Event, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Dump):
                self.dumps += 1
            elif hasattr(instruction, "rules"):
                self.rule_changes += len(instruction.rules.mac)
        if self.seen is not None:
            self.seen(event, instructions)

    def start(self, controller: RuleController) -> None:
        self.host.start(controller)

    def crash(self) -> None:
        self.host.crash()

    def learn(self, address: int, host: int) -> None:
        for row in self.entries():
            if row[0] == mac(address) and row[1] != vtep(host):
                self.tables.remove(Table.EVPN_FDB, row[0], row[2], row[1])
        self.also_at(address, host)

    def also_at(self, address: int, host: int) -> None:
        """Install the entry beside others of the same address."""
        self.tables.put(Table.EVPN_FDB, mac(address), vtep(host), VNI, TUNNEL)

    def withdraw(self, address: int, host: int) -> None:
        self.tables.remove(Table.EVPN_FDB, mac(address), VNI, vtep(host))

    def route(self, host: int, *, present: bool = True) -> None:
        for link in UPLINKS:
            if present:
                self.tables.put(Table.ROUTES, vtep(host), 32, gateway(link), link)
            else:
                self.tables.remove(Table.ROUTES, vtep(host), 32, gateway(link), link)

    def uplink(self, uplink: int, *, alive: bool) -> None:
        self.tables.put(Table.NEIGHBOURS, gateway(uplink), mac(900 + uplink), uplink, int(alive))

    def local(self, address: int, *, present: bool = True) -> None:
        if present:
            self.tables.put(Table.BRIDGE_FDB, mac(address), REPRESENTOR, 0, 0)
        else:
            self.tables.remove(Table.BRIDGE_FDB, mac(address), 0)

    def strangers_rule(self, address: int, host: int) -> None:
        self.tables.add_rule((REPRESENTOR, mac(address), VNI, vtep(host), 5000 + host, 0, STRANGER))

    def lose_our_rule(self, address: int) -> None:
        self.tables.delete_rule((REPRESENTOR, mac(address), VNI, 0, 0, 0, OWNER))

    def take_only(self, rules: int) -> None:
        self.tables.max_rules = rules

    def lose_messages(self, lost: bool) -> None:
        self.host.netlink = replace(self.host.netlink, loss=1.0 if lost else 0.0)

    def entries(self) -> list[Row]:
        """Return mac, remote, vni and ifindex of the VXLAN forwarding entries."""
        dump = self.tables.dump(Table.EVPN_FDB)
        return list(zip(*(getattr(dump, name).tolist() for name in dump.__slots__), strict=True))

    def rules(self) -> dict[int, int]:
        ours = [row for row in self.tables.rules() if row[6] == OWNER]
        return {row[1] & 0xFFFF: row[3] & 0xFFFF for row in ours}

    def handles(self) -> dict[int, int]:
        return {row[1] & 0xFFFF: row[5] for row in self.tables.rules() if row[6] == OWNER}

    def strangers(self) -> set[Row]:
        return {row for row in self.tables.rules() if row[6] != OWNER}

    def until(self, condition: Callable[[], bool], within_s: float) -> float:
        began_s = self.env.now
        while not condition():
            assert self.env.peek() <= began_s + within_s, f"not within {within_s} s"
            self.env.step()
        return self.env.now - began_s

    def pass_time(self, seconds: float) -> None:
        self.env.run(until=self.env.now + seconds)
