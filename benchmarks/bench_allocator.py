"""How long one step of the Escra allocator takes, at 1,000 to 1,000,000 containers.

Telemetry is synthetic and steady, in patterns from a fixed seed: 5 % of the containers are throttled, and 20
% leave more than γ unused if their quota allows it. Quotas are what the allocator decided. In the hard case
half of the containers are throttled and half have runtime to give back. The baseline is
benchmarks/plain_escra.py on the same telemetry at 1,000 containers, measured in the same run.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import perf_counter

import numpy as np

from benchmarks import plain_escra
from benchmarks.figure import figure
from control.allocator.escra import Escra, EscraSettings
from control.allocator.model import Application, Join, PeriodStats

OMEGA_PER_CONTAINER, HOST_CORES, PERIOD_S = 1.5, 4.0, 0.1
BASELINE_CONTAINERS = 1000
WARM_UP, PATTERNS = 10, 4
TARGETS_MS = {100_000: 5.0, 1_000_000: 50.0}


class Telemetry:
    """A few periods' throttled flags and unused runtime, repeated in turn."""

    def __init__(self, containers: int, throttled: float, unused: float) -> None:
        rng = np.random.default_rng(20)
        self._patterns = []
        for _ in range(PATTERNS):
            kind = rng.random(containers)
            held = kind < throttled
            above = (kind >= throttled) & (kind < throttled + unused)
            left = np.where(above, 0.2 + 0.2 * rng.random(containers), 0.2 * rng.random(containers))
            self._patterns.append((held, np.where(held, 0.0, left)))

    def period(self, number: int, quota: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (unused, throttled) of a period. No container leaves more unused than its quota."""
        held, left = self._patterns[number % PATTERNS]
        return np.minimum(left, quota), held


def figures() -> Iterator[dict[str, object]]:
    """Yield one figure per size, then the hard case and many applications."""
    plain_ns = plain_step_s() / BASELINE_CONTAINERS * 1e9
    for containers in (1000, 10_000, 100_000, 1_000_000):
        yield _measured(f"allocator_step_{containers}_containers", containers, plain_ns)
    yield _measured("allocator_step_hard_case", 1_000_000, plain_ns, throttled=0.5, unused=0.5)
    yield _measured("allocator_step_20000_applications", 1_000_000, plain_ns, applications=20_000)
    yield _measured("allocator_step_telemetry_in_any_order", 100_000, plain_ns, shuffled=True)


def _measured(
    name: str,
    containers: int,
    plain_ns: float,
    *,
    applications: int = 1,
    throttled: float = 0.05,
    unused: float = 0.2,
    shuffled: bool = False,
) -> dict[str, object]:
    seconds, changed = step(containers, applications, throttled, unused, shuffled)
    container_ns = seconds / containers * 1e9
    return figure(
        name,
        seconds * 1e3,
        "ms",
        baseline=f"the rule in a plain Python loop over {BASELINE_CONTAINERS} containers, scaled up",
        baseline_value=plain_ns * containers / 1e6,
        ratio=plain_ns / container_ns,
        target=f"≤ {TARGETS_MS[containers]:g} ms" if containers in TARGETS_MS else "none",
        per_container_ns=round(container_ns, 1),
        limits_changed=round(changed, 3),
    )


def step(
    containers: int, applications: int, throttled: float, unused: float, shuffled: bool
) -> tuple[float, float]:
    """Return medians of Escra.on_period: (seconds, share of the containers whose quota it changed)."""
    escra = Escra(EscraSettings())
    size = containers / applications
    specs = [Application(f"a{i}", OMEGA_PER_CONTAINER * size, int(size) << 28) for i in range(applications)]
    fleet = Join(np.arange(containers) % applications, np.full(containers, HOST_CORES))
    ids = escra.start(specs, fleet).cpu.ids
    order = np.random.default_rng(1).permutation(containers) if shuffled else np.arange(containers)
    ids = ids[order]
    telemetry = Telemetry(containers, throttled, unused)
    memory = np.zeros(containers, np.int64)
    times, changed = [], []
    for number in range(WARM_UP + max(15, 300_000 // containers)):
        quota = escra.cpu.allocated_cores[order]
        left, held = telemetry.period(number, quota)
        stats = PeriodStats(ids, quota, left, held, quota - left, memory, PERIOD_S, number * PERIOD_S)
        begin = perf_counter()
        decision = escra.on_period(stats)
        times.append(perf_counter() - begin)
        changed.append(len(decision.cpu.ids) / containers)
    return median(times[WARM_UP:]), median(changed[WARM_UP:])


def plain_step_s() -> float:
    """Return the median seconds of the plain loop on the same telemetry, given as lists."""
    omega = OMEGA_PER_CONTAINER * BASELINE_CONTAINERS
    fleet = plain_escra.start(BASELINE_CONTAINERS, omega, HOST_CORES)
    telemetry = Telemetry(BASELINE_CONTAINERS, 0.05, 0.2)
    times = []
    for number in range(WARM_UP + 200):
        quota = [container.quota for container in fleet]
        left, held = telemetry.period(number, np.array(quota))
        lists = (quota, left.tolist(), held.tolist())
        begin = perf_counter()
        plain_escra.step(fleet, omega, *lists)
        times.append(perf_counter() - begin)
    return median(times[WARM_UP:])
