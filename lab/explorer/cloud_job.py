"""The job of a question on the page "Cloud": a shipped one or the user's file, with or without a local run.

For: turning a choice or uploads into a Job. Not for: the widgets (cloud_question.py). An upload is on disk
only while it is read, and errors use its name without the folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from control.jobs import Job
from lab.ask import shipped
from lab.cloud.input import job_file
from lab.explorer import uploads
from lab.explorer.uploads import Upload
from twinbed import ScenarioError

_Read = TypeVar("_Read")


def title(name: str) -> str:
    """Return what a shipped job trains, or its name if the file does not say."""
    return job_file.load(shipped.path_of("job", name)).title or name


def load_shipped(name: str, local_run: Upload | None) -> Job:
    """Return a shipped job with the uploaded local run, else with the one beside its file, if any."""
    return _with_local_run(job_file.load(shipped.path_of("job", name)), local_run)


def load_uploaded(job: Upload, local_run: Upload | None) -> Job:
    """Return the job of an uploaded file. Raises ScenarioError naming file and key."""
    file = _lent(job, job_file.load)
    if file.local_run is not None and local_run is None:
        raise ScenarioError(
            f"{job.name}: local_run: {file.local_run.name} is missing; upload it, too, or remove the key"
        )
    return _with_local_run(file, local_run)


def _with_local_run(file: job_file.JobFile, local_run: Upload | None) -> Job:
    if local_run is None:
        return job_file.as_job(file)
    return _lent(local_run, lambda path: job_file.as_job(file.model_copy(update={"local_run": path})))


def _lent(upload: Upload, read: Callable[[Path], _Read]) -> _Read:
    folder = uploads.lend(upload)
    try:
        return read(folder / upload.name)
    except ScenarioError as error:
        raise ScenarioError(str(error).replace(f"{folder}/", "")) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
