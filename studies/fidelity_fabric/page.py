"""docs/results/fidelity-fabric.md: gaps on the real fabric by road and timers, and the twin's error.

For: the page's text, from stored measurements. Not for: measuring (campaigns.py), judging
(lab.fabric.validate), nor the conditions and false downs (conditions.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from lab.ask.calibration import Calibration
from lab.fabric.calibrate.values import load_calibration
from lab.fabric.real.chain import CHAIN
from lab.fabric.real.settings import GROUPS_KEPT_S, Road, Setting, What
from lab.fabric.real.store import MeasuredFault, Watched
from lab.fabric.validate import judge
from lab.fabric.validate.judge import FLOWS, RATE_PER_S, RULE, STALL_S, Compared, Floats, measured
from lab.runs.formats import Column, Record, Result, markdown
from studies import harness
from studies.fidelity_fabric import conditions
from studies.judge import aim
from testbed.fabric.probe import THINNED
from twinbed.text import counted

_WORST = 4
MEDIAN_AIM, P99_AIM = 1.2, 2.0
"""Aims for the fast path's gaps, median and 99th percentile, in units of the detection time."""

_SHARES = (5, 50, 95, 99)
_ROADS = {
    Road.STOCK: "stock FRR",
    Road.REAL_TIME: "bfdd at real-time priority, no next-hop groups in the kernel",
    Road.FAST: "the same, with the fast path",
}
_WHATS = {
    What.BOTH: "silent, both ways",
    What.OUT: "silent, what the host sends",
    What.IN: "silent, what the host receives",
    What.CARRIER: "carrier",
}
_STRANDED = (
    "Stock FRR after a lost carrier: the kernel takes the dead uplink out of its next-hop groups, and zebra "
    "8.4 does not notice. A group that zebra still keeps when the uplink is back (it does for 180 s) serves "
    "again as it is, so the uplink stays unused for good. To measure one such fault after another, zebra "
    f"keeps groups for {GROUPS_KEPT_S} s here, and the cable stays dead until they are gone."
)


@dataclass(frozen=True, slots=True)
class Measurements:
    """All data of the page.

    faults: measured faults by setting.
    watched: times without a fault by setting.
    calibrations: calibration of the twin by road.
    compared: comparisons of the twin with the testbed.
    machine: facts about the machine.
    lacking: parts of the plan that are not measured yet.
    note: other work of the machine during the measurement.
    """

    faults: Mapping[Setting, Sequence[MeasuredFault]]
    watched: Mapping[Setting, Sequence[Watched]]
    calibrations: Mapping[Road, Calibration]
    compared: Sequence[Compared]
    machine: Mapping[str, object]
    lacking: Sequence[str] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Aim:
    """The fast path's gaps with one setting's timers, in units of the detection time, beside the aim."""

    setting: Setting
    median: float
    p99: float
    faults: int
    downs: int | None
    downs_text: str
    longest_stall_s: float

    @property
    def verdict(self) -> str:
        """The page's verdict. Where false downs were not counted, the gaps alone are judged."""
        reached = self.median <= MEDIAN_AIM and self.p99 <= P99_AIM
        return "reached by the gaps alone" if reached and self.downs != 0 else aim(reached)


def document(results: Measurements, applications: Sequence[str] = ()) -> str:
    """Return the page's text. applications: the paragraphs about unmodified applications."""
    aims = list(_aims(results))
    parts = [
        *_aim_part(aims),
        *_gaps(results),
        *conditions.side_by_side(results.faults),
        *conditions.downs(results.faults, results.watched),
        *_chain(results),
        *_compared(results),
        *applications,
    ]
    title = "Fabric: failover on the real kernel, and the twin's error"
    return harness.page("fidelity-fabric", title, _answer(results, aims), parts, _conditions(results))


def _answer(results: Measurements, aims: Sequence[_Aim]) -> Iterator[str]:
    def timers(verdict: str) -> str:
        return ", ".join(item.setting.timers_text for item in aims if item.verdict == verdict) or "no timers"

    agree = sum(comparison.agrees for comparison in results.compared)
    yield f"{agree} of {len(results.compared)} comparisons of the twin's gaps with the real fabric's agree."
    yield (
        f"On an idle machine the fast path reaches its aim at {timers(aim(True))} (BFD's multiplier × ms), "
        f"and its gaps alone do at {timers('reached by the gaps alone')}; it misses the aim at "
        f"{timers(aim(False))}."
    )
    shortest = min(aims, key=lambda item: item.setting.timers.detection_s, default=None)
    if shortest is not None and shortest.downs:
        stalls = shortest.longest_stall_s >= shortest.setting.timers.detection_s
        why = ", because the machine stalls for too long" if stalls else ""
        yield f"At the shortest timers sessions go down by themselves{why}."


