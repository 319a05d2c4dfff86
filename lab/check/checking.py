"""Checks the user's own code, of every sort: its promises, on generated histories and backends.

For: `twinbed policies check`. Not for: the promises themselves (driven_fleet.py, behaviour.py, ranked.py),
nor quality, which `twinbed whatif` shows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from control.allocator.ports import Allocator
from lab.ask.kind import Progress
from lab.ask.policy import PolicySpec
from lab.check import behaviour, ranked
from lab.check.driven_fleet import BrokenPromiseError, DrivenFleet
from lab.check.histories import APPLICATIONS, STEPS, drawn_peaks, take
from twinbed import InvariantError, ScenarioError, TwinbedError
from twinbed.own import Own, OwnCodeError

HISTORIES = 40
"""Number of histories, of up to 18 steps each."""
_PERIODS = {"twin": 60, "testbed": 150}
"""Length of the case on a backend, CFS periods of 0.1 s. Processes need seconds to start and to grow."""
_NOT_IN_CONTROL = {
    "asyncio",
    "datetime",
    "random",
    "requests",
    "select",
    "socket",
    "subprocess",
    "threading",
    "time",
}
"""Modules that deciding code may not import: time comes with the data, and randomness from a seed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check.

    promise: the promise that was checked.
    kept: whether it holds.
    detail: how often it was checked, or where it does not hold.
    """

    promise: str
    kept: bool
    detail: str


def check(mine: Own, backend: str, told: Progress, sample: Path | None = None) -> list[Finding]:
    """Return the findings about the user's own code. backend: twin or testbed, on which a policy runs in the
    last check; sample: a file that a trace reader reads.

    Raises ScenarioError for a reader without a sample, BackendError if the testbed is not available.
    """
    if mine.group == "policies":
        return [*_imports(mine), *policy(PolicySpec(mine.name, own=mine), backend, told)]
    if backend != "twin":
        raise ScenarioError(f"{mine.label}: only policies for containers run on the testbed")
    if mine.group == "schedulers":
        return [*_imports(mine), _found("jobs end, GPUs suffice, twice alike", _scheduler(mine, told))]
    if mine.group == "spot_policies":
        return [*_imports(mine), _found("no deadline is missed, twice alike", _spot(mine, told))]
    if mine.group == "recommenders":
        return [
            *_imports(mine),
            _found("rankings name candidates at their prices, twice alike", ranked.rankings(mine)),
            _found("searches stay affordable, never repeat a trial and end", ranked.searches(mine)),
        ]
    if sample is None:
        raise ScenarioError(f"{mine.label}: a trace reader is checked on a file of yours: --sample FILE")
    return [_found("a file is read alike twice, broken copies are refused", ranked.readings(mine, sample))]


def policy(spec: PolicySpec, backend: str, told: Progress) -> list[Finding]:
    """Return the findings about a policy for containers, which may be a shipped one."""

    def case() -> Iterator[str]:
        told(f"on the {backend}", 0.0)
        run = behaviour.on_testbed if backend == "testbed" else behaviour.on_twin
        problems = run(spec.make(), _PERIODS[backend])
        if problems:
            raise BrokenPromiseError("; ".join(problems))
        yield f"{_PERIODS[backend]} periods"

    kept = [_found("limits are within bounds at all joins and leaves", _histories(spec, told))]
    kept.append(_found("the same history is answered alike, given arrays are not kept", _twice(spec)))
    return [*kept, _found(f"containers live under it on the {backend}", case())]


def _found(promise: str, tries: Iterator[str]) -> Finding:
    """Return the finding of tries. Each try yields its description, and the first try that fails is the
    detail."""
    last = "nothing was tried"
    try:
        for tried in tries:
            last = tried
    except (BrokenPromiseError, OwnCodeError) as error:
        return Finding(promise, False, str(error))
    return Finding(promise, True, last)


def _histories(spec: PolicySpec, told: Progress) -> Iterator[str]:
    refused = 0
    for seed in range(HISTORIES):
        told("histories", seed / HISTORIES)
        try:
            _history(spec.make(), seed)
        except OwnCodeError:
            raise
        except BrokenPromiseError as error:
            raise BrokenPromiseError(f"history {seed}: {error}") from None
        except TwinbedError as error:  # a policy may refuse containers that do not fit
            refused, why = refused + 1, str(error)
            if refused == HISTORIES:
                raise BrokenPromiseError(f"it refuses every history: {why}") from None
        yield f"{seed + 1} histories" + (f", {refused} refused by the policy" if refused else "")


def _twice(spec: PolicySpec) -> Iterator[str]:
    for seed in range(HISTORIES // 4):
        try:
            first, second = (_history(spec.make(), seed, spoil=spoil) for spoil in (False, True))
        except OwnCodeError:
            raise
        except TwinbedError:
            continue
        same = len(first) == len(second) and all(
            np.array_equal(this, other) for this, other in zip(first, second, strict=True)
        )
        if not same:
            raise BrokenPromiseError(f"history {seed}: a second run decides differently")
        yield f"{seed + 1} histories"


def _history(allocator: Allocator, seed: int, *, spoil: bool = False) -> list[Any]:
    """Play a history, and return all quotas and memory limits that were decided, in order."""
    random = np.random.default_rng(seed)
    peaks = drawn_peaks(5, random) if allocator.given.peaks else None
    fleet = DrivenFleet(
        allocator,
        APPLICATIONS,
        random.integers(0, 2, 5).tolist(),
        peaks=peaks,
        period_s=float(random.choice([0.05, 0.1, 0.2])),
        spoil=spoil,
        may_be_unlimited=True,
    )
    ghosts: list[int] = []
    for step in random.choice(STEPS, random.integers(6, 19)):
        take(fleet, str(step), random, ghosts)
    decided = [decision for _, decision in fleet.decisions]
    return [part for decision in decided for part in (decision.cpu.quota_cores, decision.memory.limit_bytes)]


def _imports(mine: Own) -> list[Finding]:
    """Return the finding on a file's imports (clocks, sockets, randomness); a package has none."""
    if not mine.place:
        return []
    names = set()
    for node in ast.walk(ast.parse(Path(mine.place).read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    used = sorted(names & _NOT_IN_CONTROL)
    return [
        Finding("no clock, no socket, no chance of its own", not used, ", ".join(used) or "by its imports")
    ]


def _scheduler(mine: Own, told: Progress) -> Iterator[str]:
    from control.cluster import NEVER_DOWN, Timing, Workload
    from control.scheduler.model import Cluster
    from lab.check.watched_scheduler import WatchedScheduler
    from twin.cluster.simulation import random_downtime, simulate

    tries = 10
    for seed in range(tries):
        told("clusters", seed / tries)
        random, count = np.random.default_rng(seed), 30
        speed = np.repeat(random.uniform(0.5, 4, (count, 2))[:, :, None], 2, axis=2)
        jobs = Workload(
            np.sort(random.uniform(0, 20_000, count)),
            random.choice([1, 1, 2, 4], count),
            random.uniform(100, 8000, count),
            speed,
            np.zeros(count, np.int64),
            np.ones(count),
            np.full(count, np.inf),
            np.zeros(count, np.bool_),
        )
        unit, types = np.ones(1), np.array([0, 0, 1, 1])
        fours, none = np.full(4, 4), np.zeros(4, np.int64)
        cluster = Cluster(("a", "b"), types, fours, none, np.array([3.0, 1.0]), unit, unit)
        faults = random_downtime(4, per_day=5, repair_s=900, begin_s=0, end_s=20_000, seed=seed)
        ends = []
        for _ in range(2):
            watched = WatchedScheduler(cluster, mine.make(cluster, 0))
            downtime = faults if seed % 2 else NEVER_DOWN
            try:
                ends.append(simulate(cluster, jobs, watched, Timing(), downtime=downtime).finish_s)
            except BrokenPromiseError as error:
                raise BrokenPromiseError(f"cluster {seed}: {error}") from None
            except InvariantError:  # the twin has nothing left to wait for
                raise BrokenPromiseError(f"cluster {seed}: jobs wait and never run") from None
        if not np.array_equal(ends[0], ends[1]):
            raise BrokenPromiseError(f"cluster {seed}: jobs end at other times in a second run")
        yield f"{seed + 1} clusters of {count} jobs"


def _spot(mine: Own, told: Progress) -> Iterator[str]:
    from control.market.ports import Terms
    from twin.cloud.deadline import Windows, play

    tries = 30
    for seed in range(tries):
        told("markets", seed / tries)
        random = np.random.default_rng(seed)
        work, spare, restart = random.integers(1, 30), random.integers(2, 14), random.choice([0.0, 0.3, 1.7])
        terms = Terms(work * 600.0, (work + spare) * 600.0, restart * 600.0, 600.0, 3.0)
        shape = (4, terms.ticks, random.integers(1, 4))
        there = np.repeat(random.random(shape) < 0.5, random.integers(1, 9), axis=1)[:, : terms.ticks]
        there[0] = False
        market = Windows(there, np.repeat(0.5 + random.random((4, 1, shape[2])), terms.ticks, axis=1))
        first, second = (play(mine.make(terms), terms, market) for _ in range(2))
        late = int((first.finish_s > terms.deadline_s + 1e-6).sum())
        if late:
            raise BrokenPromiseError(
                f"market {seed}: {late} of 4 jobs end late; control.market.ports.Guard helps"
            )
        if not np.array_equal(first.cost_usd, second.cost_usd):
            raise BrokenPromiseError(f"market {seed}: a second run costs another amount")
        yield f"{seed + 1} markets of 4 jobs"
