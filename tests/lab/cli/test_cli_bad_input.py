"""The answer to bad input: one clear line, exit code 2 (130 on Ctrl-C), and nothing half-written."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.runs.store import RunStore
from tests.lab.sample_traces import usage_trace
from tests.patience import PATIENCE_S
from traces import parquet

TWINBED = (sys.executable, "-m", "lab.cli.main")
HEADER = "container,time_s,cpu_cores,memory_mib\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (HEADER + "web,0,nan,1\nweb,1,1,1\n", ["line 2", "cpu_cores", "nan"]),
        (HEADER + "web,0,1,1\nweb,0,1,1\n", ["line 3", "'web'", "twice"]),
        ("", ["empty"]),
        ("\0\1\2\3", ["binary"]),
    ],
)
def test_a_bad_trace_is_refused_with_file_and_place(twinbed, tmp_path, store_path, content, wanted):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    refused = twinbed("whatif", path).refused
    assert refused.startswith(f"{path}: ")
    for text in wanted:
        assert text in refused
    assert not store_path.exists()


def test_a_csv_that_says_it_is_parquet_is_refused(twinbed, tmp_path):
    path = tmp_path / "bad.parquet"
    path.write_text(HEADER + "web,0,1,1\n")
    assert "not a readable Parquet file" in twinbed("whatif", path).refused


def test_a_parquet_file_that_is_cut_short_is_refused(twinbed, tmp_path):
    path = tmp_path / "cut.parquet"
    parquet.write(usage_trace(), path)
    path.write_bytes(path.read_bytes()[:2000])
    assert "not a readable Parquet file" in twinbed("whatif", path).refused


def test_a_trace_of_another_format_than_said_is_refused(twinbed, csv_path):
    assert str(csv_path) in twinbed("whatif", csv_path, "--trace-format", "sockshop").refused


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("polices: [escra]", ["polices", "did you mean 'policies'?"]),
        ("budget: {cpu_cores: -1, memory_bytes: 1000}", ["budget.cpu_cores", "-1"]),
        ("period_s: .nan", ["period_s"]),
        ("policies: [oracle]", ["policies.0", "no policy 'oracle'"]),
        ("policies: ['escra:kapa=1']", ["kapa", "kappa"]),
        ("calibration: nowhere.toml", ["nowhere.toml", "No such file"]),
    ],
)
def test_a_bad_scenario_is_refused_with_file_and_key(twinbed, tmp_path, csv_path, text, wanted):
    path = tmp_path / "bad.yaml"
    path.write_text(f"name: bad\ntrace: {{source: {csv_path.name}}}\n{text}\n")
    refused = twinbed("run", path).refused
    assert "bad.yaml" in refused or "nowhere.toml" in refused
    for each in wanted:
        assert each in refused


@pytest.mark.parametrize(
    ("scenario", "name", "line"),
    [
        ("market", "plannd", "no policy 'plannd'; close: planned"),
        ("cluster", "tiresius", "no policy 'tiresius'; close: tiresias"),
        ("failover", "bound", "no policy 'bound'; close: bond"),
        ("market", "oracle", "no policy 'oracle'; `twinbed policies` lists them"),
        # "close: none" would read as if nothing were close.
        ("market", "nope", "no policy 'nope'; `twinbed policies` lists them"),
    ],
)
def test_the_policies_that_are_close_are_those_of_all_kinds(twinbed, scenario, name, line):
    assert twinbed("run", scenario, "--set", f"policies=[{name}]").refused == f"--set: policies.0: {line}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--policy", "oracle"], "no policy 'oracle'"),
        (["--policy", "escra,,static"], "policy"),
        (["--policy", "static:factor=-1"], "static.factor"),
        (["--policy", "escra,escra"], "a policy or a seed is given twice"),
        (["--container", "wob"], "no container 'wob' in the trace; close: web"),
        (["--start", "1000"], "no interval begins"),
        (["--end", "0"], "'--end'"),
        (["--budget-factor", "-1"], "'--budget-factor'"),
        (["--set", "budgetfactor=1"], "did you mean 'budget_factor'?"),
        (["--set", "nonsense"], "expected KEY=VALUE"),
        (["--price", "1"], "--price 1: expected"),
        (["--price", "1,-2"], "--price 1,-2: expected"),
        (["--price", "nan,1"], "--price nan,1: expected"),
        (["--name", "../up"], "name"),
        (["--trace-format", "exel"], "no trace format 'exel'"),
    ],
)
def test_a_bad_option_is_refused_and_named(twinbed, csv_path, store_path, arguments, wanted):
    assert wanted in twinbed("whatif", csv_path, *arguments).refused
    assert not store_path.exists()


def test_a_trace_that_is_not_there_is_named_with_the_shipped_ones(twinbed):
    assert twinbed("whatif", "nowhere.csv").refused.startswith("nowhere.csv: no such file")


def test_a_url_without_a_bucket_is_not_a_folder_of_that_name(twinbed):
    refused = twinbed("runs", "list", "--store", "s3://").refused
    assert refused == "s3://: names no bucket; write s3://BUCKET/PREFIX"


def test_a_store_that_cannot_be_made_is_named(twinbed, csv_path):
    refused = twinbed("whatif", csv_path, "--policy", "static", "--store", "/proc/nowhere").refused
    assert refused.startswith("/proc/nowhere/mine-static-")
    assert "cannot be written" in refused


@pytest.mark.slow
def test_standard_output_that_is_full_is_one_line():
    with Path("/dev/full").open("w") as full:
        process = subprocess.run([*TWINBED, "policies"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert process.returncode == 2
    assert process.stderr == "twinbed: standard output: No space left on device\n"


@pytest.mark.slow
def test_an_output_of_which_a_part_found_room_is_one_line_also_without_a_buffer(tmp_path):
    # The file takes the first bytes, and then no more. Python's unbuffered output drops the rest silently.
    with (tmp_path / "out").open("w") as out:
        process = subprocess.run(
            ["prlimit", "--fsize=1000", *TWINBED, "policies"], stdout=out, stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": "1"}, text=True,
        )  # fmt: skip
    assert process.returncode == 2
    assert process.stderr == "twinbed: standard output: File too large\n"


@pytest.mark.apart
@pytest.mark.root
def test_a_full_disk_leaves_no_run_and_no_temporary_file(twinbed, csv_path, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a tiny file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        (disk / "filler").write_bytes(bytes(52 << 10))
        refused = twinbed("whatif", csv_path, "--policy", "escra", "--store", disk / "store").refused
        assert refused.startswith(f"{disk}/store/mine-escra-")
        assert "No space left on device" in refused
        left = sorted(path.name for path in (disk / "store").iterdir())
        assert [name for name in left if name != ".lock"] == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
def test_ctrl_c_in_the_middle_ends_with_130_and_leaves_no_half_written_run(tmp_path):
    trace, root = tmp_path / "long.parquet", tmp_path / "store"
    parquet.write(usage_trace(periods=60_000, count=40), trace)
    process = subprocess.Popen(
        [*TWINBED, "whatif", str(trace), "--policy", "static,escra", "--store", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # An interactive shell starts the command like this; a runner in the background may ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + PATIENCE_S
    # The first run is being written: the middle of the middle.
    while not list(root.glob(".new-*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (130, "", "twinbed: interrupted\n")
    assert list(root.glob(".new-*")) == []
    # The one that was being written is gone, unless it was whole before the signal came.
    store = RunStore(root)
    assert [problem for each in store.ids() for problem in store.open(each).verify()] == []


VERBS_THAT_WORK_LONG = [
    ("sweep", "market", "--vary", "cloud.job.checkpoint_s=600", "--out"),
    ("sweep", "market", "--vary", "cloud.job.checkpoint_s=600", "--html"),
    ("tune", "market", "--minimise", "cost_usd", "--over", "cloud.job.checkpoint_s=600:900", "--out"),
    ("calibrate", "--out"),
]


@pytest.mark.parametrize("verb", VERBS_THAT_WORK_LONG, ids=lambda verb: f"{verb[0]} {verb[-1]}")
def test_a_file_that_cannot_be_written_is_refused_before_the_work(twinbed, tmp_path, store_path, verb):
    (tmp_path / "folder.csv").mkdir()
    missing, folder = tmp_path / "no" / "such.csv", tmp_path / "folder.csv"
    line = f"{missing}: cannot be written, there is no folder {missing.parent}; make it or choose another"
    assert twinbed(*verb, missing).refused == line
    assert twinbed(*verb, folder).refused == f"{folder}: cannot be written, it is a folder; name a file in it"
    assert not store_path.exists()


@pytest.mark.parametrize(
    "verb",
    [
        ("advise", "mine.csv", "--out", "mine.csv"),
        ("advise", "mine.csv", "--html", "./mine.csv"),
        ("traces", "convert", "mine.csv", "mine.csv"),
        ("tune", "mine.csv", "--minimise", "cost", "--over", "a=1..2", "--out", "mine.csv"),
    ],
)
def test_a_file_that_is_read_is_not_written_over(twinbed, csv_path, monkeypatch, verb):
    monkeypatch.chdir(csv_path.parent)
    before = csv_path.read_bytes()
    assert "cannot be written, it is read, too" in twinbed(*verb).refused
    assert csv_path.read_bytes() == before


def test_two_files_of_one_name_are_refused(twinbed, csv_path, tmp_path):
    out = tmp_path / "advice"
    refused = twinbed("advise", csv_path, "--out", out, "--html", out).refused
    assert "it is to be written twice" in refused
    assert not out.exists()
