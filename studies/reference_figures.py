"""The figures that the sources report, each with its place in the source, for comparison with ours.

For: reading and checking reference_figures.toml (containers), reference_firm.toml, reference_fabric.toml and
reference_cloud.toml. Not for: computing our figures (studies.experiments) or judging how near they come
(studies.judge).
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from twinbed import InvariantError

Kind = Literal["change", "absolute", "at_most", "sign"]
_FILES = tuple(
    Path(__file__).with_name(f"reference_{part}.toml") for part in ("figures", "firm", "fabric", "cloud")
)
_KEYS = {"experiment", "key", "what", "kind", "value", "unit", "where"}
_MORE = {"also", "also_where", "compared"}


@dataclass(frozen=True, slots=True)
class ReferenceFigure:
    """One figure of the source.

    experiment, key: our figure that is compared with it.
    what, where: the quantity, and its section, table or figure in the source.
    kind: change (percent, A against B), absolute, at_most (an upper bound), or sign (+1 or −1: the source
        says only which is greater).
    low, high: the two ends of a range in `unit`; a single value is both ends.
    also, also_where: value and place of another printing of the same figure; None and "" without one.
    compared: whether we compute the figure; otherwise it is only recorded.
    """

    experiment: str
    key: str
    what: str
    kind: Kind
    low: float
    high: float
    unit: str
    where: str
    also: float | None = None
    also_where: str = ""
    compared: bool = True

    @property
    def other_printing(self) -> ReferenceFigure | None:
        """The figure with the value of the other printing, or None."""
        if self.also is None:
            return None
        return replace(self, low=self.also, high=self.also, where=self.also_where, also=None, also_where="")


@cache
def reference_figures() -> tuple[ReferenceFigure, ...]:
    """Return every figure in the files' order. Raises InvariantError for a wrong file: the files are ours."""
    return tuple(figure for file in _FILES for figure in parse(file.read_text(encoding="utf-8")))


def source(experiment: str) -> str:
    """Return the title of the experiment's source. Without a source figure it is the first file's title."""
    texts = [file.read_text(encoding="utf-8") for file in _FILES]
    own = [text for text in texts if any(figure.experiment == experiment for figure in parse(text))]
    return str(tomllib.loads((own or texts)[0])["source"])


def parse(text: str) -> tuple[ReferenceFigure, ...]:
    """Return the figures in a TOML text. Raises InvariantError naming the entry that is wrong."""
    figures: dict[tuple[str, str], ReferenceFigure] = {}
    for index, entry in enumerate(tomllib.loads(text)["figures"]):
        figure = _figure(entry, f"reference figure {index + 1} ({entry.get('key')})")
        if (figure.experiment, figure.key) in figures:
            raise InvariantError(f"reference figure {figure.experiment} {figure.key} is given twice")
        figures[figure.experiment, figure.key] = figure
    return tuple(figures.values())


def _figure(entry: dict[str, Any], where: str) -> ReferenceFigure:
    wrong = (_KEYS - set(entry)) | (set(entry) - _KEYS - _MORE)
    if wrong or ("also" in entry) != ("also_where" in entry):
        raise InvariantError(f"{where}: keys {sorted(wrong or _MORE)} are missing or unknown")
    if entry["kind"] not in get_args(Kind):
        raise InvariantError(f"{where}: kind {entry['kind']!r} is not one of {', '.join(get_args(Kind))}")
    value = entry["value"]
    ends = [float(end) for end in (value if isinstance(value, list) else [value, value])]
    if len(ends) != 2 or not all(map(math.isfinite, ends)) or ends[0] > ends[1]:
        raise InvariantError(f"{where}: value {value!r} is neither a number nor [low, high]")
    if entry["kind"] == "sign" and ends[0] not in (-1.0, 1.0):
        raise InvariantError(f"{where}: a sign is 1 or -1, not {value!r}")
    if entry["kind"] in ("change", "absolute") and ends[0] <= 0 <= ends[1]:
        raise InvariantError(f"{where}: there is no ratio to {value!r}; state a bound or a sign")
    texts = {key: str(entry[key]) for key in ("experiment", "key", "what", "unit", "where")}
    also = float(entry["also"]) if "also" in entry else None
    return ReferenceFigure(
        **texts,
        kind=entry["kind"],
        low=ends[0],
        high=ends[1],
        also=also,
        also_where=str(entry.get("also_where", "")),
        compared=bool(entry.get("compared", True)),
    )
