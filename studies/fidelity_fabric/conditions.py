"""Under which conditions faults were measured, and which sessions went down by themselves: parts of the page.

For: results.py. Not for: gaps and the twin's error, which are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from lab.fabric.real.settings import Road, Setting
from lab.fabric.real.store import Measured, Watched
from lab.fabric.validate.figures import STALL_S, measured
from lab.runs.formats import Column, Record, Result, markdown

LEAST_FAULTS = 15
"""Of a setting measured alone, to be put beside the same among others."""

_SESSIONS_LEFT = 3
"""Of two hosts at two ToRs, while one link is broken."""

Faults = Mapping[Setting, Sequence[Measured]]
Times = Mapping[Setting, Sequence[Watched]]


def machine(rows: Sequence[Measured]) -> str:
    """How many fabrics shared the machine, and how busy its CPUs were."""
    fabrics = np.array([row.fabrics for row in rows])
    shares = ", ".join(
        f"{count} fabric{'s' * (count > 1)}: {np.count_nonzero(fabrics == count)}"
        for count in np.unique(fabrics).tolist()
    )
    used = [row.cpu for row in rows if row.cpu is not None]
    said = f"Conditions: fabrics side by side shared the CPUs; faults by the number of fabrics up: {shares}."
    if used:
        low, middle, high = np.percentile(used, [5, 50, 95])
        said += (
            f" From one fault to the next the CPUs were used for {middle:.0%} of the time (median; "
            f"5th to 95th percentile {low:.0%} to {high:.0%}), the measuring itself and whatever else ran "
            'there included; "idle" means that no load was made on purpose.'
        )
    return said


def cpu_percent(rows: Sequence[Measured | Watched]) -> float | None:
    """Of the CPUs' time, what was used: the median."""
    used = [row.cpu for row in rows if row.cpu is not None]
    return float(np.median(used)) * 100 if used else None


_BESIDE = (
    Column("setting", "Setting"),
    Column("fabrics", "Fabrics up", decimals=0),
    Column("n", "Faults", decimals=0),
    *(Column(key, key, "ms", 0) for key in ("p5", "p50", "p95", "p99")),
    Column("cpu", "CPUs used", "%", 0),
)


def side_by_side(faults: Faults) -> Iterator[str]:
    """Settings that were measured alone and among others."""
    rows: list[Record] = []
    for setting, found in sorted(faults.items()):
        counts = sorted({row.fabrics for row in found})
        some = {count: [row for row in found if row.fabrics == count] for count in counts}
        some = {
            count: each
            for count, each in some.items()
            if len(each) >= LEAST_FAULTS and measured(setting, each).worst.size
        }
        if len(some) > 1:
            rows += [_beside_row(setting, count, each) for count, each in some.items()]
    if rows:
        yield "### Alone and side by side"
        yield f"The same setting with so many fabrics up, where there are {LEAST_FAULTS} faults of each."
        yield markdown(Result(_BESIDE, tuple(rows)))


def _beside_row(setting: Setting, fabrics: int, rows: Sequence[Measured]) -> Record:
    shares = np.percentile(measured(setting, rows).worst, [5, 50, 95, 99]) * 1e3
    return {
        "setting": setting.key,
        "fabrics": fabrics,
        "n": len(rows),
        **dict(zip(("p5", "p50", "p95", "p99"), shares.tolist(), strict=True)),
        "cpu": cpu_percent(rows),
    }


_DOWNS = (
    Column("bfdd", "bfdd"),
    Column("timers", "BFD"),
    Column("load", "Load"),
    Column("watched", "Without faults: session-minutes", decimals=0),
    Column("watched_downs", "downs", decimals=0),
    Column("fast", "fast path turned away", decimals=0),
    Column("cpu", "CPUs used", "%", 0),
    Column("between", "While other links broke: session-minutes", decimals=0),
    Column("between_downs", "downs", decimals=0),
    Column("stalls", "Stalls", decimals=0),
    Column("longest", "Longest", "ms", 0),
)


def downs(faults: Faults, watched: Times) -> Iterator[str]:
    """By what bfdd is, for a session goes down by that and its timers alone."""
    yield "## False downs"
    yield (
        "Sessions that went down though their link was whole, as bfdd counts them at the hosts, by minutes "
        "of a session: of the four of a fabric while nothing was broken, and of the three others while one "
        "link was. The fast path changes nothing of BFD, so that its fabrics and those without it count "
        f"together. Stalls, while nothing was broken: times of {STALL_S * 1e3:g} ms or more in which a CPU "
        "ran nobody, as a process with the highest priority on it saw them; of several CPUs at once they are "
        "one, and fabrics that stood side by side saw the same."
    )
    kinds = sorted({_kind(setting) for setting in (*faults, *watched)})
    yield markdown(Result(_DOWNS, tuple(_down_row(faults, watched, kind) for kind in kinds)))


_Kind = tuple[bool, bool, int, int]


def _kind(setting: Setting) -> _Kind:
    return setting.busy, setting.road is Road.STOCK, setting.multiplier, setting.interval_ms


def _down_row(faults: Faults, watched: Times, kind: _Kind) -> Record:
    busy, stock, multiplier, interval_ms = kind
    still = [row for setting, rows in watched.items() if _kind(setting) == kind for row in rows]
    fast = [
        row.fast
        for setting, rows in watched.items()
        if _kind(setting) == kind and setting.road is Road.FAST
        for row in rows
    ]
    broken = _counted(faults, kind)
    stalls_s = [each for row in still for each in row.stalls_s]
    return {
        "bfdd": "as packaged" if stock else "real-time priority",
        "timers": f"{multiplier}×{interval_ms}",
        "load": "every CPU" if busy else "idle",
        "watched": sum(row.lasted_s * row.sessions for row in still) / 60,
        "watched_downs": sum(row.downs for row in still) if still else None,
        "fast": sum(fast) if fast else None,
        "cpu": cpu_percent(still),
        "between": sum(row.lasted_s for row in broken) * _SESSIONS_LEFT / 60,
        "between_downs": sum(row.downs or 0 for row in broken) if broken else None,
        "stalls": len(stalls_s) if still else None,
        "longest": max(stalls_s, default=0.0) * 1e3 if still else None,
    }


def _counted(faults: Faults, kind: _Kind) -> list[Measured]:
    return [
        row
        for setting, rows in faults.items()
        if _kind(setting) == kind
        for row in rows
        if row.downs is not None
    ]


def false_downs(faults: Faults, watched: Times, setting: Setting) -> tuple[int, str]:
    """How many, of a setting's timers and bfdd, and the same in words."""
    row = _down_row(faults, watched, _kind(setting))
    minutes = float(row["watched"] or 0) + float(row["between"] or 0)
    if not minutes:
        return 0, "false downs not counted"
    count = int(row["watched_downs"] or 0) + int(row["between_downs"] or 0)
    return count, f"{count} false downs in {minutes:.0f} session-minutes"