def _aims(results: Measurements) -> Iterator[_Aim]:
    for setting, rows in sorted(results.faults.items()):
        worst = measured(setting, rows).worst / setting.timers.detection_s
        if setting.road is Road.FAST and setting.what is What.BOTH and not setting.busy and worst.size:
            median, p99 = np.percentile(worst, [50, 99])
            downs = conditions.false_downs(results.faults, results.watched, setting)
            stall_s = conditions.longest_stall_s(results.watched, setting)
            yield _Aim(setting, float(median), float(p99), worst.size, *downs, stall_s)


def _aim_part(aims: Sequence[_Aim]) -> Iterator[str]:
    yield "## The aim"
    yield (
        f"Median gap at most {MEDIAN_AIM:g} × BFD's detection time and 99th percentile at most {P99_AIM:g} "
        "×, with silent faults both ways on an idle machine, at timers without a false down."
    )
    yield "\n".join(
        f"- fast path, {item.setting.timers_text}: {item.median:.2f} × and {item.p99:.2f} × of "
        f"{item.setting.timers.detection_s * 1e3:g} ms, {counted(item.faults, 'fault')}: {item.verdict}; "
        f"{item.downs_text}"
        for item in aims
    )


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


def _gaps(results: Measurements) -> Iterator[str]:
    yield "## Gaps"
    rows = [_gap_row(setting, rows) for setting, rows in sorted(results.faults.items()) if rows]
    yield markdown(Result(_GAP_COLUMNS, tuple(rows))).strip()
    known = [row for row in rows if row["p99_ratio"] is not None]
    if worst := sorted(known, key=lambda row: -float(row["p99_ratio"] or 0))[:_WORST]:
        yield "Farthest from the detection time at the 99th percentile: " + "; ".join(
            f"{row['road']} {row['timers']} {row['what']}, {row['load']}: {row['p99_ratio']:.2f} ×"
            for row in worst
        )
    if results.lacking:
        lacking = ", ".join(results.lacking)
        yield f"Planned and not measured yet (`python -m studies fidelity-fabric` goes on): {lacking}."
    yield "Roads: " + "; ".join(f"*{road}*: {text}" for road, text in _ROADS.items()) + "."
    if any(setting.strands_groups for setting in results.faults):
        yield _STRANDED


def _gap_row(setting: Setting, rows: Sequence[MeasuredFault]) -> Record:
    gaps, quiet = measured(setting, rows), measured(setting, rows, with_stalls=False)
    p50, p95, p99 = _percentiles_ms(gaps.worst)
    return {
        "road": str(setting.road),
        "timers": setting.timers_text,
        "what": _WHATS[setting.what],
        "load": conditions.load_text(setting.busy),
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
    *(Column(f"p{share}", f"p{share}", "ms", 1) for share in _SHARES),
)


def _chain(results: Measurements) -> Iterator[str]:
    yield "## What bounds it"
    rows: list[Record] = []
    for key, text in CHAIN.items():
        for road, busy in ((road, busy) for road in Road for busy in (False, True)):
            values = [
                row.chain[key]
                for setting, faults in results.faults.items()
                if setting.road is road and setting.busy is busy
                for row in faults
                if key in row.chain
            ]
            if values:
                shares = conditions.shares_ms(values)
                load = conditions.load_text(busy)
                rows.append({"step": text, "road": str(road), "load": load, "n": len(values), **shares})
    yield markdown(Result(_CHAIN_COLUMNS, tuple(rows))).strip()
    yield (
        "These are the steps of each failover, all timers and silent directions of a road together. A silent "
        "fault is noticed when the detection time is over since the last packet of BFD. That packet was up "
        "to an interval old at the fault, so a gap may be shorter than the detection time; the steps come on "
        "top."
    )


