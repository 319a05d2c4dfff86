"""Measures on three roads how fast silent faults are detected, and how often sessions go down without one.

For: docs/results/detection.md: stock FRR, the fast path, and the fast path with our own data plane of BFD,
side by side in one run. Not for: the page of failover (studies.fidelity_fabric). Every fabric of a timer
is up the whole time; their faults take turns in a drawn order, so that stalls meet all of them alike.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from control.fabric import BfdState
from lab.fabric.calibrate.values import fabric, load_calibration
from lab.fabric.real.bench import Bench, bench
from lab.fabric.real.campaign import fault, told
from lab.fabric.real.settings import Road, Setting
from lab.fabric.validate.judge import simulated
from studies.fabric import many_routes, still
from studies.fabric.causes import CAUSES, STALL_FLOOR_S, bound_per_h, cause
from studies.fabric.data_planes import sessions_table, stopped, stops_table
from studies.harness import Asked, dash, page, publish, say, table
from testbed.fabric import sentinel
from testbed.fabric.witness import BfdSeen
from twinbed import ScenarioError

ROADS = (Road.STOCK, Road.FAST, Road.PLANE)
TIMERS = ("3x10", "3x20")
_STILL = {f"still-{timers}": timers for timers in still.MOST_PER_H}
OTHERS = ("5x50", "stops", "sessions", *_STILL, "routes")
_SHOWN = {Road.STOCK: "stock FRR", Road.FAST: "fast path", Road.PLANE: "fast path and our data plane"}
MINUTES = 4.0
"""Time without --minutes; 4 minutes gave 43 faults a road."""
_LEAST_P95 = 100
"""Least number of faults for a p95: five lie above it."""
_OTHERS_SHARE = 0.15
_SEED = 22
_NEXT = "\n\n## "
_ROUTES = (
    f"## 5×50 ms with {many_routes.COUNT:,} routes in every bgpd: gaps at silent faults, ms; false downs"
)
_APART = (*map(still.heading, still.MOST_PER_H), _ROUTES)
"""Headings of the sections that are measured separately, with --only."""

_ELSEWHERE = "during a fault elsewhere"


@dataclass
class Seen:
    """The observations of one road.

    gaps_s, stalls_s: gap of the worst flow, s, and longest stall of the machine, s, in each fault.
    down: number of sessions that went down without a fault of their own, by cause.
    session_s: watched time of all sessions together, s.
    """

    setting: Setting
    gaps_s: list[float] = field(default_factory=list)
    stalls_s: list[float] = field(default_factory=list)
    down: Counter[str] = field(default_factory=Counter)
    session_s: float = 0.0


AIMS_S = {"3x10": (0.045, 0.120), "3x20": (0.075, 0.150)}
"""Aims of our data plane: median and p99 of the gaps, s."""


def make(asked: Asked) -> int:
    """Measure the parts and write the page. With asked.only, print the tables of these parts; `still-TIMERS`
    and `routes` are added to the existing page. Raises ScenarioError for an unknown part."""
    parts = asked.only or (*TIMERS, "stops", "sessions")
    for part in parts:
        if part not in (*TIMERS, *OTHERS):
            raise ScenarioError(f"detection: no part {part}; take {', '.join((*TIMERS, *OTHERS))}")
    minutes = min(asked.minutes, 60.0) if asked.minutes != float("inf") else MINUTES
    made = asked.out / "detection.md"
    for part in (*_STILL, "routes"):
        if part in parts:
            if not made.exists():
                raise ScenarioError(f"detection: {made} is not there; make the page first, without --only")
            lasts_s = 60 * minutes
            added = still.section(_STILL[part], lasts_s, say) if part in _STILL else _routes(lasts_s, say)
            publish("detection", with_section(made.read_text(), added), asked.out)
    timers = [part for part in parts if "x" in part and part not in _STILL]
    load = Path("/proc/loadavg").read_text().split()[0]
    share_s = 60 * minutes * _OTHERS_SHARE
    seen = {part: _faults(part, (60 * minutes - 2 * share_s) / len(timers)) for part in timers}
    sections = [text for part, roads in seen.items() for text in section(part, roads)]
    if "stops" in parts:
        sections += ["## Stops of one end's data plane, 3×10 ms", stops_table(stopped(share_s, say))]
    if "sessions" in parts:
        sections += ["## Sessions of one data plane, 3×10 ms", sessions_table(share_s, say)]
    if asked.only:
        print(*sections, sep="\n\n")
    else:
        kept = kept_sections(made.read_text(), _APART) if made.exists() else []
        publish("detection", told_whole(seen, [*sections, *kept], load), asked.out)
    return 0


def with_section(text: str, section: Sequence[str]) -> str:
    """Return a page with a section, whose first line is its heading. It replaces the section with the same
    heading; if there is none, it stands before the conditions."""
    parts = [part for part in text.split(_NEXT) if not part.startswith(section[0].removeprefix("## ") + "\n")]
    at = next(number for number, part in enumerate(parts) if part.startswith("Conditions\n"))
    parts.insert(at, "\n\n".join(section).removeprefix("## "))
    return _NEXT.join(parts)


def kept_sections(text: str, headings: Sequence[str]) -> list[str]:
    """Return the sections of a page that have these headings."""
    parts = text.split(_NEXT)[1:]
    return [f"## {part}" for part in parts if f"## {part.splitlines()[0]}" in headings]


def _routes(lasts_s: float, say: Callable[[str], None]) -> list[str]:
    """Return the section of faults while every bgpd has many routes."""
    say(f"{many_routes.COUNT:,} routes in every bgpd")
    return [_ROUTES, *section("5x50", _faults("5x50", lasts_s, many_routes.COUNT))[1:]]


def told_whole(seen: Mapping[str, Sequence[Seen]], sections: Sequence[str], load: str) -> str:
    """Return the page. seen: observations of each road, by timers. load: the machine's load at the start."""
    return page("detection", "Detection of silent faults", list(_answer(seen)), sections, _conditions(load))


