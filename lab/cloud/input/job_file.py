"""A training job as a file: its command, its description, and its local run.

For: `twinbed profile JOB.yaml`, `twinbed recommend JOB.yaml` and the grid of measured runs. Not for: local
runs themselves (local_run_file.py). Paths in the file are relative to its folder, and its command runs there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from string import Formatter

from pydantic import BaseModel, ConfigDict, Field

from control.jobs import Job
from lab.ask import guard
from lab.ask.problems import validated
from lab.ask.section import Command
from lab.cloud.input.asynchronous import AsynchronousInput
from lab.cloud.input.local_run_file import read
from twinbed import ScenarioError

_PYTHON = "python"
MADE, KEPT = "made", "kept"
"""Values of `{data}`: the job makes its samples as usual; it keeps one batch in memory."""
_PART = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"
"""Part of a job's name. Related jobs have names with common parts: resnet/imagenet/large."""


class JobFile(BaseModel):
    """The keys of a job file.

    name: name of the job, also in the store of past runs.
    title: model that the job trains, for lists.
    command: command of each process; `{batch}` and `{steps}` mean the batch size and the number of
        steps, `{data}` for where samples come from, and `python` is twinbed's own.
    batch: samples per process and step.
    samples: number of samples to train on, over all epochs.
    features: numbers that describe the job to the predictor (learning rate, epochs, …).
    local_run: file that `twinbed profile` wrote; by default NAME.local-run.parquet beside the job's file, if
        it exists (with - for / in NAME).
    asynchronous: constants of spotDNN's predictor, for `--method spotdnn`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=rf"^{_PART}(/{_PART}){{0,7}}$")
    title: str = ""
    command: Command | None = None
    batch: int | None = Field(default=None, ge=1, strict=True)
    samples: float | None = Field(default=None, gt=0)
    features: dict[str, float] = Field(default_factory=dict)
    local_run: Path | None = None
    asynchronous: AsynchronousInput | None = None

    def command_line(
        self, *, batch: int | None = None, steps: int = 200, data: str = MADE
    ) -> tuple[str, ...]:
        """Return the command with its names filled in. data: MADE, KEPT, or a file.

        Raises ScenarioError without a command, for an unknown name, and if samples are to come from elsewhere
        than usual and the command has no `{data}`.
        """
        if self.command is None:
            raise ScenarioError(f"job {self.name}: no command; add one, as you would type it")
        if data != MADE and not any("{data}" in word for word in self.command):
            raise ScenarioError(
                f"job {self.name}: command: no {{data}}; add it, for `{MADE}` (as usual), `{KEPT}` (one "
                "batch in memory) or a file of samples, which the job writes where there is none"
            )
        values: Mapping[str, object] = {"batch": batch or self.batch or 1, "steps": steps, "data": data}
        words = [self._filled(word, values) for word in self.command]
        return (sys.executable if words[0] == _PYTHON else words[0], *words[1:])

    def _filled(self, word: str, values: Mapping[str, object]) -> str:
        """Return a word with `{name}` replaced by its value; other forms are refused, as a width."""
        where = f"job {self.name}: command: {word!r}"
        known = "known are {batch}, {steps} and {data}"
        text = ""
        try:
            for literal, name, form, conversion in Formatter().parse(word):
                if name is not None and (name not in values or form or conversion):
                    raise ScenarioError(f"{where}: {name!r} in braces is unknown; {known}")
                text += literal + ("" if name is None else str(values[name]))
        except ValueError as error:
            raise ScenarioError(f"{where}: {error}; write {{{{ and }}}} for braces; {known}") from None
        return text


def load(path: Path) -> JobFile:
    """Return a job file, its local_run as a path. Raises ScenarioError naming file and key."""
    file = validated(JobFile, guard.read_keys(path, "keys, `name` among them"), str(path))
    if file.command is not None:
        try:
            file.command_line()
        except ScenarioError as error:
            raise ScenarioError(f"{path}: {error}") from None
    beside = local_run_of(path, file.name)
    if file.local_run is not None:
        return file.model_copy(update={"local_run": path.parent / file.local_run})
    return file.model_copy(update={"local_run": beside}) if beside.exists() else file


def local_run_of(path: Path, name: str) -> Path:
    """Return the usual path of the local run of a job whose file is at `path`."""
    return path.with_name(f"{name.replace('/', '-')}.local-run.parquet")


def as_job(file: JobFile) -> Job:
    """Return the job for recommenders and predictors. Raises ScenarioError for an unreadable local run."""
    return Job(
        name=file.name,
        features=dict(file.features),
        local_run=None if file.local_run is None else read(file.local_run),
        batch=file.batch,
        samples=float("nan") if file.samples is None else file.samples,
    )
