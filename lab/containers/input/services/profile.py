"""Runs a profile: what the containers use when nothing limits them, as peaks and as a history.

For: `peak_cores` and `peak_bytes` of an application's containers, from which limits and budgets are made, and
the history that policies learn from. Not for: the measured runs. They have
other random numbers, because a profile made in production does not meet the same requests again either.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from control.allocator import make
from control.allocator.model import PAGE_BYTES, History
from lab.containers.input.ceilings import profile_peaks
from lab.containers.input.sections import Profile
from lab.containers.run.figures import recorded
from twin.containers import simulate
from twin.containers.model import Floats, Machine
from twin.containers.requests.model import RequestWorkload


def profiled(
    workload: RequestWorkload, machine: Machine, seed: np.random.SeedSequence, asked: Profile
) -> tuple[RequestWorkload, History]:
    """Return the workload with the peaks of its containers in a run without limits, and what they used in it.

    The CPU peak is the largest mean over asked.interval_s (lab.containers.input.ceilings.profile_peaks). The
    memory peak is the largest amount at a period's end, at least a page. All containers have the same
    phase: without a quota the phase of the periods makes no difference, and many phases cost time. The
    machine's delays do not change peaks. With asked.cold_start, every container burns what its start takes
    (machine.restart_cpu_s, on all its threads) before the first request.
    """
    together = replace(workload, phase_s=np.zeros_like(workload.phase_s))
    series = recorded(simulate(together, make("unlimited", {}), machine, seed=seed))
    usage, memory = series.usage_cores.astype(np.float64), series.memory_bytes
    if asked.cold_start:
        start = start_up(workload, machine.restart_cpu_s)
        usage, memory = np.concatenate((start, usage)), np.concatenate((memory[: len(start)], memory))
    peaks = replace(
        workload,
        peak_cores=profile_peaks(usage, workload.period_s, asked.interval_s),
        peak_bytes=np.maximum(memory.max(axis=0), PAGE_BYTES),
    )
    return peaks, History(usage, memory, workload.period_s)


def start_up(workload: RequestWorkload, cpu_s: float) -> Floats:
    """Return float64[T, N]: cores used while all containers start, each burning cpu_s on all its threads."""
    cores = np.minimum(workload.threads, workload.host_cores)
    rows = int(np.ceil(cpu_s / (cores.min() * workload.period_s))) if cpu_s > 0 else 0
    before_s = np.arange(rows)[:, None] * (cores * workload.period_s)
    burnt_s: Floats = np.clip(cpu_s - before_s, 0.0, cores * workload.period_s)
    return burnt_s / workload.period_s
