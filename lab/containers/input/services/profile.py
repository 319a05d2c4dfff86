"""The profiling run: what the containers use when nothing limits them, as peaks for limits and budgets.

For: `peak_cores` and `peak_bytes` of an application's containers. Not for: the measured runs, which meet
other random numbers: whoever profiles in production does not meet the same requests again either.
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
    """`workload` with the peaks that its containers have when it is run without limits.

    CPU: the largest mean over interval_s (lab.containers.input.ceilings.profile_peaks). Memory: the largest
    at a period's end,
    at least a page. All containers are looked at together: without a quota, its periods' phase is nothing to
    a container, and many phases are much work. The machine's delays do not change the peaks.
    """
    together = replace(workload, phase_s=np.zeros_like(workload.phase_s))
    series = recorded(simulate(together, make("unlimited", {}), machine, seed=seed))
    return replace(
        workload,
        peak_cores=profile_peaks(series.usage_cores.astype(np.float64), workload.period_s, interval_s),
        peak_bytes=np.maximum(series.memory_bytes.max(axis=0), PAGE_BYTES),
    )
