"""A short run of containers under an allocator on a backend, and the promises that every policy must keep.

For: `twinbed policies check`, and the contract suite, which runs the same case on every backend. Not for: how
backends carry decisions out (tests/contract).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from control.allocator.model import Application
from control.allocator.ports import Allocator
from twin.containers.model import Machine, Workload

if TYPE_CHECKING:
    from testbed.containers.load.stress_scripts import StressScripts

MIB = 1 << 20
PERIOD_S = 0.1
HOST_CORES = 2.0
MACHINE = Machine(
    telemetry_delay_s=0.002,
    telemetry_jitter_s=0.0,
    quota_write_delay_s=0.0002,
    oom_grant_delay_s=0.0005,
    reclaim_delay_s=0.001,
    restart_s=0.3,
)
"""The machine of the twin: delays as on an idle one, and no jitter."""


def workload(
    demand: ArrayLike,
    memory: ArrayLike = 24 * MIB,
    *,
    omega: float = 2.0,
    total_bytes: int = 1 << 30,
    present: ArrayLike | None = None,
    threads: float = 1.0,
) -> Workload:
    """Return containers of one application.

    demand: [T, N] cores; memory: bytes, one number or [T, N]; omega, total_bytes: global limits; present: [T,
    N], None for always.
    """
    wished = np.asarray(demand, np.float64)
    count = wished.shape[1]
    wanted = np.broadcast_to(np.asarray(memory, np.int64), wished.shape).copy()
    return Workload(
        names=tuple(f"c{i}" for i in range(count)),
        applications=(Application("app", omega, total_bytes),),
        app=np.zeros(count, np.int64),
        period_s=PERIOD_S,
        demand_cores=wished,
        memory_bytes=wanted,
        present=np.ones(wished.shape, np.bool_) if present is None else np.asarray(present),
        threads=np.full(count, threads),
        host=np.zeros(count, np.int64),
        host_cores=np.full(count, HOST_CORES),
        weight=np.ones(count),
        peak_cores=wished.max(0),
        # A real process holds more memory than its script: page tables, its program.
        peak_bytes=2 * wanted.max(0),
    )


def steady(periods: int) -> Workload:
    """Return the case: two containers that want 0.1 and 0.3 cores all the time."""
    return workload(np.tile([0.1, 0.3], (periods, 1)), omega=2.0)


def broken(outcome: Any) -> list[str]:
    """Return the properties of a result of `steady` (the twin's Outcome or the testbed's Observed) that break
    a promise."""
    series = outcome.series
    problems: Mapping[str, bool] = {
        "a container was not up": not series.up.all(),
        "a container was without a quota above 0": not (series.quota_cores > 0).all(),
        "a memory limit is below what is held": not (series.limit_bytes[-1] >= series.memory_bytes[-1]).all(),
        "a container was killed": "kill" in list(outcome.events.kind),
        "a container was never reported": not (outcome.nr_periods > 0).all(),
    }
    return [text for text, is_so in problems.items() if is_so]


def scripts_of(load: Workload, folder: Path) -> StressScripts:
    """Return the workload as real containers, with their scripts in `folder`."""
    from testbed.containers.load.stress_scripts import StressScripts

    return StressScripts(
        folder,
        load.names,
        load.demand_cores,
        load.memory_bytes,
        threads=load.threads.astype(int).tolist(),
        app=load.app.tolist(),
        peak_cores=load.peak_cores.tolist(),
        peak_bytes=load.peak_bytes.tolist(),
        present=load.present,
    )


def on_twin(allocator: Allocator, periods: int) -> Sequence[str]:
    """Return the broken promises after the case ran on the twin."""
    from twin.containers.run import simulate

    return broken(simulate(steady(periods), allocator, MACHINE, seed=np.random.SeedSequence(7)))


def on_testbed(allocator: Allocator, periods: int) -> Sequence[str]:
    """Return the broken promises after the case ran on this machine. Raises BackendError if it cannot run."""
    from testbed.containers import ownership
    from testbed.containers.cgroup.drivers import detect
    from testbed.containers.host.loop import Settings, control

    driver, load = detect(), steady(periods)
    with ownership.temporary_directory() as folder:
        scripts = scripts_of(load, folder)
        settings = Settings(
            logs=folder / "logs",
            host_cores=float(os.cpu_count() or 1),
            host_memory_bytes=load.host_memory_bytes,
        )
        return broken(
            control(scripts.containers, load.applications, allocator, settings, client=scripts, driver=driver)
        )
