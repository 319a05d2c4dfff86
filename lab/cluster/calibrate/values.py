"""The calibrated values of a cluster's testbed as a TOML file.

For: reading, checking and writing it. Not for: the form of the file (lab.ask.calibration) nor measuring
(measure.py). calibration_default.toml ships.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lab.ask.calibration import Calibration, Form
from twinbed import ScenarioError

UNITS: Mapping[str, Mapping[str, str] | None] = {
    "machine": {"cores": "cores", "beside_starts": "1", "lost_cores": "cores"},
    "times": {"start_s": "s", "restart_s": "s", "end_s": "s"},
    "training": None,
    "saves": None,
}
"""Section → its values and their units. `training` and `saves` have a value for each job and size of its
gang."""
FORM = Form(Path(__file__).with_name("calibration_default.toml"), 5, UNITS, "cluster")
load_calibration = FORM.load
write = FORM.write


def key_of(job: str, gpus: int) -> str:
    """Return the key of a job as a gang of `gpus` GPUs."""
    return f"{job}_x{gpus}"


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
