"""Figures that the source reports, as facts with their place: what ours are put beside.

For: reading and checking reference_figures.toml (containers), reference_fabric.toml and reference_cloud.toml.
Not for: computing ours (studies.experiments) or judging how near they come (studies.experiments.verdict).
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from twinbed import InvariantError

Kind = Literal["change", "absolute", "at_most", "sign"]

PATHS = tuple(Path(__file__).with_name(f"reference_{part}.toml") for part in ("figures", "fabric", "cloud"))
_KEYS = {"experiment", "key", "what", "kind", "value", "unit", "where"}


@dataclass(frozen=True, slots=True)
class ReferenceFigure:
    """One figure of the source.

    kind: change (percent, A against B), absolute, at_most (an upper bound), or sign (+1 or −1: the source
    says only which is greater). low and high: the value, twice, or the two ends of a range.
    """

    experiment: str
    key: str
    what: str
    kind: Kind
    low: float
    high: float
    unit: str
    where: str


@cache
def reference_figures() -> tuple[ReferenceFigure, ...]:
    """Every figure, in the files' order; raises InvariantError, for the files ship with twinbed."""
    return tuple(figure for path in PATHS for figure in parse(path.read_text(encoding="utf-8")))


def source(experiment: str) -> str:
    """What the experiment's figures are taken from; of one that has none, what the first file's are."""
    for path in PATHS:
        text = path.read_text(encoding="utf-8")
        if any(figure.experiment == experiment for figure in parse(text)):
            return str(tomllib.loads(text)["source"])
    return str(tomllib.loads(PATHS[0].read_text(encoding="utf-8"))["source"])


def parse(text: str) -> tuple[ReferenceFigure, ...]:
    """The figures in a TOML text; InvariantError naming the entry that is wrong."""
    found: dict[tuple[str, str], ReferenceFigure] = {}
    for index, entry in enumerate(tomllib.loads(text)["figures"]):
        figure = _figure(entry, f"reference figure {index + 1} ({entry.get('key')})")
        if (figure.experiment, figure.key) in found:
            raise InvariantError(f"reference figure {figure.experiment} {figure.key} is given twice")
        found[figure.experiment, figure.key] = figure
    return tuple(found.values())


def _figure(entry: dict[str, Any], where: str) -> ReferenceFigure:
    if set(entry) != _KEYS:
        raise InvariantError(f"{where}: keys {sorted(set(entry) ^ _KEYS)} are missing or unknown")
    if entry["kind"] not in get_args(Kind):
        raise InvariantError(f"{where}: kind {entry['kind']!r} is none of {', '.join(get_args(Kind))}")
    value = entry["value"]
    ends = [float(each) for each in (value if isinstance(value, list) else [value, value])]
    if len(ends) != 2 or not all(map(math.isfinite, ends)) or ends[0] > ends[1]:
        raise InvariantError(f"{where}: value {value!r} is neither a number nor [low, high]")
    if entry["kind"] == "sign" and ends[0] not in (-1.0, 1.0):
        raise InvariantError(f"{where}: a sign is 1 or -1, not {value!r}")
    if entry["kind"] in ("change", "absolute") and ends[0] <= 0 <= ends[1]:
        raise InvariantError(f"{where}: there is no ratio to {value!r}; state a bound or a sign")
    texts = {key: str(entry[key]) for key in ("experiment", "key", "what", "unit", "where")}
    return ReferenceFigure(**texts, kind=entry["kind"], low=ends[0], high=ends[1])
