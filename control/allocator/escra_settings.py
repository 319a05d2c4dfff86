"""Escra's parameters, each with its unit, its default and the reason for it.

For: EscraSettings. Not for: using them. Source: Escra (ICDCS 2022), called the source here.
"""

from __future__ import annotations

from dataclasses import dataclass

from control.allocator.model import PAGE_BYTES
from control.allocator.windows import MAX_LENGTH
from control.settings import check, parameter
from twinbed import ScenarioError

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class EscraSettings:
    """Parameters of the CPU rule (first part) and of the memory rule (second part).

    Raises ScenarioError naming the parameter for a value outside its range.
    """

    upsilon: float = parameter(
        20.0,
        unit="percent of the application's unallocated pool",
        low=0.0,
        high=100.0,
        why="the source's Υ for microservices and batch (35 for short-lived serverless pods); as a bare "
        "multiplier it would give the whole pool to the first claimant",
    )
    kappa: float = parameter(
        0.8, unit="share of the mean unused runtime", low=0.0, high=1.0, why="the source's κ"
    )
    gamma: float = parameter(
        0.2,
        unit="cores",
        low=0.0,
        why="the source's γ, read in cores: read in ms or as a share of the quota, it would throttle 17–35 "
        "% of all periods and cycle under a constant load",
    )
    window: int = parameter(
        5,
        unit="periods",
        low=1,
        high=MAX_LENGTH,
        why="n: trials used 5 to 10; the shortest of these forgets soonest (half a second at 100 ms) and "
        "costs the least memory",
    )
    stale_mean_guard: bool = parameter(
        True,
        unit="on/off",
        why="bounds a cut by κ · the last period's unused runtime: without it the window still counts "
        "runtime that earlier cuts took, and a step of use from 200 to 20 ms cuts 200 → 56 → 1 ms",
    )
    min_change: float = parameter(
        0.01,
        unit="share of the container's quota",
        low=0.0,
        high=1.0,
        why="smaller changes are not made, because every quota write refills the container's runtime; it is"
        " relative, because 1 ms means much at the kernel's minimum and nothing at eight cores",
    )
    initial_memory: float = parameter(
        0.8,
        unit="share of the application's memory limit",
        low=0.0,
        high=1.0,
        why="σ: a fifth stays in the pool, enough for several containers to grow before the first reclaim",
    )
    grant_bytes: int = parameter(
        16 * MIB,
        unit="bytes, whole pages",
        low=PAGE_BYTES,
        why="one grant (about 0.2 ms held) per 16 MiB of growth; well below the reclaim margin, so that an "
        "unneeded grant costs less than what every container keeps anyway",
    )
    reclaim_interval_s: float = parameter(
        5.0, unit="seconds", low=0.001, why="the agents' sweep in the source"
    )
    reclaim_margin_bytes: int = parameter(
        50 * MIB,
        unit="bytes",
        low=0,
        why="the source's δ: a reclaim keeps this much above a container's usage",
    )

    def __post_init__(self) -> None:
        check("escra", self)
        if self.grant_bytes % PAGE_BYTES:
            raise ScenarioError(
                f"escra.grant_bytes: {self.grant_bytes} is not a multiple of the page size, {PAGE_BYTES}"
            )
