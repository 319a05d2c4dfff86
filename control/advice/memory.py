"""Memory requests and limits: the recorded peak, and a margin learned from the history.

For: `sizes`. Not for: CPU.

An OOM kill loses work, and a few MiB cost little, so limits get a generous margin. The margin covers how far
a part of the history exceeded every part before it. Such rises are rare, and one split would miss most of
them, so halves, thirds, quarters, sixths and eighths of the history are compared, and the largest rise of
each container counts. The fleet's margin covers the rises of most containers. A container whose peak grew
gets twice that growth. The request, which is reserved, is the peak plus its growth, at most krr's buffer. The
margin above the request is not reserved, because containers rarely use it at the same time. The margin may be
wider if the history is shorter than a day.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from control.advice.model import DAY_S, MIB, Usage
from control.allocator.model import Floats
from control.settings import check, parameter

_PARTS = (2, 3, 4, 6, 8)
"""Numbers of equal parts into which the history is cut to look for rises of the peak."""


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Parameters of the margin."""

    covered: float = parameter(
        0.98, unit="share", low=0.5, high=1.0, why="share of the fleet's growths that the margin covers"
    )
    least_margin: float = parameter(
        0.5, unit="share of the peak", low=0.0, why="a history that was quiet so far says little of rises"
    )
    most_margin: float = parameter(
        1.0, unit="share of the peak", low=0.0, why="a limit of twice the peak still ends a runaway"
    )
    most_reserved: float = parameter(
        0.15, unit="share of the peak", low=0.0, why="krr's buffer: growth beyond it may use the limit"
    )
    short_factor: float = parameter(
        2.0, unit="times most_margin", low=1.0, why="a history shorter than a day shows few rises"
    )
    least_bytes: float = parameter(
        16.0 * MIB, unit="byte", low=0.0, why="what a shell or a probe needs beside a small container"
    )
    oom_factor: float = parameter(
        1.5, unit="times the limit", low=1.0, why="a container that was killed for memory needed more"
    )

    def __post_init__(self) -> None:
        check("advice.memory", self)


DEFAULT = MemorySettings()


def sizes(usage: Usage, settings: MemorySettings = DEFAULT) -> tuple[Floats, Floats]:
    """Return (requests, limits), float64[R] bytes; NaN where memory is unknown. Neither is below the peak."""
    peak = usage.peak_bytes()
    grown = growth(usage)
    margin = fleet_margin(usage, settings)
    request = peak + np.minimum(grown, settings.most_reserved * peak)
    limit = np.maximum(peak * (1 + margin), peak + 2 * grown)
    limit = np.maximum(limit, peak + settings.least_bytes)
    killed = usage.oom_limit_bytes()
    request, limit = np.maximum(request, killed), np.maximum(limit, killed * settings.oom_factor)
    unknown = ~usage.memory_known
    request[unknown] = limit[unknown] = np.nan
    return request, np.maximum(limit, request)


def growth(usage: Usage) -> Floats:
    """Return how far the peak of the second half exceeds that of the first half, bytes, float64[R], ≥ 0.

    The growth is 0 for a row without members in the first half.
    """
    half = usage.cores.shape[1] // 2
    before = usage.peak_bytes(0, half)
    return np.where(before > 0, np.maximum(usage.peak_bytes(half) - before, 0.0), 0.0)


def fleet_margin(usage: Usage, settings: MemorySettings = DEFAULT) -> float:
    """Return the margin, a share of the peak, that would have covered most rows' past rises."""
    length, leap = usage.cores.shape[1], np.full(usage.rows, np.nan)
    for parts in _PARTS:
        edges = np.linspace(0, length, parts + 1).astype(np.int64)
        peaks = [usage.peak_bytes(begin, end) for begin, end in pairwise(edges.tolist())]
        so_far = peaks[0]
        for peak in peaks[1:]:
            there = so_far > 0
            leap[there] = np.fmax(leap[there], peak[there] / so_far[there] - 1)
            so_far = np.maximum(so_far, peak)
    leap = leap[~np.isnan(leap)]
    share = float(np.quantile(leap, settings.covered)) if leap.size else 0.0
    short = usage.cores.shape[1] * usage.interval_s < DAY_S
    most = settings.most_margin * (settings.short_factor if short else 1.0)
    return min(max(share, settings.least_margin), most)
