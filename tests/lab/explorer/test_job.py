"""The background process: finishes, fails in one line, is cancelled without a trace, never outlives us."""

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lab.containers.input.whatif import whatif_scenario
from lab.explorer import job as job_module
from lab.explorer import limits
from lab.explorer.job import Job, Queue
from lab.explorer.uploads import accept, lend
from lab.explorer.worker import Request
from lab.runs.store import RunStore
from tests.lab.explorer.waiting_work import Waiting
from tests.lab.sample_traces import usage_trace
from tests.patience import PATIENCE_S
from traces import parquet
from twinbed import BackendError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory):
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
    return job.status().fraction > 0 or job.status().ended


def test_it_stores_the_runs_that_the_command_line_would_and_reports_progress(stored, recordings, tmp_path):
    job = Job(request(recordings / "sample.parquet", tmp_path))
    status = job.wait(PATIENCE_S)
    assert (status.phase, status.message, status.fraction) == ("done", "", 1.0)
    assert list(status.runs) == [run.id for run in map(RunStore(tmp_path).open, status.runs)]
    assert set(status.runs) == {run.id for run in stored[1] if run.policy in ("static", "escra")}
    assert not alive(job.pid)


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


def test_a_child_that_was_killed_is_reported_in_one_line():
    job = Job(Waiting())
    assert eventually(lambda: job.pid is not None)
    os.kill(job.pid, 9)
    status = job.wait(PATIENCE_S)
    assert status.phase == "failed"
    assert "killed by the system" in status.message


def test_a_job_that_nobody_holds_any_more_is_ended():
    job = Job(Waiting())
    assert eventually(partial(started, job))
    pid = job.pid
    assert alive(pid)
    del job
    gc.collect()
    assert eventually(lambda: not alive(pid))


def test_the_work_of_a_visitor_who_left_is_ended():
    here = threading.Event()
    here.set()
    job = Job(Waiting(), here.is_set, leave_s=0.5)
    assert eventually(lambda: started(job))
    pid = job.pid
    here.clear()
    assert job.wait(PATIENCE_S).phase == "cancelled"
    assert not alive(pid)


def test_a_visitor_who_is_away_for_a_moment_keeps_the_work():
    answers = iter([False])
    job = Job(Waiting(0.6), lambda: next(answers, True))
    assert job.wait(PATIENCE_S).phase == "done"


def test_the_work_of_a_visitor_who_left_ends_within_twenty_seconds():
    assert limits.LEAVE_S + job_module._LOOK_S + job_module._GRACE_S < 20


def test_at_most_so_many_jobs_of_all_visitors_run_and_the_others_see_their_place():
    queue = Queue(workers=1, length=2)
    jobs = [Job(Waiting(), queue=queue) for _ in range(3)]
    first, second, third = jobs
    assert eventually(lambda: started(first))
    assert [job.status().place for job in jobs] == [0, 1, 2]
    assert [job.status().phase for job in jobs] == ["running", "waiting", "waiting"]
    assert second.pid is None
    with pytest.raises(BackendError, match="2 wait"):
        Job(Waiting(), queue=queue)
    second.cancel()
    assert second.status().phase == "cancelled"
    assert third.status().place == 1
    first.cancel()
    assert eventually(lambda: third.status().phase == "running")
    third.cancel()


def test_a_job_that_waits_is_ended_when_its_visitor_leaves():
    queue = Queue(workers=1, length=1)
    first = Job(Waiting(), queue=queue)
    assert eventually(lambda: first.status().phase == "running")
    second = Job(Waiting(), lambda: False, queue=queue, leave_s=0.1)
    assert second.wait(PATIENCE_S).phase == "cancelled"
    assert second.pid is None
    first.cancel()


def test_a_job_that_takes_too_long_is_ended_in_one_line():
    job = Job(Waiting(), run_s=0.5)
    status = job.wait(PATIENCE_S)
    assert status.phase == "failed"
    assert "took longer than" in status.message
    assert not alive(job.pid)


def test_a_job_that_needs_too_much_memory_fails_in_one_line(long_trace, tmp_path):
    asked = replace(request(long_trace, tmp_path, "escra"), memory_bytes=96 << 20)
    status = Job(asked).wait(PATIENCE_S)
    assert status.phase == "failed"
    assert "0.1 GB" in status.message
    assert "\n" not in status.message


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
    status = Job(request("mine.csv", tmp_path, folder=str(folder))).wait(PATIENCE_S)
    assert status.phase == "failed"
    assert "no-python" in status.message
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
