"""A local run: a user's training job as one master and some workers on this machine, for up to ten minutes.

For: measuring the job's resource use and the time of its steps. Each process has its own cgroup and network,
and the script is not changed. Not for: files (lab), nor instance types (emulated.py). Source: chapter 4
(cloud) of the doctoral thesis.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from control.jobs import LocalRun
from testbed.cloud import steps
from testbed.containers.host.container import ContainerSpec
from testbed.containers.host.identity import Identity
from testbed.containers.ownership import temporary_directory
from testbed.containers.record.recorder import Progress, Recording, record
from twinbed import BackendError, ScenarioError

LONGEST_S = 600.0
"""Longest duration of a local run, s."""
WORKERS = 2
"""Default number of workers beside the master."""
WARM_UP_STEPS = 5
"""Number of first steps that do not count, because they allocate, connect and compile."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A local run, the names of its processes, and the recording that it was made from."""

    run: LocalRun
    processes: tuple[str, ...]
    recording: Recording


def profile(
    command: Sequence[str],
    *,
    workers: int = WORKERS,
    duration_s: float = LONGEST_S,
    interval_s: float = 1.0,
    directory: Path | None = None,
    logs: Path | None = None,
    stdout: int | None = None,
    on_tick: Callable[[Progress], None] | None = None,
    identity: Identity | None = None,
) -> Profile:
    """Return a local run of a command, run once per process until all have ended or duration_s is over.

    The processes get RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torch.distributed expects them.
    stdout: descriptor that gets their standard output without `logs`; None: this process's. identity: user
    and environment of the processes; None: those of this process. Raises ScenarioError for a command that
    cannot be run or fails, and for too few steps; BackendError if the machine refuses or the job trains no
    model.
    """
    if workers < 0:
        raise ScenarioError(f"{workers} workers: expected 0 or more beside the master")
    names = ("master", *(f"worker-{index + 1}" for index in range(workers)))
    inherited = identity.environment if identity else os.environ
    with temporary_directory() as above:
        # The hook writes there as the job's user.
        folder = above / "steps"
        if identity is None:
            folder.mkdir(mode=0o700)
        else:
            identity.make_folder(folder)
        specs = [
            ContainerSpec(
                process,
                tuple(command),
                env=steps.environment(folder, rank, len(names), inherited),
                directory=directory,
            )
            for rank, process in enumerate(names)
        ]
        recording = record(
            specs,
            app="job",
            interval_s=interval_s,
            duration_s=duration_s,
            network_mode="own",
            logs=logs,
            stdout=stdout,
            on_tick=on_tick,
            identity=identity,
        )
        _check_exits(recording)
        # A job may have put links into its folder.
        with identity.acting() if identity else nullcontext():
            trained, ends_ns = steps.model(folder), steps.step_ends_ns(folder)
    step_s = np.diff(ends_ns)[WARM_UP_STEPS:] * 1e-9
    if not step_s.size:
        raise ScenarioError(
            f"the job took {len(ends_ns)} steps, and the first {WARM_UP_STEPS} do not count; "
            "let it run longer"
        )
    return Profile(_local_run(recording, trained, step_s), names, recording)


def _local_run(recording: Recording, trained: steps.Model, step_s: np.ndarray) -> LocalRun:
    if recording.rx_bytes is None or recording.tx_bytes is None:
        raise BackendError("the local run was recorded without networks of its own")
    # Only intervals in which all processes are present belong to the job.
    rows = np.flatnonzero(recording.present.all(axis=1))
    whole = slice(rows[0], rows[-1] + 1) if rows.size else slice(0, 0)
    return LocalRun(
        interval_s=recording.interval_s,
        cpu_cores=recording.cpu_cores[whole],
        memory_bytes=recording.memory_bytes[whole],
        net_in_bytes=recording.rx_bytes[whole],
        net_out_bytes=recording.tx_bytes[whole],
        step_s=step_s,
        batch=trained.batch,
        parameters=trained.parameters,
        layers=trained.layers,
        optimiser=trained.optimiser,
        non_trainable=trained.non_trainable,
        input_size=trained.input_size,
        output_size=trained.output_size or np.nan,
    )


def _check_exits(recording: Recording) -> None:
    failed = [
        f"{name} ended with {code}"
        for name, code in zip(recording.containers, recording.exit_codes, strict=True)
        if code
    ]
    if failed:
        raise ScenarioError(f"the job failed: {', '.join(failed)}; see its output")
