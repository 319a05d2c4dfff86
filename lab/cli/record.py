"""`twinbed record`: runs a command and keeps what it used, as a trace.

For: the verb's options, its progress line and its exit code. Not for: recording (testbed) nor reading the
request and summing up (lab.containers.input.recording).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, emit
from twinbed import BackendError, ScenarioError

if TYPE_CHECKING:
    from lab.containers.input.recording import Request
    from testbed.containers.record.recorder import Progress

_COMMAND_FAILED = 1


class Network(StrEnum):
    """What the containers are connected with."""

    HOST = "host"
    OWN = "own"


def record(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND…",
            help="What to run, after `--`. Several: --container name=A -- COMMAND… --container name=B -- …",
            show_default=False,
        ),
    ] = None,
    container: Annotated[
        list[str] | None,
        typer.Option(
            "--container",
            metavar="name=NAME[,KEY=VALUE…]",
            help="Names the container of the command after the next `--`. Keys: cpu_quota_cores, "
            "memory_limit_bytes, app. Repeatable.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="YAML", help="Containers from a file instead.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="TRACE.parquet",
            help="Where the trace is written. Default: NAME-<UTC time>.parquet here.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="The recording's and its application's. Default: the command's."
        ),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval", metavar="SECONDS", help="Between samples. Default: 0.1.", show_default=False
        ),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            "--duration",
            metavar="SECONDS",
            help="Stop then what still runs. Default: until all commands have ended.",
            show_default=False,
        ),
    ] = None,
    network: Annotated[
        Network | None,
        typer.Option(
            "--network",
            help="host: the machine's, bytes not counted (default). own: a network namespace each, bytes "
            "counted; they reach each other by $TWINBED_ADDRESS_<NAME>, and nothing else.",
            show_default=False,
        ),
    ] = None,
    logs: Annotated[
        Path | None,
        typer.Option(
            "--logs",
            metavar="FOLDER",
            help="Write each command's output to FOLDER/NAME.log instead of passing it through; a terminal "
            "then shows progress.",
            show_default=False,
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Record what a command uses: CPU, throttling, memory and network, every 100 ms, in its own cgroup.

    Needs root and cgroups. Exit code 1 when the trace was written but a command failed. Ctrl-C ends the
    commands and writes nothing; for a command that does not end by itself, give --duration.
    """
    from lab.containers.input.recording import as_result, as_trace
    from testbed.containers.record import recorder
    from traces import parquet

    request = _request(command or [], container or [], file, name)
    path = out or Path(f"{request.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.parquet")
    check_folder(path)
    with progress_line(wanted=not no_progress and logs is not None) as on_tick:
        recording = recorder.record(
            request.specs,
            app=request.name,
            interval_s=request.interval_s if interval is None else interval,
            duration_s=request.duration_s if duration is None else duration,
            network_mode=request.network if network is None else network.value,
            logs=logs,
            # What is to be parsed has standard output for itself.
            stdout=None if form is Format.TABLE else sys.stderr.fileno(),
            on_tick=on_tick,
        )
    parquet.write(as_trace(recording), path)
    emit(as_result(recording, path), form)
    if any(recording.exit_codes):
        raise typer.Exit(_COMMAND_FAILED)


def _request(command: list[str], containers: list[str], file: Path | None, name: str | None) -> Request:
    from lab.containers.input.recording import from_arguments, from_file

    if file is None:
        return from_arguments(command, containers, name)
    if command or containers:
        raise ScenarioError(f"--file {file}: give either a file or commands, not both")
    return from_file(file, name)


def check_folder(path: Path) -> None:
    """A folder that cannot take the trace is found out before the recording and not after it."""
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise BackendError(f"{path}: its folder does not exist or cannot be written; choose another --out")


@contextmanager
def progress_line(*, wanted: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A line on a terminal's standard error: time, samples, missed ticks; None where it is not wanted."""
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