def _answer(seen: Mapping[str, Sequence[Seen]]) -> Iterable[str]:
    for timers, roads in seen.items():
        by_road = {row.setting.road: row for row in roads}
        ours, stock = by_road[Road.PLANE], by_road[Road.STOCK]
        gaps, theirs = (np.quantile(row.gaps_s, (0.5, 0.99)) for row in (ours, stock))
        median_s, p99_s = AIMS_S[timers]
        hours, count = ours.session_s / 3600, ours.down.total()
        bound = bound_per_h(count, hours)
        shown = timers.replace("x", "×")
        quick = gaps[0] <= median_s and gaps[1] <= p99_s
        yield (
            f"At {shown} ms (BFD's multiplier × interval) the fast path with our data plane of BFD leaves a "
            f"median gap of {gaps[0] * 1e3:.0f} ms and a p99 of {gaps[1] * 1e3:.0f} ms (aims: "
            f"{median_s * 1e3:.0f} and {p99_s * 1e3:.0f} ms, {'reached' if quick else 'missed'}); stock FRR "
            f"leaves {theirs[0] * 1e3:.0f} and {theirs[1] * 1e3:.0f} ms. In {hours:.2f} session-hours "
            f"{count} of our sessions went down without a fault, so the rate is at most {bound:.1f} an hour."
        )


def _conditions(load: str) -> list[str]:
    return [
        "The three fabrics of a timer are up the whole time, on one machine, and their faults take turns in "
        "a drawn order. A fault silences one uplink both ways. A gap is that of the worst of 16 flows. A "
        "session went down without a fault if its own fabric had none; the sections with many sessions and "
        "no fault have longer times. A stall is a CPU that stood still for "
        f"at least {STALL_FLOOR_S * 1e3:.0f} ms. The bound is the exact one-sided 95 % limit of a Poisson "
        "rate.",
        "The last row is the twin's fast path on a machine that never stands still. A stop is a SIGSTOP of "
        "the worker of one end: its peer gives up after 30 ms of silence, as it must, and the stopped end "
        "does not take its own freeze for silence.",
        f"Load of the machine at the beginning: {load}.",
    ]


