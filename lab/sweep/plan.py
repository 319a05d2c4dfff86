"""The parts of a sweep: cells (a point under a policy), and units of work (a point with a seed).

For: dividing a sweep into units, each run once. Not for: carrying it out (sweep.py). Equal cells, such as a
policy at points where only another policy's parameter differs, share their runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lab import kinds
from lab.ask import policy as policies
from lab.ask.calibration import Calibration
from lab.ask.kind import Kind
from lab.ask.scenario import RunSpec
from lab.runs.code import code_sha256
from lab.runs.publishing import sha256_of
from lab.runs.runner import files_of
from lab.sweep.points import Point, refuse_too_many
from twinbed import ScenarioError

_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Cell:
    """A point under a policy.

    point: number of the point.
    policy: the policy as the scenario names it, without the point's changes.
    spec: specification of its runs, whose seed is replaced.
    asked: SHA-256 of everything that its runs depend on besides seed, code and files' contents.
    owner: number of the first cell that asks the same.
    """

    point: int
    policy: str
    spec: RunSpec
    asked: str
    owner: int


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a sweep that one of several machines makes. number: number of the shard, from 0; count:
    number of all shards."""

    number: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard of a text `i/n`, i from 1 to n. Raises ScenarioError."""
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise ScenarioError(f"--shard {text}: expected I/N with I from 1 to N")
        return cls(int(number) - 1, int(count))

    @property
    def name(self) -> str:
        """Part of its files' names that distinguishes shards, or ""."""
        return f"-{self.number + 1}of{self.count}" if self.count > 1 else ""


@dataclass(frozen=True)
class SweepPlan:
    """The runs of a sweep: every point under each policy of the scenario, with each seed."""

    name: str
    points: Sequence[Point]
    seeds: Sequence[int]
    shard: Shard = Shard()

    def __post_init__(self) -> None:
        cells = sum(len(point.scenario.policies) for point in self.points)
        refuse_too_many(cells * len(self.seeds), self.name)

    @property
    def kind(self) -> Kind:
        """The kind of its scenarios."""
        return kinds.of(self.points[0].scenario)

    @property
    def keys(self) -> list[str]:
        """The keys that vary."""
        return list(self.points[0].values)

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells, in the order of points and policies."""
        calibrations: dict[str | None, Calibration] = {}
        owners: dict[str, int] = {}
        cells: list[Cell] = []
        first = self.points[0].scenario.policies
        for number, point in enumerate(self.points):
            path = point.scenario.calibration
            if path not in calibrations:
                calibrations[path] = self.kind.load_calibration(path)
            texts = point.scenario.policies
            parsed = [policies.parse(text) for text in texts]
            unique = len({policy.name for policy in parsed}) == len(texts) == len(first)
            specs = [RunSpec(point.scenario, policy, 0, calibrations[path], str(number)) for policy in parsed]
            alike = hashlib.sha256(_json([specs[0].conditions(), calibrations[path].sha256]))
            for text, spec in zip(texts, specs, strict=True):
                hashed = alike.copy()
                hashed.update(_json(spec.policy.identity()))
                asked = hashed.hexdigest()
                owner = owners.setdefault(asked, len(cells))
                cells.append(Cell(number, spec.policy.name if unique else text, spec, asked, owner))
        return cells

    @property
    def labels(self) -> list[dict[str, Any]]:
        """The values of the keys and the policy of every cell."""
        return [{**self.points[cell.point].values, "policy": cell.policy} for cell in self.cells]

    @cached_property
    def sharers(self) -> dict[int, list[int]]:
        """Number of an owner → numbers of the cells that have its runs, itself included."""
        table: dict[int, list[int]] = {}
        for number, cell in enumerate(self.cells):
            table.setdefault(cell.owner, []).append(number)
        return table

    @cached_property
    def owned(self) -> dict[int, list[int]]:
        """Number of a point → numbers of its cells that are owners. Points without owners are left out."""
        table: dict[int, list[int]] = {}
        for owner in self.sharers:
            table.setdefault(self.cells[owner].point, []).append(owner)
        return table

    def units(self) -> Iterator[tuple[int, int]]:
        """Yield (point, seed) of this shard's units."""
        every = ((point, seed) for seed in self.seeds for point in self.owned)
        for number, unit in enumerate(every):
            if number % self.shard.count == self.shard.number:
                yield unit

    def specs(self, owners: Sequence[int], seed: int) -> list[RunSpec]:
        """Return the runs of these cells (by position in `cells`) with one seed."""
        return [
            replace(
                self.cells[owner].spec,
                seed=seed,
                scenario=self.cells[owner].spec.scenario.model_copy(update={"seeds": [seed]}),
            )
            for owner in owners
        ]

    @cached_property
    def id(self) -> str:
        """Name and hash of the question, the files that it names, and the code. More seeds keep it."""
        files = {file for point in self.points for file in files_of(point.scenario)}
        asked = [
            [dict(point.values) for point in self.points],
            [cell.asked for cell in self.cells],
            {file: sha256_of(Path(file)) for file in sorted(files) if Path(file).is_file()},
            code_sha256(),
        ]
        digest = hashlib.sha256(_json(asked)).hexdigest()
        return f"{self.name}-{digest[:_DIGITS]}"


def _json(data: object) -> bytes:
    return json.dumps(data, sort_keys=True).encode()
