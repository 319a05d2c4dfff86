"""The total CPU that the requests of a fleet may sum to: cheaper than rival recommenders.

For: `rivals` and `ceiling`. Not for: sharing the CPU out among containers (cpu.py), nor rehearsals.

The requests together must cost less than two rivals would reserve: krr's percentile of use, and the VPA.
Money that is saved on memory may be spent on CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.advice import candidates, cpu
from control.advice.model import Usage
from control.allocator.model import Floats

_BELOW = 0.99
"""Share of the cheaper rival's cost that may be spent. The rest covers the rounding up of settings."""


@dataclass(frozen=True, slots=True)
class Rival:
    """The reservation of another recommender: CPU, cores, and memory, bytes, float64[R] each, without NaN."""

    cores: Floats
    bytes: Floats


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices of one core and of one byte for the same time."""

    core: float
    byte: float


def rivals(usage: Usage, risk: float) -> tuple[Rival, Rival]:
    """Return the reservations of krr's rule, with percentile 1 − risk, and of the VPA."""
    wide = cpu.percentile(usage, 1 - risk)
    krr, vpa = candidates.krr(usage), candidates.vpa(usage)
    size = np.where(np.isnan(krr.memory_request), usage.peak_bytes(), krr.memory_request)
    other = np.where(np.isnan(vpa.memory_request), size, vpa.memory_request)
    return Rival(wide, size), Rival(np.where(np.isnan(vpa.cpu_request), wide, vpa.cpu_request), other)


def ceiling(usage: Usage, risk: float, replicas: Floats, own_bytes: Floats, rates: Rates) -> float:
    """Return the total CPU, in cores, that the requests may sum to so that they cost less than each rival.

    replicas: float64[R], containers that reserve a row's request. own_bytes: float64[R], memory requests. The
    result is at least `_BELOW` times the CPU of the rival with the least CPU: expensive memory never reduces
    CPU.
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
