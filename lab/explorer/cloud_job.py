"""The job that the page "Cloud" asks about: one that ships, or the user's file, with a local run or without.

For: from a choice or uploads to a Job. Not for: the widgets (cloud_question.py). An upload is on disk only
while it is read, and errors name it as the user does.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from control.recommender.model import Job
from lab.ask import shipped
from lab.cloud.input import job_file
from lab.explorer import uploads
from lab.explorer.uploads import Upload
from twinbed import ScenarioError

_Read = TypeVar("_Read")


def title(name: str) -> str:
    """What a shipped job trains; its name if the file says nothing."""
    return job_file.load(shipped.path_of("job", name)).title or name


def load_shipped(name: str, local_run: Upload | None) -> Job:
    """A shipped job; its local run is the upload, else the one beside its file, if there is one."""
    return _with_local_run(job_file.load(shipped.path_of("job", name)), local_run)


def load_uploaded(job: Upload, local_run: Upload | None) -> Job:
    """The job of an uploaded file. Raises ScenarioError naming it and the key."""
    given = _lent(job, job_file.load)
    if given.local_run is not None and local_run is None:
        raise ScenarioError(
            f"{job.name}: local_run: {given.local_run.name} is not here; upload it, too, or remove the key"
        )
    return _with_local_run(given, local_run)


def _with_local_run(given: job_file.JobFile, local_run: Upload | None) -> Job:
    if local_run is None:
        return job_file.as_job(given)

    def job(path: Path) -> Job:
        return job_file.as_job(given.model_copy(update={"local_run": path}))

    return _lent(local_run, job)


def _lent(upload: Upload, read: Callable[[Path], _Read]) -> _Read:
    folder = uploads.lend(upload)
    try:
        return read(folder / upload.name)
    except ScenarioError as error:
        raise ScenarioError(str(error).replace(f"{folder}/", "")) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
