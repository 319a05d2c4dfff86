"""Reads uploads in a child process with bounded memory and time: `python -m lab.explorer.reading`.

For: traces, job files and local runs from untrusted users. A file that makes its reader use all memory, or
never end, only ends the child. The child reads one JSON line and writes one. Not for: the formats (traces,
lab.cloud.input) or the names of uploads (lab.explorer.uploads).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from control.jobs import Job, LocalRun
from lab.ask import shipped
from lab.cloud.input import job_file
from lab.explorer import limits
from lab.explorer.trace_facts import TraceFacts, facts
from lab.explorer.uploads import Upload, lend
from traces.load import load
from twinbed import ScenarioError, TraceError, TwinbedError

_ANSWER_BYTES = 16 << 20
"""Longest answer of a child, bytes. A trace's facts have some 100 KiB."""
_ARRAYS = ("cpu_cores", "memory_bytes", "net_in_bytes", "net_out_bytes", "step_s")
_one_at_a_time = threading.Lock()


def trace(upload: Upload) -> TraceFacts:
    """Return the facts of an uploaded trace. Raises TraceError with the text of the command line."""
    answer = _answer("trace", "", (upload,))
    if "error" in answer:
        raise TraceError(answer["error"])
    return TraceFacts.of_plain(answer)


def job(name: str, file: Upload | None, local_run: Upload | None) -> Job:
    """Return the job of an uploaded file, or the shipped job `name`, with the uploaded local run, if any.

    Raises ScenarioError naming file and key.
    """
    given = tuple(upload for upload in (file, local_run) if upload is not None)
    wanted = {"name": name, "file": file and file.name, "local_run": local_run and local_run.name}
    try:
        answer = _answer("job", json.dumps(wanted), given)
    except TraceError as error:
        raise ScenarioError(str(error)) from None
    if "error" in answer:
        raise ScenarioError(answer["error"])
    if run := answer["local_run"]:
        arrays = {key: np.array(run[key], dtype=np.float64) for key in _ARRAYS}
        answer["local_run"] = LocalRun(**{**run, **arrays, "layers": tuple(run["layers"])})
    return Job(**answer)


@st.cache_data(max_entries=16, show_spinner="Reading the file")
def _answer(sort: str, wanted: str, given: tuple[Upload, ...]) -> dict[str, Any]:
    """Return the child's answer. Raises TraceError if there is none; only answers are kept."""
    names = " and ".join(upload.name for upload in given)
    if not _one_at_a_time.acquire(timeout=2 * limits.READ_S):
        raise TraceError(f"{names}: other visitors' files are being read; upload it again in a minute")
    folder = None
    try:
        folder = lend(*given)
        child = subprocess.run(
            [sys.executable, "-m", "lab.explorer.reading"],
            input=json.dumps(
                [limits.READ_BYTES, sort, wanted, str(folder), *(upload.name for upload in given)]
            ),
            stdout=subprocess.PIPE,
            text=True,
            timeout=limits.READ_S,
        )
    except subprocess.TimeoutExpired:
        raise TraceError(
            f"{names}: reading it takes longer than {limits.READ_S:g} s; make it smaller, or use the command "
            "line"
        ) from None
    except OSError as error:
        raise TraceError(f"{names}: cannot be read: {error.strerror}") from None
    finally:
        _one_at_a_time.release()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    if child.returncode or not child.stdout:
        raise TraceError(f"{names}: {_too_much()}")
    answer: dict[str, Any] = json.loads(child.stdout)
    return answer


def _too_much() -> str:
    return (
        f"reading it needs more than {limits.READ_BYTES / (1 << 30):g} GiB of memory, or fails; make it "
        "smaller, or use the command line"
    )


def main() -> int:
    """Read the request on standard input and write the answer. Return 0 if there is one."""
    # An orphan ends too, because its explorer cannot end it any more.
    signal.alarm(round(2 * limits.READ_S))
    most_bytes, sort, wanted, folder, *names = json.loads(sys.stdin.readline())
    limits.bound_memory(most_bytes)
    # Messages then contain the file's name instead of its temporary path.
    os.chdir(folder)
    try:
        answer = facts(load(names[0])).plain() if sort == "trace" else _job(**json.loads(wanted))
        text = json.dumps(answer, default=np.ndarray.tolist)
        if len(text) > _ANSWER_BYTES:
            raise TraceError(f"{names[0]}: too many containers or samples; use the command line")
    except (TwinbedError, MemoryError) as error:
        # A reader takes Arrow's lack of memory for a damaged file.
        short = isinstance(error, MemoryError) or isinstance(error.__context__, MemoryError)
        text = json.dumps({"error": f"{names[0]}: {_too_much()}" if short else " ".join(str(error).split())})
    sys.stdout.write(text)
    return 0


def _job(name: str, file: str | None, local_run: str | None) -> dict[str, Any]:
    read = job_file.load(Path(file) if file else shipped.path_of("job", name))
    if file and read.local_run is not None and local_run is None:
        raise ScenarioError(
            f"{file}: local_run: {read.local_run.name} is missing; upload it, too, or remove the key"
        )
    if local_run is not None:
        read = read.model_copy(update={"local_run": Path(local_run)})
    return asdict(job_file.as_job(read))


if __name__ == "__main__":
    sys.exit(main())
