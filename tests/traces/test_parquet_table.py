"""A user's table in Parquet: what the same table as CSV gives, and what is wrong with one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from traces import parquet
from traces.load import load
from traces.request_rates import read_rates
from traces.schema import UsageTrace
from twinbed import TraceError

MIB = 2.0**20
START = datetime(2024, 5, 1, 10, tzinfo=UTC)
TIMES = [START + timedelta(seconds=s) for s in (0, 10, 10)]


def table(**columns: object) -> pa.Table:
    long = {
        "container": pa.array(["web", "web", "db"]).dictionary_encode(),
        "time": pa.array([0, 10, 10], pa.int32()),
        "cpu": pa.array([0.1, 0.25, 1.5]),
        "memory_mib": pa.array([1, 2, 4], pa.uint8()),
    }
    return pa.table({name: value for name, value in (long | columns).items() if value is not None})


def written(path: Path, content: pa.Table) -> Path:
    pq.write_table(content, path)
    return path


@pytest.mark.parametrize("name", ["it.parquet", "it.pq", "it"])
def test_the_long_form_is_read(tmp_path: Path, name: str) -> None:
    trace = load(written(tmp_path / name, table()))
    assert (trace.containers, trace.start_s, trace.interval_s) == (("web", "db"), 0.0, 10.0)
    assert trace.cpu_cores.tolist() == [[0.1, 0.0], [0.25, 1.5]]
    assert trace.memory_bytes.tolist() == [[MIB, 0.0], [2 * MIB, 4 * MIB]]
    assert trace.present.tolist() == [[True, False], [True, True]]
    assert trace.metadata == {"source": name, "format": "plain Parquet"}


def test_numbers_are_those_of_the_table_to_the_bit(tmp_path: Path) -> None:
    values = np.random.default_rng(3).random(200) * 10.0 ** np.arange(-100, 100)
    values = np.clip(values, 0.0, 1e17)
    path = written(tmp_path / "it.parquet", pa.table({"time": np.arange(200), "web": values}))
    assert load(path).cpu_cores[:, 0].tolist() == values.tolist()


@pytest.mark.parametrize(
    "times",
    [
        pa.array(TIMES, pa.timestamp("ns", "UTC")),
        pa.array(TIMES, pa.timestamp("us", "Asia/Tokyo")),
        pa.array([time.replace(tzinfo=None) for time in TIMES], pa.timestamp("ms")),
        pa.array([f"2024-05-01T12:00:{s:02}+02:00" for s in (0, 10, 10)]),
        pa.array([time.timestamp() for time in TIMES]),
    ],
    ids=["UTC", "another zone", "no zone", "text", "numbers"],
)
def test_times_are_numbers_or_stamps_with_or_without_a_zone(tmp_path: Path, times: pa.Array) -> None:
    trace = load(written(tmp_path / "it.parquet", table(time=times)))
    assert (trace.start_s, trace.interval_s) == (START.timestamp(), 10.0)


def test_an_index_of_pandas_is_the_first_column(tmp_path: Path) -> None:
    index = pd.date_range(START, periods=3, freq="10s", name="time")
    usage = {"web": [1.0, 2.0, np.nan], "web.memory_mib": [1, 2, np.nan], "db": 3.0}
    frame = pd.DataFrame(usage, index=index)
    frame.to_parquet(tmp_path / "it.parquet")
    trace = load(tmp_path / "it.parquet")
    assert (trace.containers, trace.start_s) == (("web", "db"), START.timestamp())
    assert trace.cpu_cores.tolist() == [[1.0, 3.0], [2.0, 3.0], [0.0, 3.0]]
    assert trace.present[:, 0].tolist() == [True, True, False]


def test_many_containers_may_have_a_column_each(tmp_path: Path) -> None:
    columns = {f"c{number}": np.ones(2) for number in range(500)}
    trace = load(written(tmp_path / "it.parquet", pa.table({"time": [0, 1], **columns})))
    assert trace.shape == (2, 500)


def test_a_recording_that_another_program_wrote_anew_is_a_users_table(tmp_path: Path) -> None:
    usage = np.arange(1.0, 11.0).reshape(5, 2)
    trace = UsageTrace(("a", "b"), ("x", "y"), 0.0, 0.1, usage, usage * MIB, usage > 0)
    parquet.write(trace, tmp_path / "own.parquet")
    assert load(tmp_path / "own.parquet", format="csv").cpu_cores.tolist() == usage.tolist()
    bare = pq.read_table(tmp_path / "own.parquet").replace_schema_metadata()
    again = load(written(tmp_path / "again.parquet", bare))
    assert (again.containers, again.apps) == (("a", "b"), ("x", "y"))
    assert again.memory_bytes.tolist() == (usage * MIB).tolist()
    assert again.rx_bytes is None  # Its column has no value.


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (table(cpu=pa.array([0.1, None, 1.5])), "line 2, column cpu: an empty cell"),
        (table(cpu=pa.array([0.1, float("nan"), 1.5])), "line 2, column cpu: 'nan', expected a finite"),
        (table(cpu=pa.array([True, False, True])), "line 1, column cpu: 'true'"),
        (table(cpu=pa.array([[1.0], [2.0], [3.0]])), "not a readable Parquet file"),
        (table(time=None), "not a trace: expected a 'container' and a 'time' column"),
        (table(colour=pa.array([1, 2, 3])), "unknown column 'colour'"),
        (table().slice(0, 0), "no rows, expected at least one"),
        (table().rename_columns(["container", "time", "cpu", "cpu"]), "column 'cpu' appears twice"),
        (table().rename_columns(["container", "time", "cpu", "\x1b[31m"]), "column 4 has a character"),
    ],
)
def test_a_wrong_table_gets_one_line_naming_where(tmp_path: Path, content: pa.Table, words: str) -> None:
    path = written(tmp_path / "it.parquet", content)
    with pytest.raises(TraceError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "claim", [b"[]", b"{", b'{"index_columns": 5}', b'{"index_columns": [["time"], {}]}', b"[" * 99_999]
)
def test_a_false_claim_about_the_index_changes_nothing(tmp_path: Path, claim: bytes) -> None:
    path = written(tmp_path / "it.parquet", table().replace_schema_metadata({b"pandas": claim}))
    assert load(path).containers == ("web", "db")


def test_too_many_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="3 rows, expected at most 2"):
        load(written(tmp_path / "it.parquet", table()), max_cells=2)


def test_request_rates_are_read_too(tmp_path: Path) -> None:
    path = written(tmp_path / "rates.parquet", pa.table({"t_s": [0, 5, 10], "rps": [1.0, 2.0, 3.0]}))
    rates = read_rates(path)
    assert (rates.step_s, rates.rates_rps.tolist()) == (5.0, [1.0, 2.0, 3.0])
