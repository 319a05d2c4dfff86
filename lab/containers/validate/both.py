"""Runs one scenario on both backends, the testbed several times, and judges each cell.

For: `twinbed validate`, the results page, and the page "Validation", which finds cells among stored runs.
Not for: the rule (rule.py) or showing (present.py). A cell is one policy on one variant of the scenario.
Both backends get the same arrivals and demand, those of the seed. The testbed is repeated, more often where
the machine was disturbed (measures.py). Each repeat there has other moments at which periods begin, and so
has each draw of the twin.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab.ask.kind import Progress
from lab.ask.scenario import RunSpec, Scenario, expand, with_overrides
from lab.containers.input.sections import container_scenario
from lab.containers.real import backend
from lab.containers.validate.measures import divided, measures, undisturbed
from lab.containers.validate.rule import LEAST_REPEATS, QUANTITIES, Judgement, Quantity, judge, own_agreement
from lab.runs.runner import run_scenario
from lab.runs.store import Run, RunStore

DRAWS = 5
"""Number of draws of each run of the twin. Some policies take another course if a period begins a little
later."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy on one variant of a scenario.

    twin: a run per seed and draw.
    testbed: a run per seed and repeat that counts.
    judgements: one per quantity of rule.QUANTITIES.
    own: agreement of the testbed's repeats with each other by quantity, as rule.own_agreement counts it.
    disturbed: the testbed's runs that do not count.
    """

    scenario: str
    variant: str
    policy: str
    twin: tuple[Run, ...]
    testbed: tuple[Run, ...]
    judgements: tuple[Judgement, ...]
    own: tuple[tuple[int, int], ...]
    disturbed: tuple[Run, ...] = ()

    @property
    def name(self) -> str:
        """Scenario and variant, as a table calls them."""
        return f"{self.scenario} {self.variant}".strip()

    @property
    def agrees(self) -> bool:
        """Whether every quantity that could be compared agrees."""
        return all(judgement.verdict.agrees for judgement in self.judgements if judgement.verdict.counts)


def validate(
    scenario: Scenario,
    store: RunStore,
    *,
    repeats: int = LEAST_REPEATS,
    progress: Progress | None = None,
    fresh: bool = True,
) -> list[Cell]:
    """Run the scenario on both backends, the testbed `repeats` times, and judge every cell.

    If a cell has fewer undisturbed runs than `repeats`, the testbed makes more, at most twice as many. fresh:
    False reuses runs in the store. Raises as the backends do; runs that finished stay in the store.
    """
    question = backend.on_this_machine(scenario)
    specs = expand(question)
    # Check the machine first: if the testbed cannot run, the twin's runs are of no use.
    backend.check()
    twin = [
        run_scenario(asked, store, progress=_named("twin", progress), jobs=1, fresh=fresh)
        for asked in drawn(question)
    ]
    real: dict[int, list[Run]] = {index: [] for index in range(len(specs))}
    # All runs of a repeat come before the next repeat, so that a change of the machine appears as spread.
    # Each repeat begins with another policy, so that no policy always follows the same one.
    for repeat in range(2 * repeats):
        for index in ((place + repeat) % len(specs) for place in range(len(specs))):
            spec = specs[index]
            if repeat >= repeats and len(undisturbed(real[index])) >= repeats:
                continue
            made = backend.run(spec, store, repeat=repeat, progress=_named("testbed", progress), fresh=fresh)
            real[index].append(made)
    return [
        cell(
            specs[indices[0]],
            [runs[index] for index in indices for runs in twin],
            [run for index in indices for run in real[index]],
        )
        for indices in _by_cell(specs)
    ]


def drawn(question: Scenario) -> list[Scenario]:
    """Return the question with each draw, or alone if a draw changes nothing."""
    draws = DRAWS if container_scenario(question).drawn else 1
    return [with_overrides(question, [f"draw={draw}"]) for draw in range(draws)]


def cell(spec: RunSpec, twin: Sequence[Run], testbed: Sequence[Run]) -> Cell:
    """Return the judged cell of these runs, all of which answer `spec` except for seed, draw and repeat."""
    return judged(spec.name, spec.variant, spec.policy.text, twin, testbed)


def judged(scenario: str, variant: str, policy: str, twin: Sequence[Run], testbed: Sequence[Run]) -> Cell:
    """Return a cell with the judgement of each quantity of these runs."""
    kept, disturbed = divided(testbed)
    ours, theirs = [measures(run) for run in twin], [measures(run) for run in kept]
    own = tuple(_own(quantity, kept, theirs) for quantity in QUANTITIES)
    return Cell(
        scenario,
        variant,
        policy,
        tuple(twin),
        tuple(kept),
        judged_values(ours, theirs),
        own,
        tuple(disturbed),
    )


def judged_values(
    twin: Sequence[dict[str, float]], testbed: Sequence[dict[str, float]]
) -> tuple[Judgement, ...]:
    """Return the judgement of each quantity. twin, testbed: `measures` of each run."""
    return tuple(
        judge(quantity, [values[quantity.key] for values in twin], [own[quantity.key] for own in testbed])
        for quantity in QUANTITIES
    )


def _own(quantity: Quantity, runs: Sequence[Run], values: Sequence[dict[str, float]]) -> tuple[int, int]:
    """Return the number of repeats that agree with the others of their seed, and the number compared."""
    by_seed: dict[int, list[float]] = {}
    for run, of_run in zip(runs, values, strict=True):
        by_seed.setdefault(run.seed, []).append(of_run[quantity.key])
    counts = [own_agreement(quantity, of_seed) for of_seed in by_seed.values()]
    return sum(agree for agree, _ in counts), sum(total for _, total in counts)


def _by_cell(specs: Sequence[RunSpec]) -> Iterator[list[int]]:
    """Yield the indices of the specs that differ in the seed alone."""
    indices: dict[tuple[str, str], list[int]] = {}
    for index, spec in enumerate(specs):
        indices.setdefault((spec.variant, spec.policy.text), []).append(index)
    yield from indices.values()


def _named(backend_name: str, progress: Progress | None) -> Progress | None:
    if progress is None:
        return None
    return lambda label, fraction: progress(f"{backend_name}: {label}", fraction)


def cells(runs: Sequence[Run]) -> list[Cell]:
    """Return every policy and variant that both backends have run, by the scenario's name, in the order of
    making.

    Runs belong together if all that they depend on is the same except backend, seed, draw and repeat. Seeds
    that only one backend has run are left out.
    """
    pairs: dict[str, tuple[list[Run], list[Run]]] = {}
    for run in sorted(runs, key=lambda run: str(run.manifest["created_at"])):
        twin, testbed = pairs.setdefault(_question(run), ([], []))
        (testbed if run.manifest["backend"] == "testbed" else twin).append(run)
    made = [_cell(*pair) for pair in pairs.values()]
    return sorted((cell for cell in made if cell is not None), key=lambda cell: cell.scenario)


def _question(run: Run) -> str:
    spec = {key: value for key, value in run.manifest["spec"].items() if key not in ("seed", "draw")}
    contents = [source["sha256"] for source in run.manifest["inputs"]]
    return json.dumps([spec, contents, run.manifest["calibration"]["sha256"]], sort_keys=True)


def _cell(twin: Sequence[Run], testbed: Sequence[Run]) -> Cell | None:
    seeds = {run.seed for run in twin} & {run.seed for run in testbed}
    twin, testbed = ([run for run in side if run.seed in seeds] for side in (twin, testbed))
    if not seeds:
        return None
    manifest = twin[0].manifest
    variant = str(manifest["workload"].get("arrivals", ""))
    return judged(str(manifest["name"]), variant, twin[0].policy, twin, testbed)
