"""A training job as a file: its command, what describes it, and the local run that was made of it.

For: `twinbed profile JOB.yaml`, `twinbed recommend JOB.yaml` and the grid of measured runs. Not for: local
runs themselves (local_run_file.py). Paths in the file are relative to it, and its command runs beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from control.recommender.model import Job
from lab.ask.problems import describe
from lab.ask.section import Command
from lab.ask.strict_yaml import read_keys
from lab.cloud.input.local_run_file import read
from twinbed import ScenarioError

_PYTHON = "python"
LOCAL_RUN = "{job}.local-run.parquet"
"""Where `twinbed profile` puts a job's local run: beside its file."""


class JobFile(BaseModel):
    """The keys of a job file.

    name: of the job, in the store of past runs, too. command: of each process; `{batch}` and `{steps}` in it
    stand for the batch size and the number of steps, and `python` is twinbed's own. batch: samples per
    process and step. samples: to train on in all, over all epochs. features: numbers that describe the job
    to the predictor (learning rate, epochs, …). local_run: the file that `twinbed profile` wrote; without it,
    NAME.local-run.parquet beside the job's file, if it is there.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
    title: str = ""
    command: Command | None = None
    batch: int | None = Field(default=None, ge=1)
    samples: float | None = Field(default=None, gt=0)
    features: dict[str, float] = Field(default_factory=dict)
    local_run: Path | None = None

    def command_line(self, *, batch: int | None = None, steps: int = 200) -> tuple[str, ...]:
        """The command, filled in. Raises ScenarioError if there is none, or a name in it is unknown."""
        if self.command is None:
            raise ScenarioError(f"job {self.name}: no command; add one, as you would type it")
        values: Mapping[str, object] = {"batch": batch or self.batch or 1, "steps": steps}
        try:
            words = [word.format_map(values) for word in self.command]
        except (KeyError, IndexError, ValueError) as error:
            raise ScenarioError(
                f"job {self.name}: command: {error} in braces is unknown; known are {{batch}} and {{steps}}"
            ) from None
        return (sys.executable if words[0] == _PYTHON else words[0], *words[1:])


def load(path: Path) -> JobFile:
    """Reads a job file; local_run becomes a path from here. Raises ScenarioError naming file and key."""
    data = read_keys(path, "name")
    try:
        given = JobFile.model_validate(data)
    except ValidationError as error:
        raise ScenarioError(describe(error, JobFile, str(path))) from None
    beside = path.with_name(LOCAL_RUN.format(job=given.name))
    if given.local_run is not None:
        return given.model_copy(update={"local_run": path.parent / given.local_run})
    return given.model_copy(update={"local_run": beside}) if beside.exists() else given


def as_job(given: JobFile) -> Job:
    """What recommenders and predictors see; without a local run they say what they fall back to.

    Raises ScenarioError for a local run that cannot be read.
    """
    return Job(
        name=given.name,
        features=dict(given.features),
        local_run=None if given.local_run is None else read(given.local_run),
        batch=given.batch,
        samples=float("nan") if given.samples is None else given.samples,
    )
