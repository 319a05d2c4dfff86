"""Where the public data sets are, and a small trace that every part of lab can be tried on."""

import os
from pathlib import Path

import numpy as np
import pytest

from traces import parquet
from traces.schema import UsageTrace

_BESIDE = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """The folder of public data sets, or a skip that says how to name it."""
    where = Path(os.environ.get("TWINBED_DATA") or _BESIDE)
    if not where.is_dir():
        pytest.skip("no public data sets: set TWINBED_DATA")
    return where


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


@pytest.fixture(scope="session")
def trace_path(tmp_path_factory) -> Path:
    """`usage_trace()` as a file."""
    path = tmp_path_factory.mktemp("trace") / "small.parquet"
    parquet.write(usage_trace(), path)
    return path
