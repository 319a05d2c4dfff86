"""What a job's processes noted of their steps, read while they run or after. Not for: noting it (hook/)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinbed import BackendError

HOOK = Path(__file__).parent / "hook"
"""To be the first entry of a job's PYTHONPATH."""


@dataclass(frozen=True, slots=True)
class Model:
    """What a job trains. batch: samples per process and step; parameters: that are trained, and their bytes;
    layers: classes of the modules without children, in order."""

    batch: int
    parameters: int
    parameter_bytes: int
    layers: tuple[str, ...]


def environment(folder: Path, rank: int, processes: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """What a process of a PyTorch job is told: its rank, where to meet, where the hook writes.

    A thread per process unless the user has said otherwise: several processes share this machine.
    """
    path = inherited.get("PYTHONPATH")
    told = {
        "TWINBED_STEPS": str(folder),
        "PYTHONPATH": str(HOOK) + (f":{path}" if path else ""),
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(processes),
        "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    if "OMP_NUM_THREADS" not in inherited:
        told["OMP_NUM_THREADS"] = "1"
    return told


def step_ends_ns(folder: Path, rank: int = 0) -> NDArray[np.int64]:
    """int64[k]: CLOCK_MONOTONIC at the end of each step so far; k = 0 before the first."""
    try:
        content = (folder / f"{rank}.steps").read_bytes()
    except FileNotFoundError:
        content = b""
    return np.frombuffer(content[: len(content) // 8 * 8], dtype="<i8").astype(np.int64)


def model(folder: Path, rank: int = 0) -> Model:
    """Raises BackendError where the job has trained nothing yet."""
    try:
        noted = json.loads((folder / f"{rank}.json").read_text())
    except FileNotFoundError:
        raise BackendError(
            "the job trained no PyTorch model: no module in training was called; is it Python with torch, "
            "and did it run long enough?"
        ) from None
    return Model(noted["batch"], noted["parameters"], noted["parameter_bytes"], tuple(noted["layers"]))
