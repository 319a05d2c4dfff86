"""One scenario on both backends: the twin's runs, the testbed's repeats, and the judgement of each cell.

For: `twinbed validate` and the results page. Not for: the rule (rule.py) or showing (present.py). A cell is
one policy on one variant of the scenario. Both backends get the same arrivals and demand: those of the seed.
The twin of one seed is the same to the bit, so it is run once; the testbed is repeated, more often where the
machine was disturbed (disturbance.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lab.ask.scenario import RunSpec, Scenario, expand
from lab.containers.real import backend
from lab.containers.validate.disturbance import divided, undisturbed
from lab.containers.validate.measures import measures
from lab.containers.validate.rule import LEAST_REPEATS, QUANTITIES, Judgement, judge
from lab.runs.runner import run_scenario
from lab.runs.store import Run, RunStore

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy on one variant of a scenario. twin: a run per seed; testbed: a run per seed and repeat that
    counts; judgements: one per quantity of rule.QUANTITIES; disturbed: the testbed's others."""

    scenario: str
    variant: str
    policy: str
    twin: tuple[Run, ...]
    testbed: tuple[Run, ...]
    judgements: tuple[Judgement, ...]
    disturbed: tuple[Run, ...] = ()

    @property
    def name(self) -> str:
        """Scenario and variant, as a table calls them."""
        return f"{self.scenario} {self.variant}".strip()

    @property
    def agrees(self) -> bool:
        """Whether every quantity that could be compared agrees."""
        return all(each.verdict.agrees for each in self.judgements if each.verdict.counts)


def validate(
    scenario: Scenario,
    store: RunStore,
    *,
    repeats: int = LEAST_REPEATS,
    progress: Progress | None = None,
    fresh: bool = True,
) -> list[Cell]:
    """Runs the scenario on both backends, the testbed `repeats` times, and judges every cell.

    Where a cell has fewer undisturbed runs than `repeats`, the testbed goes on, to twice as many at most.
    fresh: False takes what the store has already. Raises as the backends do; what was finished stays.
    """
    question = backend.on_this_machine(scenario)
    specs = expand(question)
    # The testbed first learns what it needs of the machine: without it the twin's runs would be for nothing.
    backend.check()
    twin = run_scenario(question, store, progress=_named("twin", progress), jobs=1, fresh=fresh)
    real: dict[int, list[Run]] = {index: [] for index in range(len(specs))}
    # All runs of a repeat before the next repeat: a machine that changes meanwhile shows as spread.
    for repeat in range(2 * repeats):
        for index, spec in enumerate(specs):
            if repeat >= repeats and len(undisturbed(real[index])) >= repeats:
                continue
            made = backend.run(spec, store, repeat=repeat, progress=_named("testbed", progress), fresh=fresh)
            real[index].append(made)
    return [
        cell(
            specs[indices[0]],
            [twin[index] for index in indices],
            [run for index in indices for run in real[index]],
        )
        for indices in _by_cell(specs)
    ]


def cell(spec: RunSpec, twin: Sequence[Run], testbed: Sequence[Run]) -> Cell:
    """The judged cell of these runs, all of which answer `spec` but for seed and repeat."""
    return judged(spec.name, spec.variant, spec.policy.text, twin, testbed)


def judged(scenario: str, variant: str, policy: str, twin: Sequence[Run], testbed: Sequence[Run]) -> Cell:
    """A cell with the judgement of each quantity of these runs."""
    kept, disturbed = divided(testbed)
    ours, theirs = [measures(run) for run in twin], [measures(run) for run in kept]
    judgements = tuple(
        judge(each, [found[each.key] for found in ours], [found[each.key] for found in theirs])
        for each in QUANTITIES
    )
    return Cell(scenario, variant, policy, tuple(twin), tuple(kept), judgements, tuple(disturbed))


def _by_cell(specs: Sequence[RunSpec]) -> Iterator[list[int]]:
    """Indices of the specs that differ in the seed alone."""
    found: dict[tuple[str, str], list[int]] = {}
    for index, spec in enumerate(specs):
        found.setdefault((spec.variant, spec.policy.text), []).append(index)
    yield from found.values()


def _named(backend_name: str, progress: Progress | None) -> Progress | None:
    if progress is None:
        return None
    return lambda label, fraction: progress(f"{backend_name}: {label}", fraction)
