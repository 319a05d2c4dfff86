"""Timelines: valid Trace Event JSON, bounded, and nothing of one row lies over another."""

import gzip
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.ask.scenario import build
from lab.runs import timeline
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from lab.runs.timeline import Counter, Moments, Spans
from tests.lab.cluster.test_cluster_scenario import SMALL
from tests.lab.fabric.sample_fabric import SENDS

REQUIRED = {
    "M": {"name", "pid", "tid", "args"},
    "C": {"name", "pid", "tid", "ts", "args"},
    "X": {"name", "pid", "tid", "ts", "dur", "args"},
    "i": {"name", "pid", "tid", "ts", "s"},
}
"""Keys of each phase that we write (Trace Event Format, "Event Descriptions")."""

METADATA = {"process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"}
"""Names of metadata events (Trace Event Format, "Metadata Events")."""


def checked(path) -> list[dict]:
    """The events of a file that follows the Trace Event Format."""
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    # Perfetto's reader takes neither NaN nor infinity, which Python's does.
    document = json.loads(text, parse_constant=pytest.fail)
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(value, str) for value in document["otherData"].values())
    events = document["traceEvents"]
    at: dict[tuple[int, str], float] = {}
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        assert set(event) - {"ph"} == REQUIRED[event["ph"]]
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in METADATA
            assert list(map(type, event["args"].values())) == [str]
        else:
            assert event["ts"] >= 0
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
        if event["ph"] == "C":
            counter = event["pid"], event["name"]
            # trace_processor keeps one value for a counter and a time.
            assert event["ts"] > at.get(counter, -1.0)
            at[counter] = event["ts"]
            assert all(isinstance(value, float) for value in event["args"].values())
        if event["ph"] == "X":
            assert event["dur"] >= 0
            rows.setdefault((event["pid"], event["tid"]), []).append(
                (event["ts"], event["ts"] + event["dur"])
            )
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert set(rows) == named
    processes = {event["pid"] for event in events if event["name"] == "process_name"}
    assert {event["pid"] for event in events} <= processes
    for spans in rows.values():
        # Neighbours may touch: times are rounded where they become microseconds.
        assert all(first[1] <= second[0] * (1 + 1e-12) + 1e-3 for first, second in pairwise(sorted(spans)))
    return events


def counter(values) -> Counter:
    return Counter("web", "CPU", "cores", np.arange(len(values), dtype=float), np.array(values, float))


def test_a_counter_keeps_its_changes_alone(tmp_path):
    written = timeline.write([counter([1, 1, np.nan, 2, 2, 1])], tmp_path / "t.json", {"run": "a"})
    drawn = [event for event in checked(tmp_path / "t.json") if event["ph"] == "C"]
    assert [(event["ts"], event["args"]) for event in drawn] == [
        (0.0, {"cores": 1.0}),
        (3e6, {"cores": 2.0}),
        (5e6, {"cores": 1.0}),
    ]
    assert written.left_out == 0


@pytest.mark.parametrize(("most", "each"), [(40, 20), (6, 3)])
def test_a_file_is_bounded_and_keeps_extremes_and_the_longest_spans(tmp_path, monkeypatch, most, each):
    monkeypatch.setattr(timeline, "MOST_EVENTS", most)
    values = np.sin(np.arange(1000.0))
    begin_s = np.arange(100.0)
    spans = Spans("job", "steps", ["step"] * 100, begin_s, begin_s + np.arange(100) / 200, {})
    written = timeline.write([counter(values), spans], tmp_path / "t.json.gz", {})
    events = checked(tmp_path / "t.json.gz")
    kept = [event["args"]["cores"] for event in events if event["ph"] == "C"]
    assert len(kept) == each // 2 * 2
    assert {min(kept), max(kept)} == {values.min(), values.max()}
    assert min(event["ts"] for event in events if event["ph"] == "X") == (100 - each) * 1e6
    assert written.left_out == 1000 - len(kept) + 100 - each


def test_spans_for_which_no_row_is_free_are_left_out_and_later_ones_are_not(tmp_path):
    begin_s = np.array([0.0] * 201 + [1.0])
    spans = Spans("web", "get", ["get"] * 202, begin_s, begin_s + 1.0, {})
    assert timeline.write([spans], tmp_path / "t.json", {}).left_out == 1
    assert max(event["ts"] for event in checked(tmp_path / "t.json") if event["ph"] == "X") == 1e6


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 9)), min_size=1, max_size=60))
def test_spans_over_each_other_come_into_rows_of_their_own(tmp_path_factory, both):
    begin_s, length_s = np.array(both).T
    path = tmp_path_factory.mktemp("spans") / "t.json"
    track = Spans(
        "requests", "get", ["get"] * len(both), begin_s, begin_s + length_s, {"n": list(range(len(both)))}
    )
    timeline.write([track, Moments("web", ["oom"], np.array([1.0]))], path, {})
    assert sum(event["ph"] == "X" for event in checked(path)) == len(both)


@pytest.mark.slow
def test_requests_and_limits_of_a_stored_run_are_on_its_timeline(asked, tmp_path, twinbed):
    run = asked[1][0]
    file = tmp_path / "run.json"
    ended = twinbed("runs", "export", run.id, "--perfetto", file, "--store", asked[0].root)
    assert ended.code == 0, ended.err
    events = checked(file)
    requests = run.frame("requests")
    assert sum(event["ph"] == "X" for event in events) == np.isfinite(requests["latency_s"]).sum()
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert {"CPU limit", "CPU used", "memory limit", "memory used"} <= counters
    processes = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert set(run.frame("containers")["container"]) < processes


def test_export_takes_one_target(twinbed, stored):
    ended = twinbed("runs", "export", stored[1][0].id, "--store", stored[0].root)
    assert ended.code == 2
    assert "either a PATH" in ended.err


@pytest.mark.slow
def test_jobs_and_faults_of_the_other_kinds_are_spans(tmp_path):
    store = RunStore(tmp_path / "runs")
    (cluster, *_) = run_scenario(build(SMALL), store)
    broken = {**SENDS, "policies": ["thorn"], "seeds": [0], "vary": {"fabric.faults.kind": ["single"]}}
    (fabric,) = run_scenario(build(broken), store)
    for run, tables, track in ((cluster, ["spans"], "server 0"), (fabric, ["series", "outages"], "fault 0")):
        timeline.write(run.kind.timeline(run), tmp_path / "t.json", {})
        events = checked(tmp_path / "t.json")
        rows = sum(len(run.frame(table)) for table in tables)
        assert sum(event["ph"] == "X" for event in events) == rows
        assert any(
            event["name"] == "thread_name" and event["args"]["name"].startswith(track) for event in events
        )
