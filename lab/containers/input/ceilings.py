"""Derives the common inputs of all workloads from a scenario: profiled peaks, global limits, threads.

For: `peak_cores`, `applications` and `threads` of the twin's workloads. Not for: use and demand, which come
from lab.containers.input.workload or lab.containers.input.services.prepare.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import KERNEL_MIN_QUOTA_S, PAGE_BYTES, Application
from control.allocator.shares import DEFAULT_WEIGHT
from lab.containers.input.sections import ContainerScenario
from twin.containers.model import Floats
from twinbed import ScenarioError


def profile_peaks(demand_cores: Floats, period_s: float, interval_s: float) -> Floats:
    """Return float64[N]: each container's largest mean CPU use over `interval_s`, cores.

    A profiler that samples every `interval_s` sees this. It averages a shorter spike with its
    surroundings, so a limit at the "peak" throttles inside the spike.
    """
    width = max(1, round(interval_s / period_s))
    starts = np.arange(0, len(demand_cores), width)
    lengths = np.diff(np.append(starts, len(demand_cores)))
    peaks: Floats = (np.add.reduceat(demand_cores, starts, axis=0) / lengths[:, None]).max(axis=0)
    return peaks


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
    memory = [int(pages[app == index].sum()) for index in range(len(names))]
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
    for name, value in per_name.items():
        if name not in names:
            raise ScenarioError(f"{scenario.name}: {key}.{name}: no such container{_near(name, names)}")
        values[names.index(name)] = value
    return values


def _near(name: str, names: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
