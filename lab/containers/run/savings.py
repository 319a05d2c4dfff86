"""How much less CPU a policy reserves than static limits, with and without the bursts that refinement adds.

For: the tables, cards and reports that compare runs of a trace. Not for: refining (traces.refine). A trace
that is coarser than a period is refined by a random model, and limits from the refined peaks grow with it. So
each such run is repeated with other random numbers and with flat samples (lab.containers.run.runner), and the
smaller saving is the one that counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lab.runs.formats import Column, Value
from lab.runs.store import Run

_BASELINE = "static"

_reserved = partial(Column, decimals=2, percent=True, section="reserved")


@dataclass(frozen=True, slots=True)
class Saving:
    """A policy's reserved CPU against the static run's, as a relative change.

    counted: the change that counts, which is the smaller saving. low, high: over refinement seeds; equal
    without refinement. flat: with flat samples, NaN without refinement.
    """

    counted: float
    low: float
    high: float
    flat: float

    @property
    def record(self) -> dict[str, Value]:
        """The values of `columns`."""
        return {
            "against_static_share": self.counted,
            "against_static_refined_share": math.nan if math.isnan(self.flat) else self.low,
            "against_static_refined_high_share": math.nan if math.isnan(self.flat) else self.high,
            "against_static_flat_share": self.flat,
        }


def columns(runs: Sequence[Run]) -> tuple[Column, ...]:
    """Return the columns of changes of mean_reserved_cores against the base of `savings`, which the first one
    names. −0.5 is half as much."""
    return (
        _reserved("against_static_share", f"Reserved CPU, change from {base_of(runs)}"),
        _reserved(
            "against_static_refined_share", "… with refined samples", upto="against_static_refined_high_share"
        ),
        _reserved("against_static_flat_share", "… without refinement"),
    )


def base_of(runs: Sequence[Run]) -> str:
    """Return the policy whose runs are the base of `savings`, or several of them if conditions differ."""
    bases = _bases(runs)
    used = [bases.get(conditions_key(run)) for run in runs if not is_static(run)]
    return " or ".join(dict.fromkeys(base.policy for base in used if base is not None))


def savings(runs: Sequence[Run], names: Sequence[str]) -> dict[str, Saving]:
    """Return the saving for each name (one name per run, such as its label) that has a static run under the
    same conditions: static without parameters, or else the first static run.

    Runs of equal name are seeds: the interval is over all of them. Static runs themselves have none.
    """
    bases = _bases(runs)
    changes: dict[str, list[tuple[list[float], float]]] = {}
    for run, name in zip(runs, names, strict=True):
        base = bases.get(conditions_key(run))
        if base is not None and not is_static(run):
            changes.setdefault(name, []).append(_changes(run, base))
    return {name: _over(rows) for name, rows in changes.items()}


def _bases(runs: Sequence[Run]) -> dict[str, Run]:
    """Return the static run with which runs are compared, by their conditions."""
    bases: dict[str, Run] = {}
    for run in sorted(filter(is_static, runs), key=is_tuned):
        bases.setdefault(conditions_key(run), run)
    return bases


def signed(change: float) -> str:
    """Return a relative change with a true minus sign: −54 %."""
    rounded = round(change, 2) + 0.0  # Without the sign of a zero.
    text = f"{rounded:+.0%}" if rounded else "0%"
    return text.replace("-", "\N{MINUS SIGN}").replace("%", " %")


def _changes(run: Run, base: Run) -> tuple[list[float], float]:
    """Return the changes with each refinement seed, and with flat samples (NaN without refinement)."""
    ours, theirs = _refinement(run), _refinement(base)
    mine, static = run.metrics["mean_reserved_cores"], base.metrics["mean_reserved_cores"]
    if not (ours and theirs):
        return [_change(mine, static)], math.nan
    pairs = [(mine, static), *zip(ours["seeds"], theirs["seeds"], strict=False)]
    return [_change(*pair) for pair in pairs], _change(ours["flat"][0], theirs["flat"][0])


def _change(ours: float, theirs: float) -> float:
    return ours / theirs - 1 if theirs else math.nan


def _over(rows: Sequence[tuple[list[float], float]]) -> Saving:
    refined = [change for changes, _ in rows for change in changes]
    flats = [flat for _, flat in rows if not math.isnan(flat)]
    flat = max(flats, default=math.nan)
    return Saving(max([*refined, *flats]), min(refined), max(refined), flat)


def _refinement(run: Run) -> Mapping[str, Sequence[float]]:
    """Return the reserved cores with other refinement seeds (`seeds`) and with flat samples (`flat`), if
    any."""
    return run.manifest.get("refinement") or {}


def is_static(run: Run) -> bool:
    """Return whether the run's limits are static, with parameters of any values."""
    return run.policy.split(":", 1)[0] == _BASELINE


def is_tuned(run: Run) -> bool:
    """Return whether a static run has parameters of its own, so that others are the better base."""
    return run.policy != _BASELINE


def conditions_key(run: Run) -> str:
    """Return a key that two comparable runs share: their conditions except the policy, with the seed, the
    inputs' contents, the calibration and the backend."""
    spec = {key: value for key, value in run.manifest["spec"].items() if key not in ("policy", "name")}
    contents = [source["sha256"] for source in run.manifest["inputs"]]
    made = [run.manifest["calibration"]["sha256"], run.manifest["backend"]]
    return json.dumps([spec, contents, *made], sort_keys=True)
