"""docs/results/fidelity-fabric.md: gaps on the real fabric by road and timers, and the twin's error.

For: the page's text, from what is stored. Not for: measuring (campaign.py), judging (judge.py), nor under
which conditions it was measured and what went down by itself (conditions.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from lab.ask.calibration import Calibration
from lab.fabric.calibrate.values import load_calibration
from lab.fabric.real.bench import GROUPS_KEPT_S
from lab.fabric.real.chain import CHAIN
from lab.fabric.real.settings import Road, Setting, What
from lab.fabric.real.store import Measured, Watched
from lab.fabric.validate import judge
from lab.fabric.validate.figures import FLOWS, RATE_PER_S, STALL_S, Floats, measured
from lab.fabric.validate.judge import RULE, Compared
from lab.runs.formats import Column, Record, Result, markdown
from studies.fidelity_fabric import conditions
from testbed.fabric.probe import THINNED

MAKE = "make results-fidelity-fabric"
_WORST = 4
MEDIAN_AIM, P99_AIM = 1.2, 2.0
"""Of the detection time: what the fast path is to reach."""

_ROADS = {
    Road.STOCK: "stock FRR",
    Road.REAL_TIME: "bfdd at real-time priority, no next-hop groups in the kernel",
    Road.FAST: "the same, with the fast path",
}
_RULES_STAY = "[0015](../decisions/0015-rules-follow-dumps.md)"
_STRANDED = (
    "Stock FRR after a lost carrier: the kernel takes the dead uplink out of its next-hop groups, zebra 8.4 "
    "does not notice, and a group that it still keeps when the uplink is back (it does for 180 s) serves "
    "again as it is: the uplink stays unused, for good. To measure one such fault after another, zebra keeps "
    f"groups for {GROUPS_KEPT_S} s here, and the cable stays dead until they are gone."
)
_WHATS = {
    What.BOTH: "silent, both ways",
    What.OUT: "silent, what the host sends",
    What.IN: "silent, what the host receives",
    What.CARRIER: "carrier",
}


@dataclass(frozen=True, slots=True)
class Found:
    """All that the page is made of. calibrations: by road; lacking: what of the plan is not measured yet;
    note: under which conditions it was measured."""

    faults: Mapping[Setting, Sequence[Measured]]
    watched: Mapping[Setting, Sequence[Watched]]
    calibrations: Mapping[Road, Calibration]
    compared: Sequence[Compared]
    machine: Mapping[str, object]
    lacking: Sequence[str] = ()
    note: str = ""


def document(found: Found) -> str:
    """The page's text."""
    parts = [
        *_head(found),
        *_goal(found),
        *_gaps(found),
        *conditions.side_by_side(found.faults),
        *conditions.downs(found.faults, found.watched),
        *_chain(found),
        *_compared(found),
    ]
    return "\n\n".join(parts) + "\n"


def _head(found: Found) -> Iterator[str]:
    rows = [row for rows in found.faults.values() for row in rows]
    dates = sorted({row.date[:10] for row in rows})
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    changed = [row.rules for row in rows if row.rules is not None]
    yield f"<!-- Made by `{MAKE}`; edit lab/fabric/real, not this file. -->"
    yield "# Fabric: failover on the real kernel, and the twin's error"
    yield "\n".join(
        [
            f"- date: {datetime.now(UTC).date().isoformat()}; faults of {days}",
            f"- kernel: {found.machine['kernel']}",
            f"- CPU: {found.machine['cpus']} × {found.machine['cpu_model']}",
            f"- faults: {len(rows)}, on two hosts at two ToRs (namespaces, FRR, EVPN over VXLAN), each "
            "measured from its break until all routes were back",
            f"- tunnel rules: counted around {len(changed)} of them; {sum(map(bool, changed))} failovers "
            "changed one",
            f"- stalls: {sum(row.stall_s >= STALL_S for row in rows)} faults met a stall of the machine of "
            f"{STALL_S * 1e3:g} ms or more; they are counted unless it is said otherwise",
        ]
    )
    yield conditions.machine(rows)
    yield from _rules(found)
    if found.note:
        yield found.note
    yield (
        f"`{MAKE}` makes this page and goes on where it was interrupted. What is measured: {FLOWS} UDP flows "
        f"of {RATE_PER_S:g} datagrams a second each way between two applications; in each fault the worst "
        "flow's gap at its receiver, of both directions. So a gap is known to two intervals, "
        f"{2e3 / RATE_PER_S:g} ms. From the repair after a silent fault until shortly before the next one a "
        f"flow sends one datagram in {THINNED}. BFD's m×i is a multiplier m and an interval of i ms; the "
        "detection time is their product."
    )


