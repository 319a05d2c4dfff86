"""A small trace as a file."""

from pathlib import Path

import pytest
from sample_traces import usage_trace

from traces import parquet


@pytest.fixture(scope="session")
def trace_path(tmp_path_factory) -> Path:
    """`usage_trace()` as a file."""
    path = tmp_path_factory.mktemp("trace") / "small.parquet"
    parquet.write(usage_trace(), path)
    return path
