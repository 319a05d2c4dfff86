"""A small trace as a file, and a store with its four runs."""

from pathlib import Path

import pytest

from lab.ask.scenario import build
from lab.runs.runner import run_scenario
from lab.runs.store import Run, RunStore
from tests.lab.sample_traces import usage_trace, whatif
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


@pytest.fixture(scope="session")
def asked(tmp_path_factory) -> tuple[RunStore, list[Run]]:
    """TeaStore for 12 s under Escra and a static limit that is too low. Not to be changed."""
    raw = {
        "name": "tea",
        "services": {"app": "teastore", "arrivals": "burst", "duration_s": 12.0},
        "policies": ["escra", "static:factor=0.9"],
    }
    store = RunStore(tmp_path_factory.mktemp("asked"))
    return store, run_scenario(build(raw), store)
