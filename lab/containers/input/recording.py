"""Reads a user's request for a recording, and turns the recording into a trace and a summary.

For: the file of containers, the `--container` groups of the command line, and the table at the end. Not for:
recording (testbed.containers.record.recorder) nor the verb's options (lab.cli.record).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lab.ask import guard
from lab.ask.problems import validated
from lab.ask.section import Command, Environment
from lab.runs.formats import ABSENT, Column, Result, Value
from testbed.containers.host.container import RuntimeName
from testbed.containers.record.recorder import DEFAULT_INTERVAL_S, ContainerSpec, NetworkMode, Recording
from traces.schema import UsageTrace
from twinbed import ScenarioError

MIB = 1024 * 1024
_OPTION = "--container"
_ELSEWHERE = {"command": "write it after --", "env": "give this container in a file, --file YAML"}
"""Keys of a container that --container does not take, and what to do instead."""
_COLUMNS = (
    Column("container", "container"),
    Column("exit_code", f"exit code ({ABSENT} = stopped)", decimals=0),
    Column("duration_s", "there for", "s", 1),
    Column("cpu_mean_cores", "CPU mean", "cores", 3),
    Column("cpu_max_cores", "CPU max", "cores", 3),
    Column("memory_max_mib", "memory max", "MiB", 1),
    Column("throttled_s", "throttled", "s", 2),
    Column("rx_mib", "received", "MiB", 2),
    Column("tx_mib", "sent", "MiB", 2),
)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ContainerEntry(_Strict):
    """A container as a user writes it. A command that is text is split by a shell's rules, but runs
    without one."""

    name: str
    command: Command
    app: str | None = Field(default=None, min_length=1)
    env: Environment = Field(default_factory=dict)
    cpu_quota_cores: float | None = Field(default=None, gt=0)
    memory_limit_bytes: int | None = Field(default=None, gt=0)
    runtime: RuntimeName = "process"

    def spec(self, directory: Path | None) -> ContainerSpec:
        """Return the container for the recorder. Raises ScenarioError for a name that a cgroup cannot
        have."""
        return ContainerSpec(**{**dict(self), "command": tuple(self.command)}, directory=directory)


class RecordingFile(_Strict):
    """A file of several containers to record (docs/how-to/record-a-workload.md)."""

    name: str | None = None
    network: NetworkMode = "host"
    interval_s: float = Field(default=DEFAULT_INTERVAL_S, gt=0)
    duration_s: float | None = Field(default=None, gt=0)
    containers: list[ContainerEntry] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Request:
    """A recording to make.

    name: name of the recording and its application. The other fields are those of `recorder.record`.
    """

    name: str
    specs: tuple[ContainerSpec, ...]
    network: NetworkMode = "host"
    interval_s: float = DEFAULT_INTERVAL_S
    duration_s: float | None = None


def from_file(path: Path, name: str | None) -> Request:
    """Read a file of containers, whose commands run in its folder. name: None takes the file's.

    Raises ScenarioError in one line that names the file and the key.
    """
    entry = validated(RecordingFile, guard.read_keys(path, "keys, `containers` among them"), str(path))
    folder = path.resolve().parent
    return Request(
        _checked_name(name or entry.name or path.stem, str(path)),
        tuple(container.spec(folder) for container in entry.containers),
        entry.network,
        entry.interval_s,
        entry.duration_s,
    )


def from_arguments(command: Sequence[str], containers: Sequence[str], name: str | None) -> Request:
    """Return the request of the command line: one command, or groups `--container name=NAME[,KEY=VALUE] --
    COMMAND…`.

    command: everything after the first `--`; containers: values of `--container` before it; name: name of the
    recording. Raises ScenarioError.
    """
    if not containers:
        if not command:
            raise ScenarioError("nothing to record: twinbed record -- COMMAND…")
        name = name or re.sub(r"[^A-Za-z0-9_-]+", "-", Path(command[0]).name).strip("-_") or "command"
        return Request(_checked_name(name, "--name"), (ContainerSpec(name, tuple(command)),))
    if len(containers) > 1:
        raise ScenarioError(f"{_OPTION} {containers[0]}: no command; write -- COMMAND… after it")
    specs = [_entry(text, words).spec(None) for text, words in _groups(containers[0], command)]
    return Request(_checked_name(name or "recording", "--name"), tuple(specs))


def _groups(first: str, words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Split the words at every `--container X --` or `--container=X --`."""
    groups: list[tuple[str, list[str]]] = [(first, [])]
    rest = list(words)
    while rest:
        if rest[0] == _OPTION and rest[2:3] == ["--"]:
            groups.append((rest[1], []))
            del rest[:3]
        elif rest[0].startswith(f"{_OPTION}=") and rest[1:2] == ["--"]:
            groups.append((rest[0].partition("=")[2], []))
            del rest[:2]
        else:
            groups[-1][1].append(rest.pop(0))
    return groups


def _entry(text: str, command: list[str]) -> ContainerEntry:
    where = f"{_OPTION} {text}"
    keys: dict[str, Any] = {"command": command}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            raise ScenarioError(f"{where}: expected name=NAME[,KEY=VALUE…]")
        if cure := _ELSEWHERE.get(key.strip()):
            raise ScenarioError(f"{where}: {key.strip()} is no key here; {cure}")
        keys[key.strip()] = value.strip()
    if not command:
        raise ScenarioError(f"{where}: no command; write -- COMMAND… after it")
    return validated(ContainerEntry, keys, where)


def _checked_name(name: str, where: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise ScenarioError(f"{where}: name {name!r}: expected letters, digits, - _ and .")
    return name


def as_trace(recording: Recording) -> UsageTrace:
    """Return the recording as a trace with the same arrays."""
    return UsageTrace(**{field.name: getattr(recording, field.name) for field in fields(UsageTrace)})


def as_result(recording: Recording, path: Path) -> Result:
    """Return a table of the recording, one column per container, with its quality."""
    return Result(
        columns=_COLUMNS if recording.rx_bytes is not None else _COLUMNS[:-2],
        rows=tuple(_row(recording, index) for index in range(len(recording.containers))),
        facts={
            "trace": str(path),
            "duration_s": round(len(recording.present) * recording.interval_s, 6),
            "interval_s": recording.interval_s,
            "missed_ticks": recording.missed_ticks,
            "sampling_cores": round(recording.sampling_cores, 5),
        },
        notes=recording.notes,
        aside="container",
    )


def _row(recording: Recording, index: int) -> dict[str, Value]:
    present = recording.present[:, index]
    row: dict[str, Value] = {
        "container": recording.containers[index],
        "exit_code": recording.exit_codes[index],
        "duration_s": round(float(present.sum()) * recording.interval_s, 6),
        "cpu_mean_cores": float(recording.cpu_cores[present, index].mean()),
        "cpu_max_cores": float(recording.cpu_cores[:, index].max()),
        "memory_max_mib": float(recording.memory_bytes[:, index].max()) / MIB,
        "throttled_s": float(recording.throttled_s[:, index].sum()),
    }
    if recording.rx_bytes is not None and recording.tx_bytes is not None:
        row["rx_mib"] = float(recording.rx_bytes[:, index].sum()) / MIB
        row["tx_mib"] = float(recording.tx_bytes[:, index].sum()) / MIB
    return row
