"""The calibrated values of a cluster's testbed as a TOML file.

For: reading, checking and writing it. Not for: the form of the file (lab.ask.calibration) nor measuring
(measure.py). calibration_default.toml ships.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lab.ask import calibration
from lab.ask.calibration import Calibration, Values
from twinbed import ScenarioError

SCHEMA = 2
DEFAULT_PATH = Path(__file__).with_name("calibration_default.toml")
UNITS: Mapping[str, Mapping[str, str] | None] = {
    "machine": {"cores": "cores"},
    "times": {"restart_s": "s"},
    "training": None,
}
"""Section → its values and their units. `training` has a value for each job and size of its gang."""


def load_calibration(path: str | Path | None = None) -> Calibration:
    """Read and check a cluster's calibration; None reads the default that ships.

    Its values have dotted keys, `times.restart_s`. Raises as lab.ask.calibration.read.
    """
    cure = f"{DEFAULT_PATH.name} shows how one looks"
    return calibration.read_flat(DEFAULT_PATH if path is None else Path(path), SCHEMA, UNITS, cure)


def write(calibrated: Calibration, head: str) -> str:
    """Return the calibration as the text of a file that begins with the comment `head`."""
    template = DEFAULT_PATH.read_text(encoding="utf-8")
    return calibration.written(calibrated, sections(calibrated), template, head)


def sections(calibrated: Calibration) -> dict[str, Values]:
    """Return the values by section and key."""
    return calibration.by_section(calibrated, UNITS)


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
