"""How much CPU all requests of a fleet may get together: below what rivals cost, and no more than helps.

For: `rivals`, `ceiling` and `needed`. Not for: sharing the CPU out among containers (cpu.py), nor rehearsing.

All requests together cost less than what a percentile of use, as krr takes it, and the VPA would reserve.
What memory saves, CPU may spend. Earlier splits of the history tell how much of that money is needed. At a
split, requests are made of what came before and rehearsed on what came after. They must leave no more work
late than either rival's do. The split that needs most counts. If no amount is enough, all of it is spent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from control.advice import candidates, cpu
from control.advice.model import Usage
from control.allocator.model import Floats

SPLITS = (0.5, 0.75)
"""Ends of what a split of the history is made from, shares of its length. One split sees one leap of load."""

HALVINGS = 5
"""Steps of a search for the least part of the money: it is known to a 64th of all of it."""

_BELOW = 0.99
"""Part of the cheaper rival's money that may be spent; rounding up settings takes a little more."""

_LEAST = 0.5
"""Least part of the money that is tried."""


@dataclass(frozen=True, slots=True)
class Rival:
    """What another recommender would reserve, float64[R] each, without gaps: cores and bytes."""

    cores: Floats
    bytes: Floats


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices of a core and of a byte for the same time."""

    core: float
    byte: float


def rivals(usage: Usage, risk: float) -> tuple[Rival, Rival]:
    """Return what krr's rule with the percentile 1 − risk, and the VPA, would reserve."""
    wide = cpu.percentile(usage, 1 - risk)
    krr, vpa = candidates.krr(usage), candidates.vpa(usage)
    size = np.where(np.isnan(krr.memory_request), usage.peak_bytes(), krr.memory_request)
    other = np.where(np.isnan(vpa.memory_request), size, vpa.memory_request)
    return Rival(wide, size), Rival(np.where(np.isnan(vpa.cpu_request), wide, vpa.cpu_request), other)


def ceiling(usage: Usage, risk: float, replicas: Floats, own_bytes: Floats, rates: Rates) -> float:
    """Return the CPU, in cores, that all requests may have together, so that they cost less than any rival.

    replicas: float64[R], how often a row's request is reserved. own_bytes: float64[R], memory requests. It is
    never less than nearly all CPU of the rival with least CPU: what memory costs more is not taken from CPU.
    """

    def memory(size: Floats) -> float:
        return float((np.where(usage.memory_known, size, 0.0) * replicas).sum()) * rates.byte

    others = rivals(usage, risk)
    cores = [float((rival.cores * replicas).sum()) for rival in others]
    least = _BELOW * min(cores)
    if not rates.core > 0:
        return least
    money = [own * rates.core + memory(rival.bytes) for own, rival in zip(cores, others, strict=True)]
    return max((_BELOW * min(money) - memory(own_bytes)) / rates.core, least)


def needed(
    divide: Callable[[float], Floats], late: Callable[[Floats], float], most: float, aim: float
) -> float:
    """Return the least part of `most` cores at which no more work is late than `aim`; 1 if none is enough.

    divide: all cores → requests, float64[R]. late: requests → work late after the split. It assumes that more
    cores leave less work late.
    """
    if late(divide(most)) > aim:
        return 1.0
    low, high = _LEAST, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if late(divide(middle * most)) <= aim else (middle, high)
    return high
