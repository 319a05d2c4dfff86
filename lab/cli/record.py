"""`twinbed record`: records a command's resource use as a trace.

For: the verb's options, its progress line, its exit code, and the trace's file. Not for: the work, which
lab.api does, or reading the request and summing up (lab.containers.input.recording).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, argument, emit, option, usable
from twinbed import BackendError, ScenarioError

if TYPE_CHECKING:
    from lab.containers.input.recording import Request
    from testbed.containers.host.identity import Identity
    from testbed.containers.record.recorder import Progress
    from traces.schema import UsageTrace

_COMMAND_FAILED = 1

AS_ROOT = (
    "The commands ran as root, without capabilities; --user NAME runs them as another user, and sudo as you."
)
UserOption = Annotated[
    str | None,
    option(
        "NAME",
        "User who runs the commands, without capabilities. Default: the user who called sudo, else "
        "the caller.",
        "--user",
    ),
]
EnvOption = Annotated[
    list[str] | None,
    option(
        "NAME[=VALUE]",
        "Variable that the commands see besides PATH, HOME, locale and terminal, and the settings of "
        "Python, PyTorch, CUDA, NCCL, Gloo, OpenMP, MKL and OpenBLAS. Repeatable.",
        "--env",
    ),
]


class Network(StrEnum):
    """The network of the recorded containers."""

    HOST = "host"
    OWN = "own"


def record(
    command: Annotated[
        list[str] | None,
        argument(
            "-- COMMAND…",
            "The command, after `--`. Several: --container name=A -- COMMAND… --container name=B -- …",
        ),
    ] = None,
    container: Annotated[
        list[str] | None,
        option(
            "name=NAME[,KEY=VALUE…]",
            "Container for the command after the next `--`. Keys: name, cpu_quota_cores, "
            "memory_limit_bytes, app, runtime. Those of --file also have env and command. Repeatable.",
        ),
    ] = None,
    file: Annotated[Path | None, option("YAML", "Read the containers from a file.")] = None,
    out: Annotated[
        Path | None,
        option("TRACE.parquet", "File of the trace. Default: NAME-<UTC time>.parquet in this folder."),
    ] = None,
    name: Annotated[
        str | None, option("NAME", "Name of the recording and of its application. Default: the command.")
    ] = None,
    interval: Annotated[
        float | None, option("SECONDS", "Time between samples. Default: 0.1.", callback=usable)
    ] = None,
    duration: Annotated[
        float | None,
        option("SECONDS", "Stop after this time. Default: when all commands have ended.", callback=usable),
    ] = None,
    network: Annotated[
        Network | None,
        typer.Option(
            help="host: the network of this machine, bytes are not counted (default). own: a network "
            "namespace per container, bytes are counted; containers reach only each other, by "
            "$TWINBED_ADDRESS_<NAME>."
        ),
    ] = None,
    logs: Annotated[
        Path | None,
        option(
            "FOLDER",
            "Write each command's output to FOLDER/NAME.log and show progress on the terminal. Default: "
            "pass the output through.",
        ),
    ] = None,
    user: UserOption = None,
    env: EnvOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Record a command's resource use: CPU, throttling, memory and network, every 100 ms, in its own cgroup.

    Needs root and cgroups. The exit code is 1 if the trace was written but a command failed. Ctrl-C ends the
    commands and writes nothing. For a command that does not end by itself, give --duration.
    """
    from lab import api

    recorded = api.record(
        _request(command or [], container or [], file, name),
        out,
        interval_s=interval,
        duration_s=duration,
        network=None if network is None else network.value,
        logs=logs,
        user=user,
        env=env or [],
        # JSON, CSV and Markdown use standard output alone.
        stdout=None if form is Format.TABLE else sys.stderr.fileno(),
        progress=not no_progress,
    )
    emit(recorded.result, form)
    if any(recorded.answer.exit_codes):
        raise typer.Exit(_COMMAND_FAILED)


def _request(command: list[str], containers: list[str], file: Path | None, name: str | None) -> Request:
    from lab.containers.input.recording import from_arguments, from_file

    if file is None:
        return from_arguments(command, containers, name)
    if command or containers:
        raise ScenarioError(f"--file {file}: give either a file or commands, not both")
    return from_file(file, name)


def said_of(user: str | None, job: Identity) -> tuple[str, ...]:
    """Return a note on the user who ran the commands, if none was given and another one may have been
    meant.
    """
    return (AS_ROOT,) if user is None and job.uid == 0 else ()


def write_or_keep(trace: UsageTrace, path: Path) -> None:
    """Write a trace. A recording cannot be repeated, so a trace that cannot be written, because the disk is
    full, is kept among temporary files. Raises BackendError that names the file."""
    from traces import parquet

    try:
        parquet.write(trace, path)
    except BackendError as error:
        folder = None
        try:
            folder = tempfile.mkdtemp(prefix="twinbed-trace-")
            kept = Path(folder) / path.name
            parquet.write(trace, kept)
        except (OSError, BackendError):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            raise BackendError(f"{error}. The recording is lost: there is no room in TMPDIR either") from None
        raise BackendError(f"{error}. The whole recording is in {kept}; move it") from None


@contextmanager
def progress_line(*, wanted: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Show time, samples and missed ticks in one line on a terminal's standard error. Yield None if it is not
    wanted."""
    if not (wanted and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console

    shown_at = 0.0
    with Console(stderr=True).status("recording", refresh_per_second=4) as status:

        def show(progress: Progress) -> None:
            nonlocal shown_at
            if (now := time.monotonic()) - shown_at < 0.5:
                return
            shown_at = now
            status.update(
                f"recording: {progress.elapsed_s:.0f} s, {progress.samples} samples, "
                f"{progress.missed} missed, {progress.running} running"
            )

        yield show
