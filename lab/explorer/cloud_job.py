"""The job of a question on the page "Cloud": a shipped one or the user's file, with or without a local run.

For: turning a choice or uploads into a Job. Not for: the widgets (cloud_question.py) or reading uploads
(reading.py).
"""

from __future__ import annotations

from control.jobs import Job
from lab.ask import shipped
from lab.cloud.input import job_file
from lab.explorer import reading
from lab.explorer.uploads import Upload
from twinbed import ScenarioError


def title(name: str) -> str:
    """Return what a shipped job trains, or its name if the file does not say."""
    return _shipped(name).title or name


def load(name: str, file: Upload | None, local_run: Upload | None) -> Job:
    """Return the job of an uploaded file, or the shipped job `name`. The uploaded local run, if there is one,
    takes the place of the one beside a shipped file. Raises ScenarioError naming file and key.
    """
    shipped_file = None if file else _shipped(name)
    if shipped_file is not None and local_run is None:
        return job_file.as_job(shipped_file)
    return reading.job(name, file, local_run)


def _shipped(name: str) -> job_file.JobFile:
    """Return a shipped job file. A browser may send any text as its choice, also the path of another file."""
    if name not in shipped.names("job"):
        raise ScenarioError(f"there is no job {name!r}")
    return job_file.load(shipped.path_of("job", name))
