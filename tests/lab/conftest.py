"""Where the public data sets are, and a small trace as a file."""

import os
from pathlib import Path

import pytest
from sample_traces import usage_trace

from traces import parquet

_BESIDE = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """The folder of public data sets, or a skip that says how to name it."""
    where = Path(os.environ.get("TWINBED_DATA") or _BESIDE)
    if not where.is_dir():
        pytest.skip("no public data sets: set TWINBED_DATA")
    return where


@pytest.fixture(scope="session")
def trace_path(tmp_path_factory) -> Path:
    """`usage_trace()` as a file."""
    path = tmp_path_factory.mktemp("trace") / "small.parquet"
    parquet.write(usage_trace(), path)
    return path
