"""Time of the reconciler from a request for a dump to the instructions, at 100,000 entries.

A dump copies the columns of the twin's kernel tables; reading a real kernel's messages is not included. The
tables are unordered, as a kernel's are. First plan: no rule is installed. Steady: all rules are installed,
and since the last dump either no row has changed its place or all have. Baseline:
benchmarks/plain_reconciler.py on the same rows as lists.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

import numpy as np

from benchmarks import plain_reconciler
from benchmarks.figure import figure
from control.reconciler.model import (
    NO_RULES,
    BridgeFdb,
    EvpnFdb,
    ForwardingState,
    Neighbours,
    Representors,
    Routes,
    Rules,
    Table,
)
from control.reconciler.ports import (
    Changed,
    Dump,
    Dumped,
    Installed,
    Instruction,
    RuleChange,
    Started,
)
from control.reconciler.reconciler import Reconciler
from control.reconciler.settings import ReconcilerSettings
from tests.contract.reconciler.kernel_tables import KernelTables

ENTRIES, HOSTS, VNI, TUNNEL, UPLINKS = 100_000, 1000, 100, 50, (2, 3)
REPEATS, WARM_UP = 15, 3
SETTINGS = ReconcilerSettings()
BASELINE = "a diff of dicts, one entry at a time, in plain Python on the same rows"


def figures() -> Iterator[dict[str, object]]:
    """Yield the figures: first plan, steady state in both readings, 1 % of moves, eight representors,
    memory."""
    plain = {name: plain_s(case) for name, case in _cases(1).items()}
    for name, case in _cases(1).items():
        yield _timed(f"reconciler_{name}_{ENTRIES}_entries", case, plain[name])
    eight = _cases(8)
    for name in ("first_plan", "steady"):
        case = replace(eight[name], target_ms=None)
        yield _timed(f"reconciler_{name}_{8 * ENTRIES}_rules", case, 8 * plain[name])
    ours, theirs = memory_mb(_cases(1)["first_plan"])
    yield figure(
        f"reconciler_memory_{ENTRIES}_entries",
        ours,
        "MB",
        baseline=BASELINE,
        baseline_value=theirs,
        ratio=theirs / ours,
        target="≤ 200 MB",
    )


@dataclass(frozen=True)
class Case:
    """A case to time.

    tables: tables of the kernel.
    representors: devices of the rules.
    shuffled: whether rows are in another order at every dump.
    settled: whether the same dump was handled before.
    target_ms: goal, ms, or None.
    """

    tables: KernelTables
    representors: Representors
    shuffled: bool = False
    settled: bool = False
    target_ms: float | None = None


def _cases(count: int) -> dict[str, Case]:
    representors = Representors(10 + np.arange(count), np.full(count, VNI))
    state = _state()
    rules = _rules(state, representors)
    moved = rules.take(np.arange(len(rules.mac)))
    some = np.arange(0, len(moved.mac), 100)
    moved.remote[some] = (10 << 24) | 1
    moved.action[some] = SETTINGS.first_action + 1
    empty, full = _tables(state, NO_RULES), _tables(state, rules)
    return {
        "first_plan": Case(empty, representors, target_ms=150.0),
        "steady": Case(full, representors, settled=True, target_ms=30.0),
        "steady_in_another_order": Case(full, representors, shuffled=True),
        "one_in_100_moved": Case(_tables(state, moved), representors),
    }


def _state() -> ForwardingState:
    random = np.random.default_rng(20)
    mac = (0x02 << 40) | random.permutation(np.unique(random.integers(0, 1 << 40, 2 * ENTRIES)))[:ENTRIES]
    remote = (10 << 24) | random.integers(1, HOSTS + 1, ENTRIES)
    tunnel, none = np.full(ENTRIES, TUNNEL), np.zeros(ENTRIES, np.int64)
    links = np.array(UPLINKS)
    return ForwardingState(
        BridgeFdb(mac, tunnel, none, none),
        EvpnFdb(mac, remote, np.full(ENTRIES, VNI), tunnel),
        Routes(
            np.repeat((10 << 24) | np.arange(1, HOSTS + 1), len(links)),
            np.full(HOSTS * len(links), 32),
            np.tile((192 << 24) | links, HOSTS),
            np.tile(links, HOSTS),
        ),
        Neighbours((192 << 24) | links, (0x02 << 40) | links, links, np.ones_like(links)),
    )


def _rules(state: ForwardingState, representors: Representors) -> Rules:
    """Return the rules that the state calls for, as the kernel would show them."""
    mac, remote = state.evpn.mac, state.evpn.remote
    count = len(representors.device)
    entry = np.tile(np.arange(ENTRIES), count)
    return Rules(
        device=np.repeat(representors.device, ENTRIES),
        mac=mac[entry],
        vni=np.full(len(entry), VNI),
        remote=remote[entry],
        action=SETTINGS.first_action + (remote[entry] & 0xFFFF),
        handle=1 + np.arange(len(entry)),
        cookie=np.full(len(entry), SETTINGS.owner),
    )


def _tables(state: ForwardingState, rules: Rules) -> KernelTables:
    tables = KernelTables(10**7)
    parts = (state.bridge, state.evpn, state.routes, state.neighbours, rules)
    for table, columns in zip(Table, parts, strict=True):
        tables.fill(table, columns)
    return tables


def _timed(name: str, case: Case, plain: float) -> dict[str, object]:
    seconds, changes = step(case)
    return figure(
        name,
        seconds * 1e3,
        "ms",
        baseline=BASELINE,
        baseline_value=plain * 1e3,
        ratio=plain / seconds,
        target="none" if case.target_ms is None else f"≤ {case.target_ms:g} ms",
        rule_changes=changes,
    )


def step(case: Case) -> tuple[float, int]:
    """Return the median time of dump, diff and plan, s, and the number of rule changes requested."""
    random = np.random.default_rng(3)
    times, changes = [], 0
    machine = _running(case)
    for number in range(REPEATS + WARM_UP):
        if not case.settled:
            machine = _running(case)
        request = _request(machine, number + 1.0)
        begin = perf_counter()
        state, rules = _dump(case.tables)
        taken = perf_counter() - begin
        if case.shuffled:
            rules = rules.take(random.permutation(len(rules.mac)))
        begin = perf_counter()
        instructions = machine.handle(Dumped(number + 1.0, request, state, rules))
        times.append(taken + perf_counter() - begin)
        changes = _finish(machine, instructions, number + 1.0)
    return median(times[WARM_UP:]), changes


def _running(case: Case) -> Reconciler:
    """Return a started reconciler. Its first dump was empty, or had the case's tables if the case is
    settled."""
    settings = ReconcilerSettings(max_rules=10**7, dump_interval_s=0.0)
    machine = Reconciler(case.representors, settings)
    (first,) = [step for step in machine.handle(Started(0.0)) if isinstance(step, Dump)]
    state, rules = _dump(case.tables if case.settled else KernelTables())
    _finish(machine, machine.handle(Dumped(0.0, first.request, state, rules)), 0.0)
    return machine


def _request(machine: Reconciler, at_s: float) -> int:
    steps = machine.handle(Changed(at_s, frozenset({Table.EVPN_FDB})))
    return next(step.request for step in steps if isinstance(step, Dump))


def _finish(machine: Reconciler, instructions: list[Instruction], at_s: float) -> int:
    """Report every batch as installed, to the last. Return the number of rule changes."""
    changes = 0
    while asked := [step for step in instructions if isinstance(step, RuleChange)]:
        changes += len(asked[0].reasons)
        instructions = machine.handle(Installed(at_s, asked[0].request))
    return changes


def _dump(tables: KernelTables) -> tuple[ForwardingState, Rules]:
    forwarding = (Table.BRIDGE_FDB, Table.EVPN_FDB, Table.ROUTES, Table.NEIGHBOURS)
    return ForwardingState(*(tables.dump(table) for table in forwarding)), tables.dump(Table.RULES)


def _plain_rows(case: Case) -> list[list[tuple[int, ...]]]:
    state, rules = _dump(case.tables)
    parts = (state.bridge, state.evpn, state.routes, state.neighbours, rules)
    return [
        list(zip(*(getattr(part, name).tolist() for name in type(part).__slots__), strict=True))
        for part in parts
    ]


def plain_s(case: Case) -> float:
    """Return the median time of the plain diff, s."""
    rows = _plain_rows(case)
    times = []
    for _ in range(5):
        begin = perf_counter()
        plain_reconciler.diff(*rows, 10, VNI, SETTINGS.owner)
        times.append(perf_counter() - begin)
    return median(times)


def memory_mb(case: Case) -> tuple[float, float]:
    """Return the peak memory of dump, diff and plan, and of the plain rows and their diff, MB."""
    machine = _running(case)
    request = _request(machine, 1.0)
    tracemalloc.start()
    machine.handle(Dumped(1.0, request, *_dump(case.tables)))
    ours = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    tracemalloc.start()
    plain_reconciler.diff(*_plain_rows(case), 10, VNI, SETTINGS.owner)
    theirs = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return ours / 1e6, theirs / 1e6
