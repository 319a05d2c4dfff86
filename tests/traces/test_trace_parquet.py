from __future__ import annotations

import json
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from tests.traces.trace_strategies import same, usage_traces
from traces import parquet
from traces.schema import UsageTrace
from twinbed import BackendError, TraceError


@pytest.fixture
def trace() -> UsageTrace:
    random = np.random.default_rng(7)
    usage = random.random((50, 3))
    return UsageTrace(
        ("a", "b", "c"), ("x", "x", "y"), 5.0, 0.1, usage, np.floor(usage * 1e8), np.ones((50, 3), bool)
    )


@pytest.fixture
def path(tmp_path: Path, trace: UsageTrace) -> Path:
    """The trace as a file."""
    parquet.write(trace, tmp_path / "it.parquet")
    return tmp_path / "it.parquet"


def rewritten(path: Path, head: dict[str, object] | None, table: pa.Table | None = None) -> None:
    """Replaces the file's metadata (None = without it) and table."""
    table = pq.read_table(path) if table is None else table
    pq.write_table(table.replace_schema_metadata(head and {b"twinbed": json.dumps(head).encode()}), path)


def head_of(path: Path) -> dict[str, object]:
    head: dict[str, object] = json.loads(pq.read_schema(path).metadata[b"twinbed"])
    return head


@pytest.mark.slow
@given(usage_traces())
@settings(max_examples=60)
def test_what_is_written_is_read_back_to_the_bit(tmp_path: Path, trace: UsageTrace) -> None:
    parquet.write(trace, tmp_path / "it.parquet")
    assert same(parquet.read(tmp_path / "it.parquet"), trace)


def test_the_same_trace_gives_the_same_bytes(path: Path, trace: UsageTrace) -> None:
    parquet.write(trace, path.with_name("two.parquet"))
    assert path.read_bytes() == path.with_name("two.parquet").read_bytes()


def test_the_table_is_long_form_and_leaves_out_who_is_absent(tmp_path: Path, trace: UsageTrace) -> None:
    present = trace.present.copy()
    present[:10, 1] = False
    cpu = np.where(present, trace.cpu_cores, 0.0)
    memory = np.where(present, trace.memory_bytes, 0.0)
    parquet.write(
        replace(trace, present=present, cpu_cores=cpu, memory_bytes=memory), tmp_path / "it.parquet"
    )
    frame = pq.read_table(tmp_path / "it.parquet").to_pandas()
    assert list(frame.columns) == list(parquet.COLUMNS)
    assert frame.groupby("container", observed=True).size().to_dict() == {"a": 50, "b": 40, "c": 50}
    assert frame["rx_bytes"].isna().all()
    assert frame["time_s"].min() == 5.0


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Writes beyond `size` bytes fail, as they do on a full disk (Python ignores SIGXFSZ)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_leaves_the_older_file_and_nothing_else(path: Path, trace: UsageTrace) -> None:
    before = path.read_bytes()
    with largest_file(512), pytest.raises(BackendError, match=r"it\.parquet: cannot be written") as error:
        parquet.write(replace(trace, start_s=9.0), path)
    assert "\n" not in str(error.value)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, trace: UsageTrace) -> None:
    with pytest.raises(BackendError, match="nowhere"):
        parquet.write(trace, tmp_path / "nowhere" / "it.parquet")


def test_an_invalid_trace_is_not_written(tmp_path: Path, trace: UsageTrace) -> None:
    with pytest.raises(TraceError, match="interval is -1"):
        parquet.write(replace(trace, interval_s=-1.0), tmp_path / "it.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        parquet.read(tmp_path / "it.parquet")


@pytest.mark.parametrize("content", [b"", b"time,web\n0,1\n", b"PAR1" + b"\0" * 100 + b"PAR1"])
def test_text_under_a_parquet_name_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "it.parquet").write_bytes(content)
    with pytest.raises(TraceError, match="not a readable Parquet file") as error:
        parquet.read(tmp_path / "it.parquet")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused(path: Path, share: float) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(TraceError, match="not a readable Parquet file"):
        parquet.read(path)


def test_a_flipped_bit_in_the_values_is_noticed(path: Path) -> None:
    column = pq.ParquetFile(path).metadata.row_group(0).column(3)
    damaged = bytearray(path.read_bytes())
    damaged[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(TraceError, match="not a readable Parquet file"):
        parquet.read(path)


def test_a_foreign_parquet_file_is_told_by_its_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"apples": [1]}), tmp_path / "it.parquet")
    with pytest.raises(TraceError, match=r"not a twinbed trace .*apples"):
        parquet.read(tmp_path / "it.parquet")


def test_a_version_from_the_future_is_refused(path: Path) -> None:
    rewritten(path, head_of(path) | {"schema_version": 99})
    with pytest.raises(TraceError, match="version 99; this release reads 1"):
        parquet.read(path)


def test_a_head_that_is_cut_off_says_so(path: Path) -> None:
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"twinbed": b"{"}), path)
    with pytest.raises(TraceError, match="metadata: invalid JSON: EOF"):
        parquet.read(path)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ({"intervals": None}, "metadata: intervals: input should be a valid integer"),
        ({"intervals": 20}, "not of the 20 intervals"),
        ({"intervals": 10**12}, "more than 12000000 cells"),
        ({"interval_s": 0.07}, "not of the 50 intervals of 0.07 s"),
        ({"interval_s": 0.0}, "interval_s"),
        ({"containers": ["a", "b", "z"]}, "'c'"),
        ({"containers": ["a", "b", "c", "c"], "apps": ["x"] * 4}, "'c' appears twice"),
    ],
)
def test_metadata_that_contradicts_the_rows_is_refused(
    path: Path, head: dict[str, object], words: str
) -> None:
    rewritten(path, head_of(path) | head)
    with pytest.raises(TraceError, match=re.escape(words)):
        parquet.read(path)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("cpu_cores", float("nan"), "interval 4 (time 5.3 s), column cpu_cores, container 'a'"),
        ("memory_bytes", -1.0, "column memory_bytes"),
        ("cpu_cores", None, "column cpu_cores has missing values"),
        ("time_s", 5.04, "row 4: container 'a' at time 5.04 s"),
        ("time_s", float("nan"), "row 4"),
        ("time_s", 5.0, "two rows for the same time"),
    ],
)
def test_a_corrupted_row_is_named(path: Path, column: str, value: float | None, words: str) -> None:
    table = pq.read_table(path)
    values = table.column(column).to_pylist()
    values[3] = value
    index = table.schema.get_field_index(column)
    rewritten(path, head_of(path), table.set_column(index, column, pa.array(values, pa.float64())))
    with pytest.raises(TraceError, match=re.escape(words)):
        parquet.read(path)


def test_a_column_that_is_missing_or_of_another_type_is_refused(path: Path) -> None:
    head, table = head_of(path), pq.read_table(path)
    rewritten(path, head, table.drop_columns(["time_s"]))
    with pytest.raises(TraceError, match="columns missing from the trace: time_s"):
        parquet.read(path)
    words = pa.array(["much"] * table.num_rows)
    rewritten(path, head, table.set_column(3, "cpu_cores", words))
    with pytest.raises(TraceError, match="column cpu_cores holds 'string', expected numbers"):
        parquet.read(path)
