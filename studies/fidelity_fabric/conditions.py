"""The conditions under which faults were measured, and the sessions that went down by themselves.

For: parts of docs/results/fidelity-fabric.md. Not for: gaps and the twin's error (page.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from lab.fabric.real.settings import Road, Setting
from lab.fabric.real.store import MeasuredFault, Watched
from lab.fabric.validate.judge import STALL_S, Floats, measured
from lab.runs.formats import Column, Record, Result, markdown
from twinbed.text import counted

LEAST_FAULTS = 15
"""Least number of faults of a setting with the same number of fabrics that a row needs."""

_SESSIONS_LEFT = 3
"""Sessions of two hosts at two ToRs while one link is broken."""

_SHARES = (5, 50, 95, 99)
Faults = Mapping[Setting, Sequence[MeasuredFault]]
Times = Mapping[Setting, Sequence[Watched]]


def load_text(busy: bool) -> str:
    """Return a table's word for the load of the CPUs that the measurement made on purpose."""
    return "every CPU" if busy else "idle"


def shares_ms(values_s: Sequence[float] | Floats) -> dict[str, float]:
    """Return percentiles by key (`p5` …), ms."""
    shares = np.percentile(values_s, _SHARES) * 1e3
    return dict(zip((f"p{share}" for share in _SHARES), shares.tolist(), strict=True))


def machine(rows: Sequence[MeasuredFault]) -> str:
    """Return the number of fabrics that shared the machine and the use of its CPUs, in words."""
    fabrics = np.array([row.fabrics for row in rows])
    shares = ", ".join(
        f"{counted(count, 'fabric')}: {np.count_nonzero(fabrics == count)}"
        for count in np.unique(fabrics).tolist()
    )
    used = [row.cpu for row in rows if row.cpu is not None]
    text = f"Fabrics side by side shared the CPUs. Faults by the number of fabrics up: {shares}."
    if used:
        low, middle, high = np.percentile(used, [5, 50, 95])
        text += (
            f" From one fault to the next the CPUs were used for {middle:.0%} of the time (median; 5th to "
            f"95th percentile {low:.0%} to {high:.0%}), including the measurement and everything else that "
            'ran there; "idle" means that no load was made on purpose.'
        )
    return text


def cpu_percent(rows: Sequence[MeasuredFault | Watched]) -> float | None:
    """Return the median share of the CPUs' time that was used, percent."""
    used = [row.cpu for row in rows if row.cpu is not None]
    return float(np.median(used)) * 100 if used else None


_BESIDE = (
    Column("setting", "Setting"),
    Column("fabrics", "Fabrics up", decimals=0),
    Column("n", "Faults", decimals=0),
    *(Column(f"p{share}", f"p{share}", "ms", 0) for share in _SHARES),
    Column("cpu", "CPUs used", "%", 0),
)


def side_by_side(faults: Faults) -> Iterator[str]:
    """Yield the settings that were measured alone and among others."""
    rows: list[Record] = []
    for setting, every in sorted(faults.items()):
        own: list[Record] = []
        for count in sorted({row.fabrics for row in every}):
            some = [row for row in every if row.fabrics == count]
            worst = measured(setting, some).worst
            if len(some) >= LEAST_FAULTS and worst.size:
                head: Record = {"setting": setting.key, "fabrics": count, "n": len(some)}
                own.append({**head, **shares_ms(worst), "cpu": cpu_percent(some)})
        rows += own if len(own) > 1 else []
    if rows:
        yield "### Alone and side by side"
        yield markdown(Result(_BESIDE, tuple(rows))).strip()
        yield f"A row is a setting with the same number of fabrics up in at least {LEAST_FAULTS} faults."


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

_Kind = tuple[bool, bool, int, int]
"""Load, stock bfdd, BFD's multiplier and interval, ms. They decide whether a session goes down."""


def downs(faults: Faults, watched: Times) -> Iterator[str]:
    """Yield the sessions that went down without a fault, by bfdd's priority and timers."""
    yield "## False downs"
    kinds = sorted({_kind(setting) for setting in (*faults, *watched)})
    yield markdown(Result(_DOWNS, tuple(_down_row(faults, watched, kind) for kind in kinds))).strip()
    yield (
        "These are sessions that went down although their link was whole, as bfdd counts them at the hosts, "
        "by minutes of a session. Without a broken link all four sessions of a fabric count; with one, the "
        "three others. The fast path does not change BFD, so fabrics with and without it count together. "
        f"Stalls are times of {STALL_S * 1e3:g} ms or more without a broken link in which a CPU ran no "
        "process, as seen by a process with the highest priority on that CPU. Stalls of several CPUs at once "
        "count as one, and fabrics side by side saw the same stalls."
    )


def _kind(setting: Setting) -> _Kind:
    return setting.busy, setting.road is Road.STOCK, setting.multiplier, setting.interval_ms


def _down_row(faults: Faults, watched: Times, kind: _Kind) -> Record:
    busy, stock, multiplier, interval_ms = kind
    times = {setting: rows for setting, rows in watched.items() if _kind(setting) == kind}
    still = [row for rows in times.values() for row in rows]
    fast = [row.fast for setting, rows in times.items() if setting.road is Road.FAST for row in rows]
    every = [row for setting, rows in faults.items() if _kind(setting) == kind for row in rows]
    broken = [row for row in every if row.downs is not None]
    stalls_s = [stall_s for row in still for stall_s in row.stalls_s]
    return {
        "bfdd": "as packaged" if stock else "real-time priority",
        "timers": f"{multiplier}×{interval_ms}",
        "load": load_text(busy),
        "watched": sum(row.lasted_s * row.sessions for row in still) / 60,
        "watched_downs": sum(row.downs for row in still) if still else None,
        "fast": sum(fast) if fast else None,
        "cpu": cpu_percent(still),
        "between": sum(row.lasted_s for row in broken) * _SESSIONS_LEFT / 60,
        "between_downs": sum(row.downs or 0 for row in broken) if broken else None,
        "stalls": len(stalls_s) if still else None,
        "longest": max(stalls_s, default=0.0) * 1e3 if still else None,
    }


def false_downs(faults: Faults, watched: Times, setting: Setting) -> tuple[int | None, str]:
    """Return the number of false downs with a setting's timers and bfdd, None where none were counted, and
    the same in words."""
    row = _down_row(faults, watched, _kind(setting))
    minutes = float(row["watched"] or 0) + float(row["between"] or 0)
    if not minutes:
        return None, "false downs not counted"
    count = int(row["watched_downs"] or 0) + int(row["between_downs"] or 0)
    return count, f"{counted(count, 'false down')} in {minutes:.0f} session-minutes"


def longest_stall_s(watched: Times, setting: Setting) -> float:
    """Return the machine's longest stall while such sessions were watched without a fault, 0.0 if none."""
    rows = [row for other, rows in watched.items() if _kind(other) == _kind(setting) for row in rows]
    return max((stall_s for row in rows for stall_s in row.stalls_s), default=0.0)
