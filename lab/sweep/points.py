"""The points of a sweep: the values of its keys, from `--vary`, a CSV file and the scenario's own `vary`.

For: `points` and the seeds. Not for: the runs at a point (plan.py).
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import numbers
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.ask import guard
from lab.ask.scenario import Scenario, changed, variants
from lab.runs.formats import Value
from twinbed import ScenarioError
from twinbed.files import MIB, read_user_text

MOST_SEEDS = 100_000
"""Most seeds of a sweep. A larger number is usually a typing error."""

MOST_RUNS = 200_000
"""Most runs of a sweep. Its units and its table are held in memory, about 2 KB a run."""

_MOST_BYTES = 16 * MIB
"""Largest file of points: MOST_RUNS lines of 80 characters."""


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of values.

    values: key → value; all points have the same keys.
    scenario: the scenario with these values.
    """

    values: Mapping[str, Value]
    scenario: Scenario


def points(scenario: Scenario, vary: Sequence[str], table: Path | None) -> list[Point]:
    """Return every combination of the rows of a CSV file, the scenario's `vary` and the `--vary` options.

    vary: `KEY=VALUE,VALUE…`; values are YAML. table: its header has keys as in `--set`. The last key changes
    fastest. Raises ScenarioError that names the option, or the file and its line.
    """
    varied = dict(_varied(text) for text in vary)
    if len(varied) < len(vary):
        raise ScenarioError("--vary: a key is given twice; give all its values at once")
    rows = _rows(table) if table else [("", {})]
    # Each point takes milliseconds to check.
    refuse_too_many(len(rows) * math.prod(map(len, varied.values())), scenario.name)
    if any("seeds" in keys for keys in (varied, rows[0][1], scenario.vary)):
        raise ScenarioError(f"{scenario.name}: seeds cannot be varied; give them with --seeds")
    made: dict[tuple[Value, ...], Point] = {}
    for where, row in rows:
        twice = set(row) & set(varied)
        if twice:
            raise ScenarioError(f"{where}: {min(twice)} is also in --vary; give it once")
        base = changed(
            scenario.model_copy(update={"seeds": [0]}),
            [
                *(f"{key}={value}" for key, value in row.items()),
                *(f"vary.{key}={json.dumps(values)}" for key, values in varied.items()),
            ],
            where or "--vary",
        )
        fixed = {key: _short(guard.parse(value, f"{where}: {key}")) for key, value in row.items()}
        combinations = itertools.product(*base.vary.values())
        for values, (_, variant) in zip(combinations, variants(base, "--vary"), strict=True):
            own = dict(zip(base.vary, map(_short, values), strict=True))
            point = Point({**fixed, **own}, variant)
            # Its runs would count twice in the means, as if it had twice as many seeds.
            if made.setdefault(tuple(point.values.values()), point) is not point:
                told = " ".join(map("{}={}".format, point.values, point.values.values()))
                raise ScenarioError(f"{where or scenario.name}: the point {told} is given twice")
    return list(made.values())


def seeds(text: str) -> Sequence[int]:
    """Return the seeds of `0:1000` (without the last), `7` or `1,2,3`. Raises ScenarioError."""
    first, colon, last = text.partition(":")
    chosen: Sequence[int] = ()
    with suppress(ValueError):
        begin = int(first or 0) if colon else 0
        chosen = (
            range(begin, min(int(last), begin + MOST_SEEDS + 1))  # cut, because a longer range has no len()
            if colon
            else [int(part) for part in text.split(",")]
        )
    return seeds_of(chosen, f"--seeds {text}")


def seeds_of(given: Collection[Any], where: str) -> list[int]:
    """Return whole numbers as seeds. Raises ScenarioError, which begins with `where`."""
    if len(given) > MOST_SEEDS:
        raise ScenarioError(f"{where}: more than {MOST_SEEDS:,} seeds; give fewer")
    chosen = [
        int(seed)
        for seed in given
        if isinstance(seed, numbers.Integral) and 0 <= int(seed) < guard.MOST_NUMBER
    ]
    if not chosen or len(set(chosen)) < len(given):
        raise ScenarioError(
            f"{where}: expected FIRST:END, which leaves out END, or seeds with commas: whole numbers from 0 "
            "to below 2^63, each once"
        )
    return chosen


def refuse_too_many(runs: int, where: str) -> None:
    """Raise ScenarioError, which begins with `where`, if these are more runs than a sweep may have."""
    if runs > MOST_RUNS:
        raise ScenarioError(f"{where}: {runs:,} runs; a sweep has at most {MOST_RUNS:,}; vary less")


def _varied(text: str) -> tuple[str, list[Any]]:
    key, equals, values = text.partition("=")
    if not (key and equals and values):
        raise ScenarioError(f"--vary {text}: expected KEY=VALUE,VALUE…")
    parsed = guard.parse(f"[{values}]", f"--vary {text}")
    if len(parsed) == 1 and isinstance(parsed[0], list):  # The values themselves are in brackets.
        parsed = parsed[0]
    if not parsed:
        raise ScenarioError(f"--vary {text}: expected KEY=VALUE,VALUE…")
    if len({json.dumps(value, default=str) for value in parsed}) < len(parsed):
        raise ScenarioError(f"--vary {text}: a value is given twice")
    return key, parsed


def _rows(table: Path) -> list[tuple[str, dict[str, str]]]:
    """Return the rows of a CSV file with their line numbers. Raises ScenarioError."""
    text = read_user_text(table, _MOST_BYTES)
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        keys = reader.fieldnames or ()
        if len(set(keys)) < len(keys):
            raise ScenarioError(f"{table}: line 1: a key is given twice")
        rows = [(f"{table}: line {reader.line_num}", row) for row in reader]
    except csv.Error as error:
        raise ScenarioError(f"{table}: line {reader.line_num}: {error}") from None
    if not rows:
        raise ScenarioError(f"{table}: no rows; the first line has the keys, and every further line a point")
    for where, row in rows:
        if None in row or None in row.values() or "" in row.values():
            raise ScenarioError(f"{where}: expected a value for each of {', '.join(keys)}")
    return rows


def _short(value: Any) -> Value:
    return value if isinstance(value, str | int | float | bool) else json.dumps(value, default=str)
