"""How well rules agree with the forwarding tables while addresses move and messages get lost.

For: comparing controllers of tunnel rules (the reconciler, the naive subscriber) on the same sequence of
changes. Not for: faults of the network, which change no rule.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy

from control.reconciler.diff import plan
from control.reconciler.model import EvpnFdb, ForwardingState, Representors, Routes, Table, Whole
from control.reconciler.ports import Dump, Event, Instruction, RuleController
from control.reconciler.settings import ReconcilerSettings
from twin.fabric.forwarding import Host, Netlink
from twin.fabric.model import Floats
from twin.fabric.tables import KernelTables

_TUNNEL, _UPLINK = 50, 2
_FIRST_MAC, _FIRST_VTEP = 0x02 << 40, 10 << 24


@dataclass(frozen=True, slots=True)
class Churn:
    """The sequence of changes.

    entries: number of addresses, spread over `hosts` other hosts.
    moves_per_s: rate of moves (Poisson); a move takes one address to another host.
    moving_s: time for which addresses move, s.
    settle_s: quiet time after that, s.
    sample_s: time between two samples, s.
    """

    entries: int
    hosts: int
    moves_per_s: float
    moving_s: float
    settle_s: float
    sample_s: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many rules were wrong over time.

    at_s: float64[n], time of each sample, s.
    wrong: int64[n], number of rules that were missing, superfluous or led to the wrong host at that time.
    moves, messages_lost, dumps, rule_changes: totals.
    """

    at_s: Floats
    wrong: Whole
    moves: int
    messages_lost: int
    dumps: int
    rule_changes: int


def agreement(
    controller: RuleController,
    representors: Representors,
    settings: ReconcilerSettings,
    churn: Churn,
    netlink: Netlink,
    seed: np.random.SeedSequence,
) -> Agreement:
    """Compare the controller's rules with the tables over virtual time. settings: the controller's
    settings."""
    env = simpy.Environment()
    story, channel = seed.spawn(2)
    random = np.random.default_rng(story)
    tables = KernelTables(settings.max_rules)
    place = random.integers(0, churn.hosts, churn.entries)
    vni = int(representors.vni[0])
    _fill(tables, place, churn.hosts, vni)
    counted = {"dumps": 0, "rules": 0, "moves": 0}

    def watch(_: Event, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Dump):
                counted["dumps"] += 1
            elif hasattr(instruction, "rules"):
                counted["rules"] += len(instruction.rules.mac)

    def moves() -> Generator[simpy.Event, Any, None]:
        while True:
            yield env.timeout(random.exponential(1.0 / churn.moves_per_s))
            if env.now >= churn.moving_s:
                return
            address = int(random.integers(churn.entries))
            to = (int(place[address]) + 1 + int(random.integers(churn.hosts - 1))) % churn.hosts
            tables.remove(Table.EVPN_FDB, _FIRST_MAC + address, vni, _FIRST_VTEP + int(place[address]))
            tables.put(Table.EVPN_FDB, _FIRST_MAC + address, _FIRST_VTEP + to, vni, _TUNNEL)
            place[address] = to
            counted["moves"] += 1

    host = Host(env, tables, netlink, channel, watch)
    host.start(controller)
    env.process(moves())
    at_s = np.arange(churn.sample_s, churn.moving_s + churn.settle_s, churn.sample_s)
    wrong = np.empty(len(at_s), np.int64)
    for sample, until_s in enumerate(at_s.tolist()):
        env.run(until=until_s)
        wrong[sample] = _wrong(tables, representors, settings)
    return Agreement(at_s, wrong, counted["moves"], host.messages_lost, counted["dumps"], counted["rules"])


def _fill(tables: KernelTables, place: Whole, hosts: int, vni: int) -> None:
    count = len(place)
    mac, same = _FIRST_MAC + np.arange(count), np.ones(count, np.int64)
    tables.fill(Table.EVPN_FDB, EvpnFdb(mac, _FIRST_VTEP + place, vni * same, _TUNNEL * same))
    ones = np.ones(hosts, np.int64)
    tables.fill(Table.ROUTES, Routes(_FIRST_VTEP + np.arange(hosts), 32 * ones, 0 * ones, _UPLINK * ones))


def _wrong(tables: KernelTables, representors: Representors, settings: ReconcilerSettings) -> int:
    forwarding = (Table.BRIDGE_FDB, Table.EVPN_FDB, Table.ROUTES, Table.NEIGHBOURS)
    made = plan(
        ForwardingState(*(tables.dump(table) for table in forwarding)),
        tables.dump(Table.RULES),
        representors,
        owner=settings.owner,
        max_rules=settings.max_rules,
        first_action=settings.first_action,
    )
    return sum(len(change.reasons) for change in (made.delete, made.replace, made.add))
