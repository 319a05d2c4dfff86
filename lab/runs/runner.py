"""Runs scenarios on the twin: a question in, stored runs out.

For: dividing a scenario's runs into groups, and running groups side by side (lab.engine.local). Runs that
differ in the policy alone form a group, because they share their input. Not for: making a run, which is
the work of its kind's runner (lab.kinds).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab import kinds
from lab.ask.kind import Progress, Runner
from lab.ask.scenario import RunSpec, Scenario, expand
from lab.engine.local import cores, run_units
from lab.runs.store import Run, RunStore


@dataclass(frozen=True, slots=True)
class _Group:
    """Every policy of one variant with one seed."""

    specs: tuple[RunSpec, ...]
    store: Path
    fresh: bool

    def run(self, runner: Runner, progress: Progress | None) -> list[Run]:
        return runner(self.specs, RunStore(self.store), fresh=self.fresh, progress=progress)


def run(spec: RunSpec, store: RunStore, *, progress: Progress | None = None) -> Run:
    """Simulate one run and store it, replacing an earlier run of the same id.

    Raises TwinbedError for bad input. Whatever `progress` raises, and KeyboardInterrupt, pass through;
    nothing is stored of this run then.
    """
    return _Group((spec,), store.root, True).run(kinds.of(spec.scenario).runner(), progress)[0]


def run_scenario(
    scenario: Scenario,
    store: RunStore,
    *,
    progress: Progress | None = None,
    jobs: int | None = None,
    fresh: bool = True,
) -> list[Run]:
    """Return all runs of a scenario, in `expand` order. Runs that finish before a failure stay in the store.

    jobs: number of processes at work at once; by default as the kind has it. A single group is run by this
    process.
    fresh: False opens a run that the store has already instead of simulating it again.
    """
    specs, kind = expand(scenario), kinds.of(scenario)
    places: dict[tuple[str, int], list[int]] = {}
    for index, spec in enumerate(specs):
        places.setdefault((spec.variant, spec.seed), []).append(index)
    groups = [
        _Group(tuple(specs[index] for index in indices), store.root, fresh) for indices in places.values()
    ]
    workers = min(jobs or kind.processes or cores(), len(groups))
    if workers > 1:
        made = run_units(_run_in_worker, groups, workers, progress)
    else:
        runner = kind.runner()
        made = [group.run(runner, progress) for group in groups]
    runs = {
        index: finished
        for indices, group_runs in zip(places.values(), made, strict=True)
        for index, finished in zip(indices, group_runs, strict=True)
    }
    return [runs[index] for index in range(len(specs))]


_runners: dict[str, Runner] = {}
"""The runners of a worker process, by kind: groups that follow each other mostly share their input."""


def _run_in_worker(group: _Group, progress: Progress) -> list[Run]:
    kind = kinds.of(group.specs[0].scenario)
    if kind.name not in _runners:
        _runners[kind.name] = kind.runner()
    return group.run(_runners[kind.name], progress)
