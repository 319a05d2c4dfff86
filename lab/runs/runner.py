"""Runs scenarios on the twin and stores the runs.

For: dividing a scenario's runs into units of work, and carrying them out on an engine (lab.engine). Runs that
differ only in the policy form a unit, because they share their input. Not for: making a run, which its kind's
runner does (lab.kinds).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from lab import kinds
from lab.ask import policy
from lab.ask.kind import Progress, Runner
from lab.ask.scenario import RunSpec, Scenario, expand, paths_in, with_paths
from lab.engine import ports
from lab.engine.local import Local, cores, processes
from lab.engine.ports import Engine, Places
from lab.engine.running import run as carry_out
from lab.runs.store import Run, RunStore
from lab.runs.stores import store_at


@dataclass(frozen=True, slots=True)
class Together:
    """A unit of work for a worker: every policy of one variant with one seed.

    store: location of the store
    fresh: False reuses a run that is in the store
    call: number of the call of this module; a runner caches its input only within a call, as files may change
    """

    specs: tuple[RunSpec, ...]
    store: str
    fresh: bool
    call: str


def units(groups: Sequence[Sequence[RunSpec]], store: RunStore, *, fresh: bool) -> list[ports.Unit[Together]]:
    """Return the units of work that make these runs. Within a group, runs differ only in the policy."""
    call = secrets.token_hex(8)
    return [
        ports.Unit(
            Together(tuple(specs), store.location, fresh, call), specs[0].variant, files_of(specs[0].scenario)
        )
        for specs in groups
    ]


def files_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the existing files and folders that a scenario names, including the user's own policies."""
    named = [path for path in paths_in(scenario).values() if Path(path).exists()]
    return tuple(dict.fromkeys([*named, *policy.files(scenario.policies)]))


def run(spec: RunSpec, store: RunStore, *, progress: Progress | None = None) -> Run:
    """Simulate one run and store it, replacing an earlier run of the same id.

    Raises TwinbedError for bad input. Whatever `progress` raises, and KeyboardInterrupt, pass through;
    nothing is stored of this run then.
    """
    return kinds.of(spec.scenario).runner()((spec,), store, fresh=True, progress=progress)[0]


def run_scenario(
    scenario: Scenario,
    store: RunStore,
    *,
    progress: Progress | None = None,
    jobs: int | None = None,
    fresh: bool = True,
    engine: Engine | None = None,
) -> list[Run]:
    """Return all runs of a scenario, in `expand` order. Runs that finish before a failure stay in the store.

    jobs: number of parallel processes; by default that of the kind. A single unit runs in this process.
    fresh: False reuses a run that is in the store. engine: where the work is done; by default processes of
    this machine.
    """
    specs, kind = expand(scenario), kinds.of(scenario)
    places: dict[tuple[str, int], list[int]] = {}
    for index, spec in enumerate(specs):
        places.setdefault((spec.variant, spec.seed), []).append(index)
    groups = list(places.values())
    work = units([[specs[index] for index in indices] for indices in groups], store, fresh=fresh)
    chosen = engine or Local(min(processes(jobs, kind.processes or cores()), len(work)))
    made: dict[int, str] = {}
    with closing(carry_out(chosen, work, make, progress)) as outcomes:
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
            made |= zip(groups[outcome.number], outcome.done or (), strict=True)
    return store.open_all([made[index] for index in range(len(specs))])


_of_thread = threading.local()
"""The runners of a worker's thread, by kind: consecutive units mostly share their input."""


def make(asked: Together, places: Places, progress: Progress) -> list[str]:
    """Make a unit's runs, and return their ids. Engines execute this function."""
    specs = [
        replace(spec, scenario=with_paths(spec.scenario, places), policy=spec.policy.with_file_at(places))
        for spec in asked.specs
    ]
    kind = kinds.of(specs[0].scenario)
    if getattr(_of_thread, "call", "") != asked.call:
        _of_thread.call, _of_thread.runners = asked.call, {}
        _of_thread.store = store_at(asked.store)
    runners: dict[str, Runner] = _of_thread.runners
    if kind.name not in runners:
        runners[kind.name] = kind.runner()
    made = runners[kind.name](specs, _of_thread.store, fresh=asked.fresh, progress=progress)
    return [run.id for run in made]
