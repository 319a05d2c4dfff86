import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from control.jobs import LocalRun
from lab.cloud.input import local_run_file
from twinbed import ScenarioError

SERIES = np.arange(6.0).reshape(3, 2)
RUN = LocalRun(
    1.0, SERIES, SERIES * 1e6, SERIES * 10, SERIES * 20, np.array([0.1, 0.2]), 32, 1000, ("Linear",), "Adam",
    7.0, 3072.0, 10.0,
)  # fmt: skip


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "a.parquet"
    local_run_file.write(RUN, ("master", "worker-1"), {"kernel": "6"}, file)
    return file


def test_what_is_written_is_read(path):
    read = local_run_file.read(path)
    for name in LocalRun.__slots__:
        np.testing.assert_array_equal(getattr(read, name), getattr(RUN, name))


def changed(path, **values):
    table = pq.read_table(path)
    stated = json.loads(table.schema.metadata[b"twinbed.local_run"]) | values
    stated = {key: value for key, value in stated.items() if value is not None}
    pq.write_table(table.replace_schema_metadata({b"twinbed.local_run": json.dumps(stated)}), path)
    return path


def test_what_an_older_file_does_not_say_is_not_known(path):
    older = dict.fromkeys(("optimiser", "non_trainable", "input_size", "output_size"))
    read = local_run_file.read(changed(path, **older))
    assert read.optimiser == ""
    assert np.isnan([read.non_trainable, read.input_size, read.output_size]).all()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"version": 2}, "version 2, and this twinbed reads 1"),
        ({"batch": None}, "incomplete: 'batch'"),
        ({"processes": ["a"] * 4}, "incomplete"),
        ({"step_s": []}, "step_s is empty"),
        ({"step_s": [float("nan")]}, "step_s.0: nan is not a finite number"),
    ],
)
def test_a_file_that_is_not_whole_says_why(path, values, message):
    with pytest.raises(ScenarioError, match=message):
        local_run_file.read(changed(path, **values))


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff"])
def test_metadata_that_are_no_mapping_are_refused(path, content):
    table = pq.read_table(path).replace_schema_metadata({b"twinbed.local_run": content})
    pq.write_table(table, path)
    with pytest.raises(ScenarioError, match="profile the job again"):
        local_run_file.read(path)


def test_other_files_are_refused(tmp_path):
    other = tmp_path / "b.parquet"
    pq.write_table(pa.table({"a": [1]}), other)
    with pytest.raises(ScenarioError, match="not a local run"):
        local_run_file.read(other)
    other.write_text("no")
    with pytest.raises(ScenarioError, match="not a readable Parquet file"):
        local_run_file.read(other)


def test_a_local_run_that_is_no_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ScenarioError, match=r"pipe: is a FIFO, not a regular file"):
        local_run_file.read(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ('{"version": 1, "batch": 1e999}', "batch: inf is not a finite number"),
        ("[" * 100_000, "nested deeper than 32 levels"),
        ('{"version": 1, "version": 1}', "key 'version' is given twice"),
    ],
)
def test_metadata_beyond_the_limits_is_refused_by_name(tmp_path, stated, said):
    table = pa.table({"at_s": [0.0]}).replace_schema_metadata({b"twinbed.local_run": stated.encode()})
    pq.write_table(table, tmp_path / "mine.parquet")
    with pytest.raises(ScenarioError, match=said):
        local_run_file.read(tmp_path / "mine.parquet")
