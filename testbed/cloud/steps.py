"""Read the records of a job's processes about their steps.

For: steps, model and noise of a profiled job. Not for: writing the records (hook/).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.goodput import of_replicas
from twinbed import BackendError

NOISE_STEPS = 20
"""Number of steps in which gradients are measured: Scavenger's least window (our reading)."""
NOISE_AFTER = NOISE_STEPS + 8
"""Number of steps after which they have been measured. The first step shows the optimiser, and Adam needs
some to settle."""
HOOK = Path(__file__).parent / "hook"
"""Folder of the hook, which must be the first entry of a job's PYTHONPATH."""


@dataclass(frozen=True, slots=True)
class Model:
    """The model that a job trains.

    batch: samples per process and step.
    parameters: number of trained parameters.
    gradient_bytes: size of each trained tensor, in order, bytes.
    layers: classes of the modules without children, in order.
    non_trainable: number of parameters and statistics (of batch norm) that are not trained.
    input_size, output_size: count of numbers in a sample's input and output (0: not known yet).
    input_bytes: size of a sample's input, bytes.
    optimiser: class of the optimiser; "" before its first step.
    """

    batch: int
    parameters: int
    gradient_bytes: tuple[int, ...]
    layers: tuple[str, ...]
    non_trainable: int
    input_size: int
    input_bytes: int
    output_size: int
    optimiser: str


def environment(
    folder: Path, rank: int, processes: int, inherited: Mapping[str, str], noise_steps: int = 0
) -> dict[str, str]:
    """Return the environment of a process of a PyTorch job: rank, meeting point and hook.

    noise_steps: number of steps whose gradients are measured.

    A process gets one thread unless OMP_NUM_THREADS is set, because several processes share this machine.
    """
    path = inherited.get("PYTHONPATH")
    variables = {
        "TWINBED_STEPS": str(folder),
        "PYTHONPATH": str(HOOK) + (f":{path}" if path else ""),
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(processes),
        "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    if noise_steps:
        variables["TWINBED_NOISE_STEPS"] = str(noise_steps)
    if "OMP_NUM_THREADS" not in inherited:
        variables["OMP_NUM_THREADS"] = "1"
    return variables


def step_ends_ns(folder: Path) -> NDArray[np.int64]:
    """Return int64[k]: the end of each of rank 0's k steps so far, ns of CLOCK_MONOTONIC."""
    try:
        content = (folder / "0.steps").read_bytes()
    except FileNotFoundError:
        content = b""
    return np.frombuffer(content[: len(content) // 8 * 8], dtype="<i8").astype(np.int64)


def noise(folder: Path, processes: int, batch: int) -> float:
    """Return the gradients' noise scale in samples, NaN if it is not known. batch: samples per process."""
    norms = []
    for rank in range(processes):
        try:
            content = (folder / f"{rank}.noise").read_bytes()
        except FileNotFoundError:
            return float("nan")
        norms.append(np.frombuffer(content[: len(content) // 16 * 16], dtype="<f8").reshape(-1, 2))
    steps = min(len(rows) for rows in norms)
    if not steps:
        return float("nan")
    local = np.mean([rows[:steps, 0] for rows in norms], axis=0)
    # A single process compares its last two gradients, as if two processes had computed them.
    replicas = max(processes, 2)
    return of_replicas(local, norms[0][:steps, 1], replicas, replicas * batch, processes * batch).noise


def model(folder: Path) -> Model:
    """Return the model that rank 0 trains. Raises BackendError if it has trained none yet."""
    try:
        recorded = json.loads((folder / "0.json").read_text())
    except FileNotFoundError:
        raise BackendError(
            "the job trained no PyTorch model: no module in training was called; is it Python with torch, "
            "and did it run long enough?"
        ) from None
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in recorded.items()
    }
    return Model(**values)
