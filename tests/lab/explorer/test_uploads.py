"""Uploads are bounded, checked like the command line checks files, and leave nothing behind."""

import gzip
import tempfile
from dataclasses import replace

import numpy as np
import pytest

from lab.explorer import limits, reading, uploads
from tests.lab.sample_traces import usage_trace
from traces import parquet
from traces.load import load
from twinbed import TraceError

GOOD = b"container,time_s,cpu_cores,memory_bytes\n" + b"".join(
    b"web,%d,0.5,1000000\n" % second for second in range(20)
)
BAD = GOOD.replace(b"web,7,0.5", b"web,7,-0.5")


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_good_trace_is_read_and_nothing_stays_on_disk(temporary):
    trace = reading.trace(uploads.accept("mine.csv", GOOD))
    assert trace.containers == ("web",)
    assert list(temporary.iterdir()) == []


def test_a_gzipped_trace_is_read(temporary):
    assert reading.trace(uploads.accept("mine.csv.gz", gzip.compress(GOOD))).containers == ("web",)


def test_a_bad_trace_gets_the_text_of_the_command_line(temporary, monkeypatch):
    with pytest.raises(TraceError) as uploaded:
        reading.trace(uploads.accept("mine.csv", BAD))
    assert list(temporary.iterdir()) == []
    (temporary / "mine.csv").write_bytes(BAD)
    monkeypatch.chdir(temporary)
    with pytest.raises(TraceError) as loaded:
        load("mine.csv")
    assert str(uploaded.value) == str(loaded.value)
    assert "\n" not in str(uploaded.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("mine.exe", GOOD, "its name must end in one of .csv, .parquet, .json, .txt, .om, .gz"),
        ("mine.csv", b"", "empty"),
        ("mine.csv", bytes((uploads.MAX_MIB << 20) + 1), f"{uploads.MAX_MIB} MiB"),
        ("mine.parquet", b"PAR1 not really", "mine.parquet"),
    ],
)
def test_what_cannot_be_a_trace_is_refused_in_one_line(name, content, said, temporary):
    with pytest.raises(TraceError, match=said) as refused:
        reading.trace(uploads.accept(name, content))
    assert "\n" not in str(refused.value)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["../../etc/passwd.csv", "..\\..\\x.csv", "/abs/x.csv", "a\nb;c.csv", ".csv"]
)
def test_a_name_cannot_leave_its_folder(name, temporary):
    folder = uploads.lend(uploads.accept(name if name != ".csv" else "..csv.csv", GOOD))
    assert [path.parent for path in folder.iterdir()] == [folder]
    assert folder.parent == temporary
    assert folder.stat().st_mode & 0o077 == 0


def test_a_file_that_needs_too_much_memory_is_one_line_and_the_explorer_lives(temporary, monkeypatch):
    monkeypatch.setattr(limits, "READ_BYTES", 400 << 20)
    zeros = np.zeros((400_000, 20))
    trace = replace(
        usage_trace(periods=10, count=20), cpu_cores=zeros, memory_bytes=zeros, present=zeros == 0
    )
    parquet.write(trace, temporary / "large.parquet")
    squeezed = (temporary / "large.parquet").read_bytes()
    (temporary / "large.parquet").unlink()
    with pytest.raises(TraceError, match=r"squeezed\.parquet: .*memory") as refused:
        reading.trace(uploads.accept("squeezed.parquet", squeezed))
    assert "\n" not in str(refused.value)
    assert list(temporary.iterdir()) == []


def test_a_file_that_takes_too_long_is_one_line_and_its_reader_is_ended(temporary, monkeypatch):
    monkeypatch.setattr(limits, "READ_S", 0.05)
    with pytest.raises(TraceError, match=r"slow\.csv: reading it takes longer") as refused:
        reading.trace(uploads.accept("slow.csv", GOOD))
    assert "\n" not in str(refused.value)
    assert list(temporary.iterdir()) == []


def test_an_upload_is_not_read_by_the_explorer_itself(temporary, monkeypatch):
    def forbidden(*_arguments):
        raise AssertionError("read in this process")

    for reader in ("load", "_job"):
        monkeypatch.setattr(reading, reader, forbidden)
    assert reading.trace(uploads.accept("apart.csv", GOOD)).containers == ("web",)
    job = uploads.Upload("mine.yaml", b"name: mine\nbatch: 8\n")
    assert reading.job("", job, None).batch == 8
