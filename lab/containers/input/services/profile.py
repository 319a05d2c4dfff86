"""Runs a profile: what the containers use when nothing limits them, as peaks for limits and budgets.

For: `peak_cores` and `peak_bytes` of an application's containers. Not for: the measured runs. They have
other random numbers, because a profile made in production does not meet the same requests again either.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from control.allocator import make
from control.allocator.model import PAGE_BYTES
from lab.containers.input.ceilings import profile_peaks
from lab.containers.run.figures import recorded
from twin.containers import simulate
from twin.containers.model import Machine
from twin.containers.requests.model import RequestWorkload


def profiled(
    workload: RequestWorkload, machine: Machine, seed: np.random.SeedSequence, interval_s: float
) -> RequestWorkload:
    """Return the workload with the peaks of its containers in a run without limits.

    The CPU peak is the largest mean over interval_s (lab.containers.input.ceilings.profile_peaks). The
    memory peak is the largest amount at a period's end, at least a page. All containers have the same
    phase: without a quota the phase of the periods makes no difference, and many phases cost time. The
    machine's delays do not change peaks.
    """
    together = replace(workload, phase_s=np.zeros_like(workload.phase_s))
    series = recorded(simulate(together, make("unlimited", {}), machine, seed=seed))
    return replace(
        workload,
        peak_cores=profile_peaks(series.usage_cores.astype(np.float64), workload.period_s, interval_s),
        peak_bytes=np.maximum(series.memory_bytes.max(axis=0), PAGE_BYTES),
    )
