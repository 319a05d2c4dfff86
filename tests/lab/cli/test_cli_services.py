"""`twinbed run` with clients and an application: what works, and what is refused in one line."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from lab.runs.store import RunStore
from tests.lab.sample_services import TINY, services, write_app
from tests.patience import PATIENCE_S

TWINBED = (sys.executable, "-m", "lab.cli.main")


@pytest.fixture
def app(tmp_path):
    return write_app(tmp_path)


def scenario_file(folder, app, *, within=None, **changes):
    raw = {"name": "mine", "services": services(app, **(within or {})), "policies": ["static"]} | changes
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(raw, sort_keys=False))
    return path


def test_latency_comes_first_and_says_what_was_asked_of_what(twinbed, tmp_path, app):
    ended = twinbed("run", scenario_file(tmp_path, app, policies=["escra", "static"]))
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert "requests" in lines[1]
    assert "to tiny, arrivals exponential rate_rps=50, 2 s" in lines[1]
    figures = [line for line in lines if line.startswith(("Throughput", "Latency p99.9", "CPU slack p80"))]
    assert len(figures) == 3
    assert "Job time" not in ended.out
    assert "Lower is better in every line except throughput" in ended.out
    assert "Peaks are those of a profiling run" in " ".join(ended.out.split())


def test_json_has_every_metric_even_those_that_nobody_has(twinbed, tmp_path, app):
    ended = twinbed("run", scenario_file(tmp_path, app), "--format", "json")
    row = ended.rows[0]
    assert row["latency_p99_s"] > 0
    assert row["makespan_s"] is None


def test_what_varies_stands_in_the_labels_and_can_be_fixed(twinbed, tmp_path, app):
    path = scenario_file(tmp_path, app, vary={"services.arrivals": ["fixed", "burst"]})
    both = twinbed("run", path, "--jobs", "1", "--format", "csv").out.splitlines()
    assert [line.split(",")[0] for line in both[1:]] == ["static arrivals=fixed", "static arrivals=burst"]
    one = twinbed("run", path, "--set", "services.arrivals=burst", "--format", "csv").out.splitlines()
    assert [line.split(",")[0] for line in one[1:]] == ["static"]


def test_stored_requests_are_shown_queried_and_exported_with_their_run(twinbed, tmp_path, app, csv_path):
    twinbed("run", scenario_file(tmp_path, app))
    twinbed("whatif", csv_path, "--policy", "static")
    ids = twinbed("runs", "list", "--format", "json").rows
    with_requests = next(row["id"] for row in ids if row["throughput_rps"])
    shown = twinbed("runs", "show", with_requests)
    assert shown.code == 0
    assert "application" in shown.out
    assert "arrivals" in shown.out
    counted = twinbed(
        "runs", "query", "SELECT run, count(*) AS n FROM requests GROUP BY run", "--format", "json"
    )
    rows = counted.rows
    assert [row["run"] for row in rows] == [with_requests]
    assert rows[0]["n"] > 50
    assert twinbed("runs", "export", with_requests, tmp_path / "out").code == 0
    assert (tmp_path / "out" / "requests.parquet").is_file()


CYCLE = {
    "web": {"handlers": {"page": {"cpu_ms": 1.0, "calls": ["db.find"]}}},
    "db": {"handlers": {"find": {"cpu_ms": 1.0, "calls": ["web.page"]}}},
}
MISSING = {"web": {"handlers": {"page": {"cpu_ms": 1.0, "calls": ["bd.find"]}}}, "db": CYCLE["db"]}


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"services": CYCLE}, "cycle: web.page → db.find → web.page"),
        ({"services": MISSING}, "no service 'bd'; did you mean 'db'?"),
        (
            {"requests": {"page": {"handler": "web.pag"}}},
            "requests.page.handler: web has no handler 'pag'; did you mean 'page'?",
        ),
    ],
)
def test_a_bad_application_is_refused_with_file_and_place(twinbed, tmp_path, store_path, changed, wanted):
    app = write_app(tmp_path, **changed)
    refused = twinbed("run", scenario_file(tmp_path, app)).refused
    assert refused.startswith(f"{app}: ")
    assert wanted in refused
    assert not store_path.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("within", "changes", "wanted"),
    [
        ({"app": "hipstershop"}, {}, "did you mean 'hipster_shop'?"),
        ({"app": "gone.yaml"}, {}, "gone.yaml: No such file"),
        ({"arrivals": "brust"}, {}, "services.arrivals"),
        ({"arrivals": {"kind": "fixed", "rate_rps": 0.0}}, {}, "services.arrivals"),
        ({"arrivals": {"kind": "fixed", "rate_rps": -1.0}}, {}, "services.arrivals"),
        ({"arrivals": {"kind": "rates", "file": "gone.csv"}}, {}, "gone.csv"),
        ({"duration_s": 0.0}, {}, "services.duration_s"),
        ({"hosts": 0}, {}, "services.hosts"),
        ({"phasen": 2}, {}, "services.phasen: unknown key; did you mean 'phases'?"),
        ({}, {"budget": {"cpu_cores": 0.0, "memory_bytes": 1}}, "budget.cpu_cores"),
        ({}, {"policies": ["static:factor=0"]}, "static.factor"),
        ({}, {"host_cores": 0.0}, "host_cores"),
        ({}, {"vary": {"services.hosts": [1, 0]}}, "services.hosts=0 (vary)"),
        ({}, {"vary": {"services.host": [1]}}, "did you mean 'hosts'?"),
        ({}, {"trace": {"source": "x"}}, "give one of"),
    ],
)
def test_a_bad_scenario_of_services_is_refused_and_named(
    twinbed, tmp_path, store_path, app, within, changes, wanted
):
    refused = twinbed("run", scenario_file(tmp_path, app, within=within, **changes)).refused
    assert wanted in refused
    assert not store_path.exists()


def test_more_than_all_capacity_ends_counts_what_failed_and_says_saturated(twinbed, tmp_path):
    # 20 ms on one CPU is 50 requests a second at most; 300 are asked for and 10 may wait.
    web = {"threads": 1, "workers": 4, "queue": 10, "handlers": {"page": {"cpu_ms": 20.0}}}
    app = write_app(tmp_path, services={"web": web, "db": TINY["services"]["db"]})
    arrivals = {"kind": "fixed", "rate_rps": 300.0}
    ended = twinbed("run", scenario_file(tmp_path, app, within={"arrivals": arrivals}), "--format", "json")
    assert ended.code == 0
    result = json.loads(ended.out)
    row = result["rows"][0]
    assert 0.75 < row["failed_share"] < 0.9
    assert row["turned_away"] > 300
    notes = " ".join(result["notes"])
    assert "web is saturated whatever its limits are: it needs 6 cores" in notes
    assert "most of these were turned away, because a queue was full. So web was saturated" in notes


def test_an_endless_queue_leaves_requests_pending_and_says_saturated(twinbed, tmp_path):
    web = {"threads": 1, "queue": 100_000, "handlers": {"page": {"cpu_ms": 20.0}}}
    app = write_app(tmp_path, services={"web": web, "db": TINY["services"]["db"]})
    arrivals = {"kind": "fixed", "rate_rps": 300.0}
    ended = twinbed("run", scenario_file(tmp_path, app, within={"arrivals": arrivals}), "--format", "json")
    result = json.loads(ended.out)
    assert result["rows"][0]["failed_share"] > 0.7
    assert any("saturated" in note and "not ended when the run ended" in note for note in result["notes"])


@pytest.mark.slow
def test_ctrl_c_while_several_processes_work_leaves_none_of_them_and_nothing_half_written(tmp_path, app):
    root = tmp_path / "store"
    path = scenario_file(
        tmp_path, app, within={"duration_s": 600.0}, policies=["static", "escra"], seeds=[0, 1, 2, 3]
    )
    process = subprocess.Popen(
        [*TWINBED, "run", str(path), "--jobs", "2", "--store", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A terminal sends Ctrl-C to the whole group.
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + PATIENCE_S
    while not list(root.glob("mine-*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (130, "", "twinbed: interrupted\n")
    # Python's own tracker of shared resources ends a moment after the process that it serves.
    while _is_group(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_group(process.pid)
    store = RunStore(root)
    assert [each.name for each in root.iterdir() if each.name.startswith((".new", ".old"))] == []
    assert store.ids()
    assert [problem for each in store.ids() for problem in store.open(each).verify()] == []


def _is_group(leader):
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True
