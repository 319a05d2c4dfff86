"""A small trace as a file, and a store with its four runs."""

from pathlib import Path

import pytest
from sample_traces import usage_trace, whatif

from lab.store import Run, RunStore
from traces import parquet


@pytest.fixture(scope="session")
def trace_path(tmp_path_factory) -> Path:
    """`usage_trace()` as a file: 3 containers, 30 s."""
    path = tmp_path_factory.mktemp("trace") / "sample.parquet"
    parquet.write(usage_trace(), path)
    return path


@pytest.fixture(scope="session")
def stored(tmp_path_factory, trace_path) -> tuple[RunStore, list[Run]]:
    """`sample` under the four policies. Not to be changed: copy before removing."""
    store = RunStore(tmp_path_factory.mktemp("store"))
    runs = whatif(trace_path, ["escra", "autopilot", "vpa", "static"], store=store)
    return store, runs