def _faults(timers: str, lasts_s: float, routes: int = 0) -> list[Seen]:
    """Break links of three fabrics in turns for lasts_s seconds. routes: additional routes in every bgpd."""
    multiplier, interval_ms = map(int, timers.split("x"))
    draw = random.Random(_SEED)
    with ExitStack() as stack:
        stalls = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinbed-"))) / "stalls.txt"
        stack.enter_context(sentinel.sentinel(stalls, STALL_FLOOR_S))
        roads: list[tuple[Seen, Bench]] = []
        for road in ROADS:
            setting = Setting(road, multiplier, interval_ms)
            say(f"{setting.key}: raising its fabric")
            running = stack.enter_context(bench(setting, f"detect-{road}", stalls=stalls))
            roads.append((Seen(setting), running))
        for _, running in roads if routes else ():
            many_routes.load(running.fabric, routes)
        began = {running.fabric.plan.name: time.monotonic() for _, running in roads}
        for _, running in roads:
            running.new_downs()
            running.witness.take()
        # The time for faults begins after the fabrics are up, which takes longer on a busy machine.
        number, end_s = 0, time.monotonic() + lasts_s
        while time.monotonic() < end_s:
            for seen, running in draw.sample(roads, len(roads)):
                _quiet(seen, running, began, stalls)
                row = fault(running, seen.setting, number)
                seen.gaps_s.append(max(row.out_s, row.in_s))
                seen.stalls_s.append(row.stall_s)
                seen.down[_ELSEWHERE] += row.downs or 0
                began[running.fabric.plan.name] = time.monotonic()
                running.witness.take()
                say(told(seen.setting, number + 1, row))
            number += 1
        for seen, running in roads:
            _quiet(seen, running, began, stalls)
    return [seen for seen, _ in roads]


def _quiet(seen: Seen, running: Bench, began: dict[str, float], stalls: Path) -> None:
    """Count the sessions that went down in one fabric while links of the other fabrics were broken, by
    cause."""
    sessions = sum(len(host.uplinks) for host in running.fabric.hosts)
    seen.session_s += sessions * (time.monotonic() - began[running.fabric.plan.name])
    count = sum(running.new_downs().values())
    at_ns = went_down(event for event in running.witness.take() if isinstance(event, BfdSeen))
    causes = [cause(sentinel.read(stalls), when, seen.setting.timers.detection_s) for when in at_ns[:count]]
    seen.down.update(causes)
    # A session that bfdd counted as down, but for which no packet was seen, has no time and therefore no
    # cause.
    seen.down[CAUSES[2]] += count - len(causes)


def went_down(events: Iterable[BfdSeen]) -> list[int]:
    """Return the times at which sessions went down, ns: the first packet of either end with that state."""
    up: dict[tuple[int, int], bool] = {}
    times = []
    for event in sorted(events, key=lambda event: event.at_ns):
        link = event.host, event.uplink
        if event.state is BfdState.DOWN and up.get(link, True):
            times.append(event.at_ns)
        if event.state is not BfdState.INIT:
            up[link] = event.state is BfdState.UP
    return times


def section(timers: str, roads: Sequence[Seen]) -> list[str]:
    """Return the heading and the table of the roads' observations."""
    rows = []
    for seen in roads:
        gaps_ms, stalls = np.array(seen.gaps_s) * 1e3, np.array(seen.stalls_s)
        hours, count = seen.session_s / 3600, seen.down.total()
        rows.append(
            (
                _SHOWN[seen.setting.road],
                len(gaps_ms),
                *_quantiles(gaps_ms),
                *_quantiles(gaps_ms[stalls == 0.0]),
                dash(hours, ".2f"),
                count,
                dash(count / hours if hours else float("nan"), ".1f"),
                dash(bound_per_h(count, hours), ".1f"),
                ", ".join(f"{number} {why}" for why, number in seen.down.items() if number) or "–",
            )
        )
    twin = _without_stalls(roads[0].setting) * 1e3
    figures = _quantiles(twin)
    rows.append(("the twin's fast path, without stalls", len(twin), *figures, *figures, *"–––––"))
    kinds = [f"{part}{when}" for when in ("", " without a stall") for part in ("median", "p95", "p99")]
    header = ("road", "faults", *kinds)
    shown = timers.replace("x", "×")
    return [
        f"## {shown} ms: gaps of the worst of 16 flows at silent faults, ms; false downs",
        table((*header, "session-hours", "down", "per hour", "at most (95 %)", "causes"), rows),
    ]


def _without_stalls(setting: Setting) -> np.ndarray:
    """Return the gaps of the twin's fast path on a machine that never stands still, s."""
    control = fabric(load_calibration(), {"stalls": {"per_s": 0.0}}, fast_path=True).control
    return simulated(replace(setting, road=Road.FAST), control, _SEED).worst


def _quantiles(values: np.ndarray) -> tuple[str, str, str]:
    """Return median, p95 and p99; p95 only if there are enough values for it."""
    if not len(values):
        return "–", "–", "–"
    median, p95, p99 = (f"{value:.0f}" for value in np.quantile(values, (0.5, 0.95, 0.99)))
    return median, p95 if len(values) >= _LEAST_P95 else "–", p99
