"""Writes the events of a run as a timeline for the viewers of Perfetto and Chrome.

For: counters, spans and moments on named tracks, bounded in number, as Trace Event JSON. Not for: the
contents of tracks (`Kind.timeline`). Source: "Trace Event Format" (Google, 2016), "JSON Object Format"; times
are in microseconds.
"""

from __future__ import annotations

import gzip
import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinbed.writing import write_bytes

Floats = NDArray[np.float64]

MOST_EVENTS = 300_000
"""Most events of a file, about 40 MB of JSON: Perfetto opens that in seconds."""
_MOST_LANES = 200
"""Most rows of a track for spans that overlap in time."""
_US = 1e6


@dataclass(frozen=True, slots=True)
class Counter:
    """A quantity over time.

    process: name of the group of tracks.
    name, unit: name and unit of the quantity.
    at_s: time of each change, s, float64[n].
    value: value from then until the next change, float64[n]; NaN leaves the quantity unchanged.
    """

    process: str
    name: str
    unit: str
    at_s: Floats
    value: Floats


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of time.

    process, track: group and track in which they are drawn; spans of a track may overlap.
    name: name of every span.
    begin_s, end_s: start and end, s, float64[n], end ≥ begin.
    about: further columns that the viewer shows, [n] each.
    """

    process: str
    track: str
    name: Sequence[str]
    begin_s: Floats
    end_s: Floats
    about: Mapping[str, Sequence[str | int | float]]


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments. process: track in which they are drawn; name: name of every moment; at_s: times, s, [n]."""

    process: str
    name: Sequence[str]
    at_s: Floats


Tracks = Sequence[Counter | Spans | Moments]


@dataclass(frozen=True, slots=True)
class Written:
    """Contents of a written file.

    events: number of events in it.
    left_out: number of events for which it had no room.
    """

    events: int
    left_out: int


def write(tracks: Tracks, path: Path, about: dict[str, str]) -> Written:
    """Write the tracks to a file, compressed if its name ends in .gz. about: facts of the run.

    Each track gets an equal part of MOST_EVENTS. A counter with too many changes is divided into groups of
    equally many values, of which the least and the greatest are kept. If there are too many spans, the
    longest are kept. Raises as `write_bytes`.
    """
    processes = {name: number for number, name in enumerate(dict.fromkeys(t.process for t in tracks), 1)}
    events: list[dict[str, Any]] = [
        _named("process_name", number, 0, name) for name, number in processes.items()
    ]
    left_out, most = 0, MOST_EVENTS // max(1, len(tracks))
    lanes = 1
    for track in tracks:
        pid = processes[track.process]
        match track:
            case Counter():
                kept, lost = _changes(track, most)
                events += (_event("C", track.name, pid, 0, at, args={track.unit: v}) for at, v in kept)
            case Spans():
                drawn, lost, used = _spans(track, most, pid, lanes)
                events += drawn
                lanes += used
            case Moments():
                chosen = np.linspace(0, len(track.at_s) - 1, min(most, len(track.at_s))).astype(np.int64)
                lost = len(track.at_s) - len(chosen)
                at_s = track.at_s.tolist()
                events += (_event("i", track.name[row], pid, 0, at_s[row], s="p") for row in chosen.tolist())
        left_out += lost
    facts = about | {"events left out": str(left_out)}
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": facts}, allow_nan=False)
    content = gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode()
    write_bytes(path, content)
    return Written(len(events), left_out)


def _event(phase: str, name: str, pid: int, tid: int, at_s: float, **more: object) -> dict[str, Any]:
    return {"ph": phase, "name": name, "pid": pid, "tid": tid, "ts": at_s * _US, **more}


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _changes(counter: Counter, most: int) -> tuple[list[tuple[float, float]], int]:
    """Return time and value of each change, at most `most`, and how many changes were left out."""
    known = np.isfinite(counter.value)
    at_s, value = counter.at_s[known], counter.value[known]
    changed = np.append(True, value[1:] != value[:-1]) if len(value) else np.empty(0, np.bool_)
    at_s, value = at_s[changed], value[changed]
    kept = _extremes(value, most)
    pairs = list(zip(at_s[kept].tolist(), value[kept].tolist(), strict=True))
    return pairs, len(value) - len(kept)


def _extremes(value: Floats, most: int) -> NDArray[np.int64]:
    """Return the rows, in order, of the least and the greatest value of each group of equally many values."""
    if len(value) <= most:
        return np.arange(len(value))
    rows: set[int] = set()
    for part in np.array_split(np.arange(len(value)), max(1, most // 2)):
        rows |= {int(part[np.argmin(value[part])]), int(part[np.argmax(value[part])])}
    return np.array(sorted(rows), np.int64)


def _spans(spans: Spans, most: int, pid: int, first: int) -> tuple[list[dict[str, Any]], int, int]:
    """Return the events of the spans and of the names of their rows, the number of spans left out, and the
    number of rows used, which are numbered from `first`."""
    longest = np.argsort(spans.begin_s - spans.end_s, kind="stable")[:most]
    order = longest[np.argsort(spans.begin_s[longest], kind="stable")]
    events: list[dict[str, Any]] = []
    used = 0
    for row, lane in _in_lanes(spans, order):
        used = max(used, lane + 1)
        begin, end = float(spans.begin_s[row]), float(spans.end_s[row])
        about = {key: column[row] for key, column in spans.about.items()}
        lasts_us = (end - begin) * _US
        events.append(_event("X", spans.name[row], pid, first + lane, begin, dur=lasts_us, args=about))
    lost = len(spans.begin_s) - len(events)
    events += [
        _named("thread_name", pid, first + lane, spans.track if used == 1 else f"{spans.track} {lane + 1}")
        for lane in range(used)
    ]
    return events, lost, used


def _in_lanes(spans: Spans, order: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield each row in order of its begin with the lowest free lane; none if all are taken.

    A viewer shows overlapping spans of one row as nested calls, which these are not.
    """
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    lanes = 0
    for row in order.tolist():
        begin, end = float(spans.begin_s[row]), float(spans.end_s[row])
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            if lanes == _MOST_LANES:
                continue
            heapq.heappush(free, lanes)
            lanes += 1
        lane = heapq.heappop(free)
        heapq.heappush(busy, (end, lane))
        yield row, lane