def _rules(found: Found) -> Iterator[str]:
    """Why a failover changed a rule, where one did."""
    changed = [(setting, row) for setting, rows in found.faults.items() for row in rows if row.rules]
    if not changed:
        return
    counted = [row.downs for _, row in changed if row.downs is not None]
    timers = ", ".join(sorted({setting.timers_text for setting, _ in changed}))
    yield (
        f"Where tunnel rules changed ({len(changed)} faults, at {timers}): in {sum(map(bool, counted))} of "
        f"the {len(counted)} of them in which downs were counted another session had gone down by itself. To "
        "BGP a host without a session is gone: its type-2 routes are withdrawn, zebra takes the "
        "forwarding entries out of the kernel, and the rules go with them. That is right as it is: while a "
        f"VTEP only has no route its rules stay ({_RULES_STAY}), but an entry that was withdrawn may be an "
        "address that has moved; and a rule kept without a route would carry nothing."
    )


def _goal(found: Found) -> Iterator[str]:
    yield "## The aim"
    yield (
        f"Median gap at most {MEDIAN_AIM:g} × BFD's detection time and 99th percentile at most "
        f"{P99_AIM:g} ×, silent faults both ways, idle machine, at timers without a false down."
    )
    lines = []
    for setting, rows in sorted(found.faults.items()):
        if setting.road is not Road.FAST or setting.what is not What.BOTH or setting.busy:
            continue
        worst = measured(setting, rows).worst / setting.timers.detection_s
        if not worst.size:
            continue
        median, p99 = np.percentile(worst, [50, 99])
        count, downs = conditions.false_downs(found.faults, found.watched, setting)
        reached = "reached" if median <= MEDIAN_AIM and p99 <= P99_AIM else "missed"
        if count and reached == "reached":
            reached = "reached by the gaps alone"
        lines.append(
            f"- fast path, {setting.timers_text}: {median:.2f} × and {p99:.2f} × of "
            f"{setting.timers.detection_s * 1e3:g} ms, {worst.size} faults: {reached}; {downs}"
        )
    yield "\n".join(lines)


_GAP_COLUMNS = (
    Column("road", "Road"),
    Column("timers", "BFD"),
    Column("what", "Fault"),
    Column("load", "Load"),
    Column("n", "Faults", decimals=0),
    *(Column(f"{way}_p50", f"{way} p50", "ms", 0) for way in ("out", "in")),
    *(Column(key, title, "ms", 0) for key, title in (("p50", "worst p50"), ("p95", "p95"), ("p99", "p99"))),
    Column("max", "max", "ms", 0),
    Column("ratio", "p50 / detection", "1", 2),
    Column("p99_ratio", "p99 / detection", "1", 2),
    Column("quiet", "without stalls: faults", decimals=0),
    Column("quiet_p99", "p99", "ms", 0),
    Column("cpu", "CPUs used", "%", 0),
)


def _gaps(found: Found) -> Iterator[str]:
    yield "## Gaps"
    rows = [_gap_row(setting, rows) for setting, rows in sorted(found.faults.items()) if rows]
    yield markdown(Result(_GAP_COLUMNS, tuple(rows)))
    if worst := sorted(
        (row for row in rows if row["p99_ratio"] is not None), key=lambda row: -float(row["p99_ratio"] or 0)
    )[:_WORST]:
        yield "Farthest from the detection time at the 99th percentile: " + "; ".join(
            f"{row['road']} {row['timers']} {row['what']}, {row['load']}: {row['p99_ratio']:.2f} ×"
            for row in worst
        )
    if found.lacking:
        yield f"Planned and not measured yet (`{MAKE}` goes on): {', '.join(found.lacking)}."
    yield "Roads: " + "; ".join(f"*{road}*: {text}" for road, text in _ROADS.items()) + "."
    if any(setting.strands_groups for setting in found.faults):
        yield _STRANDED


