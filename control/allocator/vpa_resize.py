"""Outcomes of an in-place resize: the node accepts it, has no room for now, or is too small for it.

For: the updater's next step with a container, and which resizes fit their nodes. Not for: which containers
are worth an update, nor limits (vpa.py).

Source: kubernetes/autoscaler, vertical-pod-autoscaler/pkg/updater/restriction/pods_inplace_restriction.go
(CanInPlaceUpdate, CanEvictInPlacingPod) and pkg/updater/priority/update_priority_calculator.go
(hasLowerResourceRecommendation); KEP-1287 for the kubelet's answers: Deferred while a node has no room,
Infeasible if it never will have. A node's room is its cores less the CPU requests on it.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Flags, Floats, Slots

IN_PLACE_MODES = ("in_place_or_recreate", "in_place")
MODES = ("off", "initial", "recreate", *IN_PLACE_MODES)
"""updateMode. InPlaceOrRecreate is alpha in VPA 1.4, beta in 1.5 and stable in 1.6
(pkg/features/features.go). InPlace is alpha. Auto means Recreate and is deprecated."""


class Step(IntEnum):
    """The updater's verdict on a container that it would resize in place."""

    APPROVED = 0
    DEFERRED = 1
    EVICT = 2
    INFEASIBLE = 3


def next_step(
    mode: str, deferred: Flags, infeasible: Flags, waited_s: Floats, patience_s: float
) -> NDArray[np.uint8]:
    """Return a `Step` for each container, uint8[n].

    deferred, infeasible: the kubelet's answer to the last resize (neither: it was made). waited_s: time since
    that resize was asked for, s. patience_s: wait before a deferred resize may become an eviction, s.
    """
    may_evict = mode == "in_place_or_recreate"
    late = deferred & (waited_s > patience_s)
    steps = np.where(deferred, Step.DEFERRED, Step.APPROVED)
    steps = np.where(late & may_evict, Step.EVICT, steps)
    steps = np.where(infeasible, Step.EVICT if may_evict else Step.INFEASIBLE, steps)
    return np.asarray(steps, np.uint8)


def worth_another_try(infeasible: Floats, target: Floats) -> Flags:
    """Return whether a resource's recommendation is lower than it was when infeasible, bool[n].

    infeasible, target: float64[2, n]; NaN: the resize was never infeasible, or no recommendation is known.
    """
    return np.asarray((target < infeasible).any(axis=0), np.bool_)


def fitting(host: Slots, room: Floats, more: Floats) -> Flags:
    """Return the CPU requests that may grow, in order, bool[n].

    host: int64[n], each request's node. room: float64[n], cores left on this node before any request grows.
    more: float64[n], cores by which the request would grow; a request that shrinks (≤ 0) is always allowed.
    """
    grown = np.maximum(more, 0.0)
    order = np.argsort(host, kind="stable")
    sums = np.cumsum(grown[order])
    first = np.searchsorted(host[order], host[order], side="left")
    so_far = sums - (sums[first] - grown[order][first])
    fits = np.empty(len(host), np.bool_)
    fits[order] = so_far <= room[order] * (1 + _ROUNDING) + _ROUNDING
    return np.asarray(fits | (more <= 0), np.bool_)


_ROUNDING = 1e-9
"""Share by which sums of requests may exceed a node's cores: the order of adding changes a sum by as much."""
