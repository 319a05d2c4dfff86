"""Files that would cost gigabytes, or wait without end, or be read as something that they are not."""

from __future__ import annotations

import gzip
import os
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lab.cloud.input import data_set, local_run_file, store
from lab.cloud.run import model_file
from traces import fault_rates, parquet, parquet_file, request_rates
from traces.catalogue import catalogue
from traces.load import load
from traces.prometheus import kept
from traces.readers import chakra, kineto, nccl_tests, prices, table
from traces.schema import MOST_READ_CELLS, UsageTrace
from twinbed import BackendError, TraceError, TwinbedError

SMALL = UsageTrace(("a",), ("a",), 0.0, 1.0, *np.zeros((2, 1, 1)), np.ones((1, 1), np.bool_))
READS: dict[str, Callable[[Path], object]] = {
    "trace": load,
    "CSV trace": lambda path: load(path, format="csv"),
    "recording": lambda path: load(path, format="recording"),
    "saved answer": lambda path: load(path, format="query_range"),
    "OpenMetrics": lambda path: load(path, format="openmetrics"),
    "Grafana's CSV": lambda path: load(path, format="grafana_csv"),
    "Kineto trace": kineto.read,
    "Chakra trace": chakra.read,
    "nccl-tests": nccl_tests.read,
    "in force": lambda path: kept.read_beside(path, SMALL),
    "rates": request_rates.read_rates,
    "prices": prices.read,
    "faults": fault_rates.read_downtimes,
    "catalogue": catalogue.load,
    "billing": lambda path: catalogue.load(billing=path),
    "measurements": store.read_csv,
    "measured jobs": lambda path: data_set.load(path, path.parent, catalogue.load()),
    "local run": local_run_file.read,
    "predictor": model_file.read,
}


def refused(read: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(TwinbedError) as error:
        read(path)
    assert str(error.value).isprintable()
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", READS)
def test_a_special_file_is_refused_without_being_read(name: str, tmp_path: Path) -> None:
    fifo = tmp_path / "a FIFO.csv"
    os.mkfifo(fifo)
    for path, kind in ((fifo, "a FIFO"), (Path("/dev/zero"), "a device")):
        assert f"is {kind}, not a regular file" in refused(READS[name], path)


@pytest.mark.parametrize(
    "name", ["CSV trace", "rates", "prices", "faults", "catalogue", "billing", "measurements"]
)
def test_text_that_is_not_utf_8_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "it.csv"
    path.write_bytes(b"time,web\n# caf\xe9,1\n")
    assert "not UTF-8 text" in refused(READS[name], path) or name in ("prices", "faults", "rates")


def written(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_a_header_beyond_64_kib_keeps_all_its_columns(tmp_path: Path) -> None:
    names = [f"container-{number:06d}" for number in range(3000)]
    columns = [column for name in names for column in (f"{name}.memory_mib", name)]
    assert len(",".join(columns)) > 1 << 16
    rows = "".join(f"{time}," + ",".join(["512", "0.25"] * 3000) + "\n" for time in range(2))
    trace = load(written(tmp_path / "it.csv", f"time,{','.join(columns)}\n{rows}"))
    assert trace.containers == tuple(names)
    assert (trace.cpu_cores == 0.25).all()
    assert (trace.memory_bytes == 512 * 2**20).all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time," + ",".join(f"c{i}" for i in range(10_000)) + "\n0\n", "10001 columns, more than 10000"),
        ("time," + "a" * (1 << 20) + "\n0,1\n", "line 1: longer than 1048576 bytes"),
        ("time,a\n0,1\n1," + " " * (1 << 20) + "1\n", "line 3: longer than 1048576 bytes"),
        ("time,a,b,c\n0,1,1,1\n1\n", "line 3 has fewer fields than the header: 1, and not 4"),
        ('time,a\n0,"1\n1"\n', "line 2: not CSV (unexpected end of data)"),
        ("time,\x1b[31m\n0,1\n", "the name of column 2 has a character that cannot be shown"),
        ("time,a\r0,1\r1,1\r", "not CSV"),
        ('"Time";"a{x=""b"",y=""c""}"\n0;1,5\n', "line 1: expected ',' between fields and a point"),
        ('time,a\n0,"1.234,5"\n1,2\n', "'1.234,5', expected a finite number, such as 1234.5"),
    ],
    ids=[
        "columns",
        "long header",
        "long line",
        "short line",
        "quoted line break",
        "terminal",
        "old line ends",
        "semicolons",
        "decimal comma",
    ],
)
def test_a_csv_whose_shape_is_absurd_is_refused_by_line(tmp_path: Path, text: str, words: str) -> None:
    assert words in refused(load, written(tmp_path / "it.csv", text))


def test_gzip_that_expands_without_measure_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "it.csv.gz", "time,a\n" + f"0,{'1' * 60}\n" * 150_000)
    assert "expands to more than 8 MiB, over 100 times its size; decompress it first" in refused(load, path)


def test_few_lines_that_span_a_large_grid_are_refused(tmp_path: Path) -> None:
    lines = "".join(f"c{number},{number},1\n" for number in range(4000))
    path = written(tmp_path / "it.csv", "container,time,cpu\n" + lines)
    assert "4,000 intervals × 4,000 containers are more than max_cells = 12000000" in refused(load, path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time,a\n0,1e308\n1,1\n", "line 2, column a: '1e308'"),
        ("time,a\n0,9e18\n1,1\n", "line 2, column a: '9e18'"),
        ("time,a\n-1e308,1\n1e308,1\n", "line 2, column time: '-1e308'"),
        (
            "time,a\n2300-01-01T00:00:00,1\n2300-01-01T00:00:01,1\n",
            "line 2, column time: '2300-01-01T00:00:00'",
        ),
        (
            "time,a\n2024-02-28,1\n2024-02-30,1\n",
            "line 3, column time: '2024-02-30', expected an ISO 8601 time",
        ),
    ],
)
def test_a_number_or_date_at_which_arithmetic_ends_is_named(tmp_path: Path, text: str, words: str) -> None:
    assert words in refused(load, written(tmp_path / "it.csv", text))