def _compared(results: Measurements) -> Iterator[str]:
    yield "## The twin"
    yield f"**When the twin agrees.** {RULE}"
    yield "The worst first:"
    yield markdown(judge.result(results.compared)).strip()
    yield "### Calibrated"
    yield "\n".join(
        f"- *{road}*: "
        + "; ".join(
            f"`{key}` {value.value * 1e3:.2f} ms"
            + ("" if value.p95 is None else f" (p95 {value.p95 * 1e3:.2f})")
            for key, value in calibration.values.items()
            if key.startswith(("control.", "fast.")) and value.source.startswith("measured")
        )
        for road, calibration in results.calibrations.items()
    )
    if calibration := results.calibrations.get(Road.REAL_TIME):
        yield _shipped(calibration)


def _shipped(calibration: Calibration) -> str:
    """Return a paragraph on the difference between the calibration that ships and this one."""
    shipped = load_calibration().values
    ours_s, theirs_s = (
        values["control.hold_s"].value + values["control.route_s"].value
        for values in (calibration.values, shipped)
    )
    shipped_s = shipped["control.route_s"].value
    return (
        "A scenario that names no calibration uses the one that ships. Its `control.route_s`, measured in "
        f"earlier campaigns, is {shipped_s * 1e3:g} ms. From the end of the detection time until BGP has "
        f"other routes in the kernel of the host at the fault it takes {theirs_s * 1e3:.1f} ms with it, and "
        f"{ours_s * 1e3:.1f} ms as measured here (*real-time*). `twinbed calibrate --pillar fabric` writes a "
        "file with measured values."
    )


def _conditions(results: Measurements) -> Iterator[str]:
    rows = [row for rows in results.faults.values() for row in rows]
    dates = sorted({row.date[:10] for row in rows})
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    changed = [row.rules for row in rows if row.rules is not None]
    yield "\n".join(
        (
            f"- date: {datetime.now(UTC).date().isoformat()}; faults of {days}",
            f"- kernel: {results.machine['kernel']}",
            f"- CPU: {results.machine['cpus']} × {results.machine['cpu_model']}",
            f"- faults: {len(rows)}, on two hosts at two ToRs (namespaces, FRR, EVPN over VXLAN), each "
            "measured from its break until all routes were back",
            f"- tunnel rules: counted around {len(changed)} of them; {sum(map(bool, changed))} failovers "
            "changed one",
            f"- stalls: {sum(row.stall_s >= STALL_S for row in rows)} faults met a stall of the machine of "
            f"{STALL_S * 1e3:g} ms or more; they count unless a table says otherwise",
        )
    )
    yield (
        f"What is measured: {FLOWS} UDP flows of {RATE_PER_S:g} datagrams a second each way between two "
        "applications. The gap of a fault is that of the worst flow at its receiver, of both directions, so "
        f"it is known to two intervals, {2e3 / RATE_PER_S:g} ms. From the repair after a silent fault until "
        f"shortly before the next one a flow sends one datagram in {THINNED}. BFD's m×i is a multiplier m "
        "and an interval of i ms; the detection time is their product."
    )
    yield conditions.machine(rows)
    yield from _rules(results)
    if results.note:
        yield results.note


def _rules(results: Measurements) -> Iterator[str]:
    """Yield the reason if a failover changed a rule."""
    changed = [(setting, row) for setting, rows in results.faults.items() for row in rows if row.rules]
    if not changed:
        return
    downs = [row.downs for _, row in changed if row.downs is not None]
    timers = ", ".join(sorted({setting.timers_text for setting, _ in changed}))
    yield (
        f"Tunnel rules changed in {counted(len(changed), 'fault')}, at {timers}. In {sum(map(bool, downs))} "
        f"of the {len(downs)} of them in which downs were counted another session had gone down by itself. "
        "To BGP a host without a session is gone: its type-2 routes are withdrawn, zebra takes the "
        "forwarding entries out of the kernel, and the rules go with them. That is as it should be. While a "
        "VTEP only has no route its rules stay ([0015](../decisions/0015-rules-follow-dumps.md)), but an "
        "entry that was withdrawn may be an address that has moved, and a rule kept without a route would "
        "carry nothing."
    )


def _of_detection(gap_ms: float | None, setting: Setting) -> float | None:
    """Return the gap in units of the detection time; None for a lost carrier, which BFD does not detect."""
    if gap_ms is None or setting.what is What.CARRIER:
        return None
    return gap_ms / 1e3 / setting.timers.detection_s


def _percentiles_ms(values: Floats) -> list[float | None]:
    if not values.size:
        return [None, None, None]
    return [float(value) * 1e3 for value in np.percentile(values, [50, 95, 99])]
