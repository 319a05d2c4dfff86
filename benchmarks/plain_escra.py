"""The baseline: Escra's CPU rule for one container at a time, in plain Python.

For: the ratio in bench_allocator. Not for: use. Up to rounding to whole microcores, it decides what
control.allocator.escra decides for containers in one application when nothing joins or leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

UPSILON, KAPPA, GAMMA, WINDOW, MIN_CHANGE, LEAST_CORES = 0.2, 0.8, 0.2, 5, 0.01, 0.01


class Container:
    """One container's state: its quota and its last reports."""

    __slots__ = ("host_cores", "quota", "throttled", "unused")

    def __init__(self, quota: float, host_cores: float) -> None:
        self.quota = quota
        self.host_cores = host_cores
        self.throttled: deque[bool] = deque(maxlen=WINDOW)
        self.unused: deque[float] = deque(maxlen=WINDOW)


def start(count: int, omega: float, host_cores: float) -> list[Container]:
    return [Container(min(omega / count, host_cores), host_cores) for _ in range(count)]


def step(
    containers: list[Container],
    omega: float,
    quotas: Sequence[float],
    unused: Sequence[float],
    throttled: Sequence[bool],
) -> list[tuple[int, float]]:
    """Return one period's decisions: (index, new quota)."""
    pool = omega - sum(container.quota for container in containers)
    wanted: list[tuple[int, float]] = []
    asked = 0.0
    for index, container in enumerate(containers):
        left, held = unused[index], throttled[index]
        container.unused.append(left)
        container.throttled.append(held)
        if held:
            new = quotas[index] + sum(container.throttled) / len(container.throttled) * UPSILON * pool
        elif left > GAMMA:
            mean = sum(container.unused) / len(container.unused)
            new = quotas[index] - KAPPA * min(mean, left)
        else:
            continue
        new = max(LEAST_CORES, min(new, container.host_cores))
        if held:
            new = max(new, container.quota)
        asked += max(new - container.quota, 0.0)
        wanted.append((index, new))
    share = min(1.0, pool / asked) if asked else 1.0
    decided: list[tuple[int, float]] = []
    for index, new in wanted:
        container = containers[index]
        change = new - container.quota
        if change > 0:
            change *= share
        if abs(change) >= MIN_CHANGE * container.quota and change:
            container.quota += change
            decided.append((index, container.quota))
    return decided
