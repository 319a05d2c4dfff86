"""The background process: finishes, fails in one line, is cancelled without a trace, never outlives us."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lab.containers.input.whatif import whatif_scenario
from lab.explorer.job import Job
from lab.explorer.uploads import accept, lend
from lab.explorer.worker import Request
from lab.runs.store import RunStore
from tests.lab.sample_traces import usage_trace
from traces import parquet

PATIENCE_S = 60.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory) -> Path:
    """So long that a run of it is always still going on when a test looks."""
    path = tmp_path_factory.mktemp("long") / "long.parquet"
    parquet.write(usage_trace(periods=60_000, count=24), path)
    return path


def request(source: Path | str, store: Path, *policies: str, **values) -> Request:
    return Request.of(whatif_scenario(source, policies or ("static", "escra")), store, **values)


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    """False also for a zombie that nobody has waited for: it must not be there either."""
    return Path(f"/proc/{pid}").exists()


def started(job: Job) -> bool:
    return job.status().fraction > 0 or job.status().phase != "running"


def test_it_stores_the_runs_and_reports_progress(recordings, tmp_path):
    job = Job(request(recordings / "sample.parquet", tmp_path))
    status = job.wait(PATIENCE_S)
    assert (status.phase, status.message, status.fraction) == ("done", "", 1.0)
    assert list(status.runs) == [run.id for run in map(RunStore(tmp_path).open, status.runs)]
    assert not alive(job.pid)


def test_the_same_request_gives_the_run_that_the_command_line_would(stored, recordings, tmp_path):
    job = Job(request(recordings / "sample.parquet", tmp_path, "escra"))
    assert job.wait(PATIENCE_S).runs == (stored[1][0].id,)


def test_a_users_mistake_is_one_line(tmp_path):
    job = Job(request("no-such-trace", tmp_path))
    status = job.wait(PATIENCE_S)
    assert status.phase == "failed"
    assert "no-such-trace" in status.message
    assert "\n" not in status.message
    assert "Traceback" not in status.message


def test_cancelling_ends_the_child_and_leaves_nothing_half_written(long_trace, tmp_path):
    job = Job(request(long_trace, tmp_path, "escra"))
    assert eventually(lambda: started(job))
    job.cancel()
    assert job.status().phase == "cancelled"
    assert not alive(job.pid)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_child_that_was_killed_is_reported_in_one_line(long_trace, tmp_path):
    job = Job(request(long_trace, tmp_path, "escra"))
    os.kill(job.pid, 9)
    status = job.wait(PATIENCE_S)
    assert status.phase == "failed"
    assert "killed by the system" in status.message


def test_a_job_that_nobody_holds_any_more_is_ended(long_trace, tmp_path):
    job = Job(request(long_trace, tmp_path, "escra"))
    pid = job.pid
    assert alive(pid)
    del job
    gc.collect()
    assert eventually(lambda: not alive(pid))


def test_a_job_that_nobody_asks_about_is_ended(long_trace, tmp_path):
    job = Job(request(long_trace, tmp_path, "escra"), lease_s=1.0)
    assert eventually(lambda: not alive(job.pid))
    assert job.wait(PATIENCE_S).phase == "cancelled"


def test_the_child_ends_when_the_explorer_is_killed(long_trace, tmp_path):
    script = (
        "import sys, time\n"
        "from lab.explorer.job import Job\nfrom lab.explorer.worker import Request\n"
        f"asked = {{'name': 'long', 'trace': {{'source': {str(long_trace)!r}}}, 'policies': ['escra']}}\n"
        f"job = Job(Request(asked, {str(tmp_path)!r}))\n"
        "while not job.status().fraction: time.sleep(0.02)\n"
        "print(job.pid, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as explorer:
        assert explorer.stdout is not None
        pid = int(explorer.stdout.readline())
        explorer.kill()
    # Whoever inherits the orphan may be slow to wait for it; a zombie has no memory map any more.
    assert eventually(lambda: not alive(pid) or not Path(f"/proc/{pid}/maps").read_text())


def test_a_process_that_cannot_be_started_leaves_no_upload_behind(tmp_path, monkeypatch):
    folder = lend(accept("mine.csv", b"time_s,web\n0,1\n"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(OSError, match="no-python"):
        Job(request("mine.csv", tmp_path, folder=str(folder)))
    assert not folder.exists()


def test_an_uploads_folder_is_gone_when_the_job_is(tmp_path):
    rows = [f"web,{second},{0.5 + 0.1 * np.sin(second):.3f},1000000" for second in range(30)]
    text = "\n".join(["container,time_s,cpu_cores,memory_bytes", *rows]) + "\n"
    folder = lend(accept("mine.csv", text.encode()))
    job = Job(request("mine.csv", tmp_path, "static", folder=str(folder)))
    status = job.wait(PATIENCE_S)
    assert status.phase == "done", status.message
    assert not folder.exists()
    (run,) = map(RunStore(tmp_path).open, status.runs)
    assert run.manifest["inputs"][0]["source"] == "mine.csv"
