"""The values of a machine's calibration for containers, and those that the twin uses.

For: reading, checking and writing a calibration of containers; calibration_default.toml is the one that
ships. Not for: measuring a machine (measure.py) nor for the form of the file (lab.ask.calibration).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from lab.ask import calibration
from lab.ask.calibration import Calibration, Values
from twin.containers.model import Machine

SCHEMA = 6
"""Version of the file's form."""
DEFAULT_PATH = Path(__file__).with_name("calibration_default.toml")
_UNITS = {"telemetry_loss": "1", "dilation": "ratio", "base_bytes": "B", "loop_cores": "cores"} | {
    "kernel_bytes": "B",
    "stolen": "1",
    "imbalance": "1",
    "moves": "1",
}
"""Units of the values that are not in seconds."""


@dataclass(frozen=True, slots=True)
class Program:
    """Costs of the testbed's service program and its environment beyond the declared demand: CPU, memory and
    time.

    visit_s: CPU of a visit whose container is awake, s
    stage_s: CPU in the caller for each stage in which it makes calls, with what follows the stage, s
    call_s: CPU in the caller for each of its calls, s
    dilation: CPU used per CPU second declared
    wake_s, wake_tau_s: CPU of waking up, as in twin.containers.requests.model.ServiceGraph, s
    network_s: time of a call's way to another process and back, without CPU, s
    base_bytes: memory of a container that declares none, while it serves
    kernel_bytes: memory that is charged to a container beyond what it declares, while it serves: the kernel's
        own for its processes, and pages charged in advance on each CPU
    loop_cores: CPU of the control loop, cores
    client_request_s: CPU of the load generator per request, s
    client_s: time of a client's request to the first process and back, s
    stolen, imbalance, moves: of the machine's CPUs, as in twin.containers.requests.model.RequestWorkload
    """

    visit_s: float
    stage_s: float
    call_s: float
    dilation: float
    wake_s: float
    wake_tau_s: float
    network_s: float
    base_bytes: float
    kernel_bytes: float
    loop_cores: float
    client_request_s: float
    client_s: float
    stolen: float
    imbalance: float
    moves: float


@dataclass(frozen=True, slots=True)
class MachineCalibration(Calibration):
    """A calibration for containers. values: one per field of Machine; program: one per field of Program;
    measured: further measurements that the twin does not use."""

    program: Values = field(default_factory=dict)
    measured: Values = field(default_factory=dict)

    def machine(self, overrides: Mapping[str, float] | None = None) -> Machine:
        """Return the twin's machine; `overrides` (field of Machine → value) replace single values."""
        return machine(self, overrides or {})

    def costs(self) -> Program:
        """Return the costs of the service program."""
        return Program(**{key: value.value for key, value in self.program.items()})


def machine(calibrated: Calibration, overrides: Mapping[str, float]) -> Machine:
    """Return the twin's machine; `overrides` (field of Machine → value) replace single values."""
    return Machine(**({key: value.value for key, value in calibrated.values.items()} | dict(overrides)))


def load_calibration(path: str | Path | None = None) -> MachineCalibration:
    """Read and check a calibration file; None reads the default that ships. Raises as
    lab.ask.calibration.read."""
    units = {"values": _units(Machine), "program": _units(Program), "measured": None}
    cure = "`twinbed calibrate --out FILE` makes such a file"
    head, sections = calibration.read(DEFAULT_PATH if path is None else Path(path), SCHEMA, units, cure)
    values, program, measured = sections.values()
    return MachineCalibration(**head, values=values, program=program, measured=measured)


def write(calibrated: MachineCalibration, head: str = "") -> str:
    """Return the calibration as the text of a file that begins with the comment `head`."""
    template = DEFAULT_PATH.read_text(encoding="utf-8")
    sections = {section: getattr(calibrated, section) for section in ("values", "program", "measured")}
    return calibration.written(calibrated, sections, template, head)


def _units(kind: type[Any]) -> dict[str, str]:
    return {entry.name: _UNITS.get(entry.name, "s") for entry in fields(kind)}
