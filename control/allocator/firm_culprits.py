"""Finds the containers that make an application slow: two figures of a window's spans, and a classifier.

For: relative importance and congestion intensity of the owners on critical paths, and the linear support
vector machine over them. Not for: critical paths (control.paths), what a culprit receives (firm_agent.py),
nor training (studies.firm).

Source: Qiu et al., "FIRM: An Intelligent Fine-grained Resource Management Framework for SLO-Oriented
Microservices", OSDI 2020, Algorithm 2. These are our readings: congestion intensity enters the classifier as
its logarithm, because it spans decades, and an owner of too few requests, or whose times do not vary, is no
culprit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Flags, Floats
from control.paths import Paths, Spans

FEWEST_REQUESTS = 10
"""Requests through an owner below which it is no culprit: our choice, because a p99 of fewer means
nothing."""


@dataclass(frozen=True, slots=True)
class Intensity:
    """Figures of owners on critical paths, owners ascending. Owners without figures are left out.

    owner: int64[k]. importance: float64[k] in [−1, 1], correlation of the owner's time with the path's time
    over the requests through it. congestion: float64[k] ≥ 1, p99 over p50 of the owner's time.
    """

    owner: NDArray[np.int64]
    importance: Floats
    congestion: Floats


@dataclass(frozen=True, slots=True)
class Separator:
    """A linear classifier: an owner is a culprit where importance · RI + congestion · ln CI + bias > 0."""

    importance: float
    congestion: float
    bias: float

    def culprits(self, figures: Intensity) -> Flags:
        """Return the owners that are culprits, bool[k]."""
        score = self.importance * figures.importance + self.congestion * np.log(figures.congestion)
        return np.asarray(score + self.bias > 0.0, np.bool_)


def intensity(spans: Spans, paths: Paths) -> Intensity:
    """Return relative importance and congestion intensity of the owners on the critical paths, [k].

    An owner's time in a request is the time of its spans on the path, less that of calls on the path. Owners
    with fewer than FEWEST_REQUESTS requests, or with times that do not vary, are left out.
    """
    on, whole = np.flatnonzero(paths.on), spans.parent < 0
    requests, row = np.unique(spans.request[whole], return_index=True)
    total = (spans.end_s - spans.start_s)[whole][row]
    owners, place = np.unique(spans.owner[on], return_inverse=True)
    at = np.searchsorted(requests, spans.request[on])
    pair, inverse = np.unique(place * np.int64(max(len(requests), 1)) + at, return_inverse=True)
    time = np.bincount(inverse, weights=paths.own_s[on], minlength=len(pair))
    ends = np.searchsorted(pair, np.arange(len(owners) + 1) * np.int64(max(len(requests), 1)))
    rows: list[tuple[int, float, float]] = []
    for number, owner in enumerate(owners.tolist()):
        part = slice(int(ends[number]), int(ends[number + 1]))
        own, path = time[part], total[pair[part] % len(requests)]
        if len(own) < FEWEST_REQUESTS:
            continue
        median, tail = np.quantile(own, (0.5, 0.99))
        if own.std() <= 0.0 or path.std() <= 0.0 or median <= 0.0:
            continue
        related = float(np.clip(np.corrcoef(own, path)[0, 1], -1.0, 1.0))
        rows.append((owner, related, float(tail / median)))
    owner_of, importance, congestion = zip(*rows, strict=True) if rows else ((), (), ())
    return Intensity(np.array(owner_of, np.int64), np.array(importance), np.array(congestion))
