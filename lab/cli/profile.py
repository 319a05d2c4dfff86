"""`twinbed profile`: a short local run of a training job for predictors and recommenders, or its stalls.

For: the verb's options, its progress line and its exit code. Not for: running the job (testbed.cloud).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli import config
from lab.cli.options import (
    Format,
    FormatOption,
    NoProgressOption,
    argument,
    emit,
    flag,
    names_in,
    option,
    usable,
)
from lab.cli.record import EnvOption, UserOption, progress_line, said_of
from lab.runs.formats import Column, Record, Result
from twinbed import ScenarioError
from twinbed.text import counted, printable

if TYPE_CHECKING:
    from control.jobs import LocalRun
    from lab.cloud.input.job_file import JobFile
    from testbed.containers.host.identity import Identity

_COLUMNS = (
    Column("process", "process"),
    Column("cpu_mean_cores", "CPU mean", "cores", 3),
    Column("memory_max_mib", "memory max", "MiB", 1),
    Column("rx_mib", "received", "MiB", 2),
    Column("tx_mib", "sent", "MiB", 2),
)
_MIB = 1 << 20
_BYTES = 4
"""Bytes of a gradient's element."""


def profile(
    job: Annotated[Path, argument("JOB", "A job's file, or a shipped job's name.")],
    out: Annotated[
        Path | None,
        option(
            "FILE.parquet",
            "File of the local run. Default: the file's local_run, else NAME.local-run.parquet beside it, "
            "or in the present folder for a shipped job.",
        ),
    ] = None,
    workers: Annotated[int, option("N", "Processes beside the master.", min=0)] = 2,
    duration: Annotated[
        float, option("SECONDS", "Time after which the job is stopped.", callback=usable, min=1.0, max=600.0)
    ] = 600.0,
    steps: Annotated[int, option("N", "Value of {steps} in the job's command.", min=10)] = 200,
    logs: Annotated[
        Path | None, option("FOLDER", "Folder of the processes' output. Default: it is shown.")
    ] = None,
    stalls: Annotated[
        bool,
        flag(
            "--stalls",
            "Measure the stalls of interconnect, CPU, disk and network instead, beside the twin's.",
        ),
    ] = False,
    types: Annotated[str, option("A,B,…", "Instance types that --stalls emulates.")] = "n1-standard-4",
    region: Annotated[
        str, typer.Option(help="Region of the prices.", envvar=config.VARIABLES["region"])
    ] = "us-central1",
    user: UserOption = None,
    env: EnvOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Run a training job on this machine for a short while, and record its resource use and the time of its
    steps.

    One master and some workers each get a cgroup and a network of their own. The script needs no change.
    --stalls runs workers of emulated types with and without shaped links, and on samples from memory and from
    files. It drops this machine's page cache. Needs root and cgroups.
    """
    from lab.ask import shipped
    from lab.cloud.input import job_file, local_run_file
    from lab.runs.files import check_place
    from testbed.cloud import local_run
    from testbed.containers.host.identity import identity
    from testbed.containers.record.watchdog import watchdog

    place = shipped.path_of("job", job)
    file = job_file.load(place)
    own = file.local_run if place == job else None
    path = out or own or job_file.local_run_of(job, file.name)
    if stalls and (out or logs or (duration, steps) != (600.0, 200)):
        names = "--out, --duration, --steps and --logs"
        raise ScenarioError(f"{names} have no meaning with --stalls; leave them out")
    runs_as = identity(user, env or [], os.environ)
    if stalls:
        with watchdog():
            table = _stalls(
                file, place.resolve().parent, workers + 1, types, region, runs_as, not no_progress
            )
        emit(table, form)
        return
    with runs_as.acting():
        check_place(path)
    with watchdog(), progress_line(wanted=not no_progress and logs is not None) as on_tick:
        profiled = local_run.profile(
            file.command_line(steps=steps),
            workers=workers,
            duration_s=duration,
            directory=place.resolve().parent,
            logs=logs,
            # JSON, CSV and Markdown use standard output alone.
            stdout=None if form is Format.TABLE else sys.stderr.fileno(),
            on_tick=on_tick,
            identity=runs_as,
        )
    # The command is left out: it names folders of this machine, and the job's file contains it.
    facts = {
        key: value for key, value in profiled.recording.metadata.items() if not key.startswith("command.")
    }
    run = profiled.run if file.batch is None else replace(profiled.run, batch=file.batch)
    with runs_as.acting():
        local_run_file.write(run, profiled.processes, facts, path)
    import numpy as np

    rows: tuple[Record, ...] = tuple(
        {
            "process": name,
            "cpu_mean_cores": float(run.cpu_cores[:, index].mean()),
            "memory_max_mib": float(run.memory_bytes[:, index].max()) / _MIB,
            "rx_mib": float(run.net_in_bytes[:, index].sum()) / _MIB,
            "tx_mib": float(run.net_out_bytes[:, index].sum()) / _MIB,
        }
        for index, name in enumerate(profiled.processes)
    )
    unread = (
        f"twinbed recommend {job} reads the run that ships; to use this one, copy {place} beside it and name "
        "the copy.",
    )
    notes = (
        f"{counted(len(run.step_s), 'step')} of {1000 * float(run.step_s.mean()):.1f} ms (mean, on which "
        f"predictions rest; median {1000 * float(np.median(run.step_s)):.1f} ms), "
        f"batch {run.batch}, {run.parameters:,} parameters, {counted(len(run.layers), 'layer')}.",
        f"Written to {path}.",
        *(() if out or place == job else unread),
        *_doubts(profiled.run, run.batch),
        *profiled.recording.notes,
        *said_of(user, runs_as),
    )
    emit(Result(_COLUMNS, rows, notes=notes), form)


def _doubts(seen: LocalRun, batch: int) -> Iterator[str]:
    """Yield notes on what the job's file says otherwise, and on processes that do not train together.

    batch: samples per process and step that the local run has in the end.
    """
    if seen.batch != batch:
        yield (
            f"The job's file states a batch of {batch}, which counts, and the model's input begins with "
            f"{seen.batch}. Correct `batch` if a step of a process really takes {seen.batch} samples: the "
            "input does not begin with sequences or a part of the batch."
        )
    if len(seen.cpu_cores[0]) > 1 and seen.net_in_bytes.sum() < _BYTES * seen.parameters:
        yield (
            "The processes exchanged no gradients, so each trained a model of its own, and predictions for "
            "several workers do not hold. Wrap the model in DistributedDataParallel."
        )


def _stalls(
    file: JobFile, directory: Path, workers: int, types: str, region: str, identity: Identity, loud: bool
) -> Result:
    """Return the table of `--stalls`."""
    from lab.cloud.input.price_list import in_use
    from lab.cloud.real.stalls import measure
    from lab.cloud.run.stalls import result

    def told(line: str) -> None:
        if loud:
            typer.echo(printable(line), err=True)

    if file.samples is None:
        raise ScenarioError(f"job {file.name}: samples: missing; state them, to price an epoch")
    epochs = file.features.get("epochs", 1.0)
    if not epochs > 0:
        raise ScenarioError(f"job {file.name}: features.epochs is {epochs:g}; it must be above 0")
    listed = in_use().types(region)
    names = names_in(types, "--types")
    if unknown := [name for name in names if name not in listed]:
        raise ScenarioError(f"--types {unknown[0]}: not in {region}; twinbed prices list shows what is")
    jobs = measure(
        file,
        [listed[name] for name in dict.fromkeys(names)],
        workers,
        directory=directory,
        identity=identity,
        told=told,
    )
    return result(jobs, file.samples / epochs)
