"""The calibrated values of a cluster's testbed as a TOML file.

For: reading, checking and writing it. Not for: the form of the file (lab.ask.calibration) nor measuring
(measure.py). calibration_default.toml ships.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from pathlib import Path

from lab.ask.calibration import Calibration, Form
from twinbed import ScenarioError

PHASES = {
    "start": "a job's first start to its first step",
    "restart": "a later start to the first step",
    "leave": "SIGTERM until the job's processes are gone",
}
"""Phase of a gang's life → what is measured of it."""
SIZES = (1, 2)
"""GPUs of the gangs that are measured."""
UNITS: Mapping[str, Mapping[str, str] | None] = {
    "machine": {"cores": "cores", "beside_starts": "1", "lost_cores": "cores"},
    "times": {
        **{f"{what}_x{gpus}_s": "s" for what in PHASES for gpus in SIZES},
        "end_s": "s",
    },
    "training": None,
    "saves": None,
}
"""Section → its values and their units. `training` and `saves` have a value for each job and size of its
gang."""
_P95 = 1.645
"""The 95th percentile of a standard normal distribution."""
FORM = Form(Path(__file__).with_name("calibration_default.toml"), 6, UNITS, "cluster")
load_calibration = FORM.load
write = FORM.write


def key_of(job: str, gpus: int) -> str:
    """Return the key of a job as a gang of `gpus` GPUs."""
    return f"{job}_x{gpus}"


def phases_s(calibration: Calibration, what: str) -> tuple[float, ...]:
    """Return the median times that gangs of SIZES take, s. what: one of PHASES."""
    return tuple(calibration.values[f"times.{what}_x{gpus}_s"].value for gpus in SIZES)


def spread(calibration: Calibration) -> float:
    """Return the standard deviation of the logarithm of a start or restart of a gang of one size."""
    starts = [
        calibration.values[f"times.{what}_x{gpus}_s"] for what in ("start", "restart") for gpus in SIZES
    ]
    ratios = [value.p95 / value.value for value in starts if value.p95 and value.value]
    return math.sqrt(statistics.fmean((math.log(ratio) / _P95) ** 2 for ratio in ratios or [1.0]))


def speed(calibration: Calibration, job: str, gpus: int, quota_cores: float) -> float:
    """Return steps of training per second of a gang whose processes have a CPU quota, cores.

    Raises ScenarioError if the speed was not measured, or for a quota of which nothing is left.
    """
    value = calibration.values.get(f"training.{key_of(job, gpus)}")
    if value is None:
        known = ", ".join(key.partition(".")[2] for key in calibration.values if key.startswith("training."))
        raise ScenarioError(
            f"cluster: the speed of {job} on {gpus} GPUs is not calibrated; calibrated are {known}"
        )
    return value.value * _working_cores(calibration, quota_cores)


def save_s(calibration: Calibration, job: str, gpus: int, quota_cores: float) -> float:
    """Return how long a save of a gang takes at a CPU quota, s; 0 if it was not measured. Raises
    ScenarioError for a quota of which nothing is left."""
    value = calibration.values.get(f"saves.{key_of(job, gpus)}")
    return 0.0 if value is None else value.value / _working_cores(calibration, quota_cores)


def step_s(calibration: Calibration, job: str, gpus: int, quota_cores: float) -> float:
    """Return how long a training step of a gang takes at a CPU quota, s; 0 if it was not measured. Raises
    ScenarioError for a quota of which nothing is left."""
    measured = f"training.{key_of(job, gpus)}" in calibration.values
    return 1 / speed(calibration, job, gpus, quota_cores) if measured else 0.0


def quota_cores(calibration: Calibration, gpu_cores: float, rate: float) -> float:
    """Return the CPU quota at which a job is `rate` times as fast as at gpu_cores, cores."""
    lost_cores = calibration.values["machine.lost_cores"].value
    return lost_cores + (gpu_cores - lost_cores) * rate


def _working_cores(calibration: Calibration, quota_cores: float) -> float:
    """Return what is left of a quota. Every process loses some of it, however large it is."""
    lost_cores = calibration.values["machine.lost_cores"].value
    if quota_cores <= lost_cores:
        raise ScenarioError(
            f"cluster.emulation.gpu_cores: of {quota_cores:g} cores, {lost_cores:.3g} are lost "
            "(machine.lost_cores of the calibration); give more"
        )
    return quota_cores - lost_cores
