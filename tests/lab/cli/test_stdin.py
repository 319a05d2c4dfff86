"""`-` in place of a trace or a scenario."""

import io
import json
import sys
import tempfile

import pytest

from lab.ask import guard
from lab.runs.store import RunStore

SCENARIO = b"""
name: piped
workload:
  containers: [{name: web, threads: 1, memory_bytes: 1000000, steps: [{duration_s: 5, cpu_cores: 1}]}]
policies: [static]
host_cores: 2
"""


@pytest.fixture
def pipe(monkeypatch, tmp_path):
    """Return what puts bytes on standard input; copies of it are made in tmp_path."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def put(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return put


def test_a_trace_comes_from_standard_input(twinbed, pipe, csv_path, tmp_path):
    pipe(csv_path.read_bytes())
    told = json.loads(twinbed("traces", "inspect", "-", "--format", "json").out)
    assert told["facts"]["trace"] == "-"
    assert [row["container"] for row in told["rows"]] == ["web", "db"]
    assert not list(tmp_path.glob("twinbed-stdin-*"))


def test_a_history_from_standard_input_shows_no_path_of_its_copy(twinbed, pipe):
    line = 'container_cpu_usage_seconds_total{{namespace="a",pod="b-0",container="c"}} {0} {0}\n'
    pipe(("".join(line.format(time_s) for time_s in range(1, 9)) + "# EOF\n").encode())
    shown = twinbed("traces", "inspect", "-")
    assert shown.code == 0, shown.err
    assert "twinbed-stdin" not in shown.out


def test_a_recording_in_parquet_comes_from_standard_input(twinbed, pipe, trace_path):
    pipe(trace_path.read_bytes())
    assert twinbed("traces", "inspect", "-").code == 0


def test_a_replay_of_standard_input_names_it_and_has_the_id_of_the_same_file(
    twinbed, pipe, csv_path, store_path
):
    call = ("--policy", "static", "--name", "same", "--no-progress")
    assert twinbed("whatif", csv_path, *call).code == 0
    (by_file,) = RunStore(store_path).ids()
    pipe(csv_path.read_bytes())
    assert twinbed("whatif", "-", *call).code == 0
    assert RunStore(store_path).ids() == [by_file]
    assert RunStore(store_path).open(by_file).manifest["inputs"][0]["source"] == "-"


def test_a_mistake_in_a_piped_trace_is_named_by_a_dash(twinbed, pipe):
    pipe(b"container,time_s,cpu_cores\nweb,0,1\nweb,1,many\n")
    assert twinbed("traces", "inspect", "-").refused.startswith("-: line 3, column cpu_cores")


def test_an_empty_pipe_is_refused(twinbed, pipe):
    pipe(b"")
    assert twinbed("traces", "inspect", "-").refused.startswith("-: standard input is empty")
    assert twinbed("run", "-").refused.startswith("-: empty file; expected keys and values")


def test_a_pipe_is_bounded_as_a_file_is(twinbed, pipe, monkeypatch):
    monkeypatch.setattr("traces.parquet_file.MOST_FILE_BYTES", 10)
    pipe(b"container,time_s,cpu_cores\n")
    assert twinbed("traces", "inspect", "-").refused.startswith("-: larger than")
    pipe(b"#" * (guard.MOST_BYTES + 1))
    assert twinbed("run", "-").refused.startswith("-: larger than")


def test_standard_input_is_read_once(twinbed, pipe):
    assert "give `-` once" in twinbed("advise", "-", "-").refused


def test_a_scenario_comes_from_standard_input(twinbed, pipe, store_path):
    pipe(SCENARIO)
    assert twinbed("run", "-", "--no-progress").code == 0
    assert RunStore(store_path).ids()[0].startswith("piped-static-")


def test_a_mistake_in_a_piped_scenario_is_named_by_a_dash(twinbed, pipe):
    pipe(b"name: piped\npolicis: [static]\n")
    assert twinbed("run", "-").refused.startswith("-: policis")
