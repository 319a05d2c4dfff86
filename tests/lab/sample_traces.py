"""A small trace that every part of lab can be tried on."""

from pathlib import Path
from typing import Any

import numpy as np

from lab.ask.kind import Progress
from lab.containers.input.whatif import whatif_scenario
from lab.runs.runner import run_scenario
from lab.runs.store import Run, RunStore
from traces.schema import UsageTrace


def usage_trace(periods: int = 300, count: int = 3, seed: int = 7, memory: bool = True) -> UsageTrace:
    """Bursty CPU and slowly growing memory at 100 ms; two applications."""
    random = np.random.default_rng(seed)
    cpu = 0.3 + 0.7 * (random.random((periods, count)) < 0.2)
    held = 5e7 + np.cumsum(random.integers(0, 2, (periods, count)) * 4e5, axis=0) if memory else 0 * cpu
    return UsageTrace(
        containers=tuple(f"c{i}" for i in range(count)),
        apps=tuple("ab"[i % 2] for i in range(count)),
        start_s=0.0,
        interval_s=0.1,
        cpu_cores=cpu,
        memory_bytes=np.floor(held),
        present=np.ones(cpu.shape, np.bool_),
    )


def whatif(
    source: Path, policies: list[str], *, store: RunStore, progress: Progress | None = None, **conditions: Any
) -> list[Run]:
    """The runs of `twinbed whatif`; conditions: as of `whatif_scenario`."""
    return run_scenario(whatif_scenario(source, policies, **conditions), store, progress=progress)