BITBRAINS = "vm,timestamp,duration_ms,cpu_usage_mhz\n"
NEZHA = "app,day,TimeStamp,PodName,CpuUsage(m),MemoryUsage(Mi)\n"


@pytest.mark.parametrize(
    ("form", "text", "words"),
    [
        ("bitbrains", BITBRAINS + "1,2013-08-12T13:40:46,1e17,1\n", "more than 12000000 cells"),
        ("bitbrains", BITBRAINS + "1,2013-08-12T13:40:46,,1\n", "line 2, column duration_ms: an empty cell"),
        (
            "nezha",
            NEZHA + "TrainTicket,d,0,p,1,1\nTrainTicket,d,,p,1,1\n",
            "line 3, column TimeStamp: an empty cell",
        ),
        (
            "nezha",
            NEZHA + "TrainTicket,d,0,p,1,1\nTrainTicket,d,1e17,p,1,1\n",
            "are more than 12000000 cells",
        ),
        ("nezha", NEZHA + "TrainTicket,d,0,p,inf,1\n", "line 2, column CpuUsage(m): 'inf'"),
        ("nezha", NEZHA + "\n\nTrainTicket,d,0,p,x,1\n", "line 4, column CpuUsage(m): 'x'"),
    ],
)
def test_a_bad_cell_of_a_public_data_set_is_named(tmp_path: Path, form: str, text: str, words: str) -> None:
    path = written(tmp_path / "it.csv", text)
    assert words in refused(lambda file: load(file, format=form), path)


def parquet_of(path: Path, columns: dict[str, object]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet_is_judged_by_its_footer_before_its_rows_are_unpacked(tmp_path: Path) -> None:
    count = MOST_READ_CELLS + 1
    zeros = pa.array(np.zeros(count, np.int8))
    path = parquet_of(tmp_path / "it.parquet", {"container": pa.nulls(count, pa.string()), "time_s": zeros})
    assert path.stat().st_size < 1 << 20
    del zeros
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert f"{count} rows, expected at most {MOST_READ_CELLS}" in refused(load, path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({f"c{number}": [1] for number in range(65)}, "65 columns, expected at most 64"),
        ({"container": ["a"], "time_s": [[[0.0, 1.0]]]}, "has not one value a row"),
        ({"container": [{"a": {"b": 1}}]}, "column container holds"),
        ({"container": ["a"], "time_s": ["soon"]}, "column time_s holds 'string', expected numbers"),
    ],
    ids=["columns", "lists", "structures", "words"],
)
def test_parquet_of_another_shape_is_refused(tmp_path: Path, columns: dict[str, object], words: str) -> None:
    path = parquet_of(tmp_path / "it.parquet", columns)
    assert words in refused(parquet.read, path)


def test_a_footer_that_is_too_long_is_not_parsed(tmp_path: Path) -> None:
    table_ = pa.table({"a": [1]}).replace_schema_metadata({b"words": b"x" * parquet_file.MOST_FOOTER_BYTES})
    pq.write_table(table_, tmp_path / "it.parquet")
    assert "expected at most 4194304" in refused(parquet.read, tmp_path / "it.parquet")


@pytest.mark.parametrize(
    "error", [pa.ArrowMemoryError("malloc"), OSError("Couldn't deserialize thrift: std::bad_alloc")]
)
def test_a_want_of_memory_is_no_fault_of_the_file(tmp_path: Path, monkeypatch, error: Exception) -> None:
    def short(_: object) -> None:
        raise error

    path = tmp_path / "whole.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    monkeypatch.setattr(pq, "read_metadata", short)
    with pytest.raises(BackendError, match="not enough memory"), parquet_file.opened(path):
        pass


def test_a_word_that_is_repeated_takes_its_room_once(tmp_path: Path) -> None:
    """A dictionary of one long word stands for each of its rows."""
    count = 100_000
    word = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["w" * 100_000]))
    path = tmp_path / "it.parquet"
    pq.write_table(pa.table({"container": word}), path, store_schema=False)
    with parquet_file.opened(path, text=("container",)) as file:
        assert file.read().nbytes < 10_000_000


def test_a_table_of_numbers_and_words_is_refused_without_a_warning(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    # pandas reads a table of 42 columns in pieces of 16,384 rows, and warns where their types differ.
    more = ",0" * 40
    head = "t_s,available," + ",".join(f"c{number}" for number in range(40))
    text = head + "".join(f"\n{number},1{more}" for number in range(20_000)) + f"\nx,1{more}\n"
    with pytest.raises(TraceError, match="line 20002, column t_s: 'x'"):
        table.read_known(written(tmp_path / "it.csv", text), *[("t_s", "available")] * 2)
    assert not recwarn.list


def test_the_lines_of_a_table_are_those_of_the_file(tmp_path: Path) -> None:
    frame = table.read_text(written(tmp_path / "it.csv", "a,b\n\n1,2\n,\n3,4\n\n"), 10)
    assert frame.index.tolist() == [3, 5]
    assert frame["b"].tolist() == ["2", "4"]