def _gap_row(setting: Setting, rows: Sequence[Measured]) -> Record:
    gaps, quiet = measured(setting, rows), measured(setting, rows, with_stalls=False)
    p50, p95, p99 = _percentiles_ms(gaps.worst)
    return {
        "road": str(setting.road),
        "timers": setting.timers_text,
        "what": _WHATS[setting.what],
        "load": "every CPU" if setting.busy else "idle",
        "n": len(rows),
        "out_p50": _percentiles_ms(gaps.out)[0],
        "in_p50": _percentiles_ms(gaps.into)[0],
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "max": float(gaps.worst.max()) * 1e3 if gaps.worst.size else None,
        "ratio": _of_detection(p50, setting),
        "p99_ratio": _of_detection(p99, setting),
        "cpu": conditions.cpu_percent(rows),
        "quiet": quiet.worst.size,
        "quiet_p99": _percentiles_ms(quiet.worst)[2],
    }


_CHAIN_COLUMNS = (
    Column("step", "Step"),
    Column("road", "Road"),
    Column("load", "Load"),
    Column("n", "n", decimals=0),
    *(Column(key, key, "ms", 1) for key in ("p5", "p50", "p95", "p99")),
)


def _chain(found: Found) -> Iterator[str]:
    yield "## What bounds it"
    yield (
        "A silent fault is noticed when the detection time is over since the last packet of BFD, which was "
        "up to an interval old at the fault: so a gap may be shorter than the detection time, and what "
        "follows comes on top. Each failover taken apart, all timers and silent directions of a road "
        "together:"
    )
    rows = []
    for key, text in CHAIN.items():
        for road in Road:
            for busy in (False, True):
                values = [
                    row.chain[key]
                    for setting, rows_ in found.faults.items()
                    if setting.road is road and setting.busy is busy
                    for row in rows_
                    if key in row.chain
                ]
                if values:
                    shares = np.percentile(values, [5, 50, 95, 99]) * 1e3
                    rows.append(
                        {
                            "step": text,
                            "road": str(road),
                            "load": "every CPU" if busy else "idle",
                            "n": len(values),
                            **dict(zip(("p5", "p50", "p95", "p99"), shares.tolist(), strict=True)),
                        }
                    )
    yield markdown(Result(_CHAIN_COLUMNS, tuple(rows)))


def _compared(found: Found) -> Iterator[str]:
    agree = sum(each.agrees for each in found.compared)
    yield "## The twin"
    yield f"**When the twin agrees.** {RULE}"
    yield f"{agree} of {len(found.compared)} comparisons agree. The worst first:"
    yield markdown(judge.result(found.compared))
    yield "### Calibrated"
    yield "\n".join(
        f"- *{road}*: "
        + "; ".join(
            f"`{key}` {each.value * 1e3:.2f} ms"
            + ("" if each.p95 is None else f" (p95 {each.p95 * 1e3:.2f})")
            for key, each in calibration.values.items()
            if key.startswith(("control.", "fast.")) and each.source.startswith("measured")
        )
        for road, calibration in found.calibrations.items()
    )
    if calibration := found.calibrations.get(Road.REAL_TIME):
        yield _shipped(calibration)


def _shipped(calibration: Calibration) -> str:
    """How far the calibration that ships is from this one."""
    shipped = load_calibration().values
    ours_s, theirs_s = (
        values["control.hold_s"].value + values["control.route_s"].value
        for values in (calibration.values, shipped)
    )
    assumed_s = shipped["control.route_s"].value
    return (
        "A scenario that names no calibration has the one that ships. Its `control.route_s` is an "
        f"assumption, {assumed_s * 1e3:g} ms: from the end of the detection time until BGP has other routes "
        f"in the kernel of the host at the fault it takes {theirs_s * 1e3:.1f} ms, where "
        f"{ours_s * 1e3:.1f} were found here (*real-time*). `twinbed calibrate --pillar fabric` writes a "
        "file with what is found."
    )


def _of_detection(gap_ms: float | None, setting: Setting) -> float | None:
    """Not of a lost carrier, which nobody detects by BFD."""
    if gap_ms is None or setting.what is What.CARRIER:
        return None
    return gap_ms / 1e3 / setting.timers.detection_s


def _percentiles_ms(values: Floats) -> list[float | None]:
    if not values.size:
        return [None, None, None]
    return [float(each) * 1e3 for each in np.percentile(values, [50, 95, 99])]
