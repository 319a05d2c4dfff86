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
    "machine": {"cores": "cores", "beside_starts": "1"},
    "times": {"start_s": "s", "restart_s": "s", "end_s": "s"},
    "training": None,
}
"""Section → its values and their units. `training` has a value for each job and size of its gang."""
FORM = Form(Path(__file__).with_name("calibration_default.toml"), 4, UNITS)
load_calibration = FORM.load
write = FORM.write


def key_of(job: str, gpus: int) -> str:
    """Return the key of a job's speed as a gang of `gpus` GPUs."""
    return f"{job}_x{gpus}"


def speed(calibration: Calibration, job: str, gpus: int) -> float:
    """Return steps of training per second and core of each process. Raises ScenarioError if not measured."""
    value = calibration.values.get(f"training.{key_of(job, gpus)}")
    if value is None:
        known = ", ".join(key.partition(".")[2] for key in calibration.values if key.startswith("training."))
        raise ScenarioError(
            f"cluster: the speed of {job} on {gpus} GPUs is not calibrated; calibrated are {known}"
        )
    return value.value
