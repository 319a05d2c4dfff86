"""Derives the common inputs of all workloads from a scenario: profiled peaks, global limits, threads.

For: `peak_cores`, `applications` and `threads` of the twin's workloads. Not for: use and demand, which come
from lab.containers.input.workload or lab.containers.input.services.prepare.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import KERNEL_MIN_QUOTA_S, PAGE_BYTES, Application
from control.allocator.shares import DEFAULT_WEIGHT
from lab.containers.input.sections import ContainerScenario
from twin.containers.compiled import released
from twin.containers.model import Floats
from twinbed import ScenarioError
from twinbed.text import nearest

_MOST_COMPILED = 129
"""Most periods of an interval whose mean is compiled. NumPy adds more of them in another order."""


def profile_peaks(demand_cores: Floats, period_s: float, interval_s: float) -> Floats:
    """Return float64[N]: each container's largest mean CPU use over `interval_s`, cores.

    A profiler that samples every `interval_s` sees this. It averages a shorter spike with its
    surroundings, so a limit at the "peak" throttles inside the spike.
    """
    width = max(1, round(interval_s / period_s))
    if width <= _MOST_COMPILED:
        highest: Floats = np.full(demand_cores.shape[1], -np.inf)
        _largest_means(demand_cores, width, highest)
        return highest
    starts = np.arange(0, len(demand_cores), width)
    lengths = np.diff(np.append(starts, len(demand_cores)))
    peaks: Floats = (np.add.reduceat(demand_cores, starts, axis=0) / lengths[:, None]).max(axis=0)
    return peaks


@released
def _largest_means(demand: Floats, width: int, highest: Floats) -> None:
    """Raise `highest`, float64[N], to the largest mean over `width` rows of `demand`, float64[t, N].

    The numbers are added in the order of np.add.reduceat, so that the means are the same to the bit: eight
    sums side by side.
    """
    rows, count = demand.shape
    part, sums = np.empty((8, count)), np.empty(count)
    for first in range(0, rows, width):
        end = min(first + width, rows)
        at = first + 1
        if end - at < 8:
            sums[:] = 0.0
        else:
            for k in range(8):
                for i in range(count):
                    part[k, i] = demand[at + k, i]
            at += 8
            while at + 8 <= end:
                for k in range(8):
                    for i in range(count):
                        part[k, i] += demand[at + k, i]
                at += 8
            for i in range(count):
                sums[i] = ((part[0, i] + part[1, i]) + (part[2, i] + part[3, i])) + (
                    (part[4, i] + part[5, i]) + (part[6, i] + part[7, i])
                )
        for row in range(at, end):
            for i in range(count):
                sums[i] += demand[row, i]
        for i in range(count):
            highest[i] = max(highest[i], (demand[first, i] + sums[i]) / (end - first))


def applications(
    scenario: ContainerScenario,
    names: tuple[str, ...],
    app: NDArray[np.int64],
    peak_cores: Floats,
    peak_bytes: NDArray[np.int64],
    cluster_cores: float | None = None,
) -> tuple[Application, ...]:
    """Return each application with Ω and M: as given, else factor × Σ peaks.

    cluster_cores: cores of all hosts together, if known. Raises ScenarioError if they are needed and not
    known.

    A peak counts as at least the kernel's smallest quota. M is raised by a page per container, because limits
    of factor × peak are rounded up to pages. Ω is raised by 1e-9 against rounding of the sum.
    """
    factor = scenario.budget_factor
    floor = KERNEL_MIN_QUOTA_S / scenario.period_s
    cores = np.maximum(peak_cores * factor, floor) * (1 + 1e-9)
    pages = (np.ceil(peak_bytes * factor / PAGE_BYTES).astype(np.int64) + 1) * PAGE_BYTES
    omega = np.bincount(app, cores, len(names))
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, app, pages)
    memory = sums.tolist()
    if scenario.budget is not None:
        given = scenario.budget.cpu_cores
        if given == "cluster" and cluster_cores is None:
            raise ScenarioError(
                f"{scenario.name}: budget.cpu_cores: cluster: only services have hosts; give cores"
            )
        omega = np.full(len(names), cluster_cores if given == "cluster" else given)
        memory = [scenario.budget.memory_bytes or size for size in memory]
    return tuple(Application(name, float(omega[index]), memory[index]) for index, name in enumerate(names))


def given_threads(
    scenario: ContainerScenario,
    names: tuple[str, ...],
    threads: Floats,
    own: Mapping[str, float] = MappingProxyType({}),
) -> Floats:
    """Return `threads` (float64[N]) with values replaced: by the scenario's number for all containers,
    then by a container's `own`, then by the scenario's number for its name. Raises ScenarioError for an
    unknown name."""
    general = scenario.threads if not isinstance(scenario.threads, dict) else None
    threads = threads.copy() if general is None else np.full(len(names), general, np.float64)
    per_name = {**own, **(scenario.threads if isinstance(scenario.threads, dict) else {})}
    return _named(scenario, "threads", names, threads, per_name)


def given_weights(scenario: ContainerScenario, names: tuple[str, ...]) -> Floats:
    """Return float64[N]: cpu.weight of each container. Raises ScenarioError for an unknown name."""
    weight = scenario.cpu_weight
    if isinstance(weight, dict):
        return _named(scenario, "cpu_weight", names, np.full(len(names), DEFAULT_WEIGHT), weight)
    return np.full(len(names), DEFAULT_WEIGHT if weight is None else weight)


def _named(
    scenario: ContainerScenario,
    key: str,
    names: tuple[str, ...],
    values: Floats,
    per_name: Mapping[str, float],
) -> Floats:
    """Return `values` (float64[N]) with those of `per_name` written into them."""
    place = {name: index for index, name in enumerate(names)}
    for name, value in per_name.items():
        if name not in place:
            hint = nearest(name, names, f"there are {len(names)}, such as {names[0]}")
            raise ScenarioError(f"{scenario.name}: {key}.{name}: no such container; {hint}")
        values[place[name]] = value
    return values
