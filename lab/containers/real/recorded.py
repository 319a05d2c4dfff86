"""A job's demand: recorded once on this machine without limits, kept, and replayed as a trace.

For: scenarios with a `job`: the twin replays the recording, the testbed runs the job itself. Not for: what
users record (`twinbed record`) nor the recordings that ship. A recording belongs to a job and a machine.
Where there is none yet, it is made, which needs root and cgroups.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lab.containers.input.recording import Request, as_trace, from_file
from lab.containers.input.replay import Replay
from lab.containers.input.sections import ContainerScenario, JobInput, TraceInput
from lab.containers.input.workload import TraceSource
from lab.containers.input.workload import load_source as load_trace
from testbed.containers import machine as here
from testbed.containers.record.recorder import ContainerSpec, record
from traces import parquet
from twin.containers.model import Machine, Ranks, Workload
from twinbed import InvariantError, ScenarioError

_SCRIPTS = (".py", ".sh")
_JOB_KEYS = ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables that all ranks of a job have in common."""


@dataclass(frozen=True, slots=True)
class JobSource:
    """A job and its recording on this machine; implements lab.containers.input.replay.Source."""

    request: Request
    job: JobInput
    recording: TraceSource
    sha256: str
    inputs: tuple[dict[str, Any], ...]

    def settle(self, scenario: ContainerScenario, resolved: dict[str, Any]) -> dict[str, Any]:
        """Identify the job by its commands, without the location of its file."""
        plain = self.recording.settle(scenario, resolved)
        return plain | {"job": {"name": self.request.name, "duration_s": self.job.duration_s}}

    def prepare(self, scenario: ContainerScenario, machine: Machine, seed: np.random.SeedSequence) -> Replay:
        """Return the recording as the workload of a job."""
        replay = self.recording.prepare(scenario, machine, seed)
        if not isinstance(replay.workload, Workload):
            raise InvariantError("a job's recording is no trace")
        ranks, notes = ranks_of(self.request, self.recording.trace.metadata, scenario.period_s)
        workload = replace(replay.workload, is_job=True, ranks=ranks)
        return replace(replay, workload=workload, notes=(*replay.notes, *notes))


def load_source(scenario: ContainerScenario) -> JobSource:
    """Return the scenario's job with its recording, which is made if this machine has none.

    Raises ScenarioError for an error in the job's file, BackendError if nothing can be recorded.
    """
    if scenario.job is None:
        raise ScenarioError(f"{scenario.name}: no job")
    request = from_file(Path(scenario.job.file), None)
    if request.network != "host":
        raise ScenarioError(f"{scenario.job.file}: network: {request.network}; a scenario's job needs `host`")
    sha256 = _identity(request, scenario.job.duration_s)
    request = replace(request, specs=tuple(_with_python(spec, sys.executable) for spec in request.specs))
    path = folder() / f"{request.name}-{sha256[:10]}.parquet"
    if not path.is_file():
        _record(request, scenario.job.duration_s, path)
    trace = load_trace(
        scenario.model_copy(update={"trace": TraceInput(source=str(path)), "job": None, "workload": None})
    )
    inputs = ({"role": "job", "sha256": sha256, "source": scenario.job.file}, *trace.inputs)
    both = hashlib.sha256((sha256 + trace.sha256).encode()).hexdigest()
    return JobSource(request, scenario.job, trace, both, inputs)


def folder() -> Path:
    """Return the folder of this machine's recordings of jobs."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "twinbed" / "jobs"


def _with_python(spec: ContainerSpec, python: str) -> ContainerSpec:
    """Return the container with `python` replaced by an interpreter: ours has the packages."""
    return replace(spec, command=(python, *spec.command[1:])) if spec.command[0] == "python" else spec


def _distributed(request: Request) -> list[tuple[int, ...]]:
    """Return the containers, as indices, of each distributed job among the commands.

    They are those whose variables state a RANK, and an equal WORLD_SIZE and meeting point, as
    torch.distributed reads them.
    """
    jobs: dict[tuple[str | None, ...], list[int]] = {}
    for index, spec in enumerate(request.specs):
        if "RANK" in spec.env and "WORLD_SIZE" in spec.env:
            jobs.setdefault(tuple(spec.env.get(name) for name in _JOB_KEYS), []).append(index)
    return [tuple(ranks) for ranks in jobs.values() if len(ranks) > 1]


def ranks_of(
    request: Request, facts: Mapping[str, str], period_s: float
) -> tuple[Ranks | None, tuple[str, ...]]:
    """Return which containers wait for each other, None if none do, and one sentence for each job.

    facts: metadata of the recording, from which the instants of the first connections come.
    """
    of, meets = np.full(len(request.specs), -1), np.zeros(len(request.specs))
    notes = []
    for job, ranks in enumerate(_distributed(request)):
        names = [request.specs[index].name for index in ranks]
        met = [facts.get(f"connected_s.{name}") for name in names]
        if None in met:
            notes.append(
                f"{' and '.join(names)} were never seen connected: the twin's do not wait for others."
            )
            continue
        of[list(ranks)], meets[list(ranks)] = job, np.array(met, np.float64) / period_s
        notes.append(f"{' and '.join(names)} are ranks of one job: they wait for each other.")
    return (Ranks(of, meets) if (of >= 0).any() else None), tuple(notes)


def _identity(request: Request, duration_s: float) -> str:
    """Return a SHA-256 of the commands, of the scripts beside the file that they run, and of the machine.

    Our Python counts by the folder of its packages, because its own path has several spellings.
    """
    scripts = {
        word: hashlib.sha256((spec.directory / word).read_bytes()).hexdigest()
        for spec in request.specs
        if spec.directory is not None
        for word in spec.command
        if word.endswith(_SCRIPTS) and (spec.directory / word).is_file()
    }
    ours = os.path.realpath(sys.prefix)
    commands = [asdict(_with_python(spec, ours)) | {"directory": None} for spec in request.specs]
    said = json.dumps(
        [commands, scripts, duration_s, request.interval_s, here.facts(), _distributed(request)],
        sort_keys=True,
    )
    return hashlib.sha256(said.encode()).hexdigest()


def _record(request: Request, duration_s: float, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    recording = record(
        request.specs,
        app=request.name,
        interval_s=request.interval_s,
        duration_s=duration_s,
        logs=path.parent / f"{path.stem}.logs",
        meetings=[request.specs[index].name for ranks in _distributed(request) for index in ranks],
    )
    failed = [
        name
        for name, code in zip(recording.containers, recording.exit_codes, strict=True)
        if code not in (0, None)
    ]
    if failed:
        raise ScenarioError(
            f"job {request.name}: {failed[0]} failed; its output is in {path.parent / f'{path.stem}.logs'}"
        )
    parquet.write(as_trace(recording), path)
