"""Looks for about a second whether this machine is the one that a calibration describes.

For: every run on the testbed, whose twin is calibrated, and `twinbed validate`. Not for: calibrating
(measure.py). With another machine's calibration, the twin is wrong without any warning: on a machine whose
cores are a third faster, 22 of 36 comparisons agreed instead of 30.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lab.ask.calibration import Calibration, Value
from lab.containers.calibrate import limits
from lab.containers.calibrate.values import MachineCalibration
from testbed.containers import machine
from testbed.containers.cgroup.drivers import Driver, detect
from twinbed import InvariantError

SPEED_KEY = "core_speed"
"""Key of a core's speed among a calibration's further measurements."""

SPEED_WITHIN = 0.10
"""Largest relative difference of a core's speed from the calibrated speed: the twin's error in CPU leads to a
larger error in slack and latency, whose limits are 10 % and 15 % (lab.containers.validate.rule)."""

WRITE_WITHIN_S = 0.001
"""Largest difference of the median time of a quota write that fits, s: a hundredth of a period."""

_SPEED_S = 0.5
_EXTENT = limits.Extent(writes=100, grants=0, burn_s=0.0)
_CURE = "calibrate this machine (`twinbed validate --calibrate`, or `twinbed calibrate` and `calibration:`)"


@dataclass(frozen=True, slots=True)
class Look:
    """Properties of a machine.

    kernel: name and release of the kernel, and version of its cgroups
    core_speed: speed of one core, as testbed.containers.machine.core_speed; None: unknown
    quota_write_s: median time of a quota write, s
    """

    kernel: str
    core_speed: float | None
    quota_write_s: float


@dataclass(frozen=True, slots=True)
class Probe:
    """A machine beside a calibration. name: name of the calibration; here: the machine's properties now;
    calibrated: the calibration's."""

    name: str
    here: Look
    calibrated: Look

    def misfits(self) -> Iterator[str]:
        """Yield the properties that do not fit, a few words for each."""
        if self.calibrated.core_speed is None or self.here.core_speed is None:
            yield "it does not say how fast a core was"
        else:
            more = self.here.core_speed / self.calibrated.core_speed - 1.0
            if abs(more) > SPEED_WITHIN:
                yield f"a core is {abs(more):.0%} {'faster' if more > 0 else 'slower'} here"
        if _version(self.here.kernel) != _version(self.calibrated.kernel):
            yield f"the kernel is {self.here.kernel} here, for {self.calibrated.kernel}"
        longer_s = self.here.quota_write_s - self.calibrated.quota_write_s
        if abs(longer_s) > WRITE_WITHIN_S:
            yield (
                f"a quota write takes {self.here.quota_write_s * 1e3:.2f} ms here, for "
                f"{self.calibrated.quota_write_s * 1e3:.2f} ms"
            )

    @property
    def sentence(self) -> str:
        """Whether the calibration fits: one line that says what does not fit and what to do, or that all
        fits."""
        wrong = "; ".join(self.misfits())
        if wrong:
            return f"Calibration {self.name!r} does not fit this machine: {wrong}. To mend it, {_CURE}."
        return f"Calibration {self.name!r} fits this machine in a core's speed, kernel and quota writes."

    def plain(self) -> dict[str, Any]:
        """Return both sets of properties, in JSON types, for a run's manifest."""
        return {
            "fits": not any(self.misfits()),
            "says": self.sentence,
            **{f"{key}_here": getattr(self.here, key) for key in Look.__slots__},
            **{f"{key}_calibrated": getattr(self.calibrated, key) for key in Look.__slots__},
        }


def probe(calibration: Calibration) -> Probe:
    """Return this machine beside the calibration. Takes about a second. Raises as limits.quota_writes, and
    BackendError where there are no cgroups."""
    if not isinstance(calibration, MachineCalibration):
        raise InvariantError(f"calibration {calibration.name}: not one of a machine")
    driver = detect()
    speed = calibration.measured.get(SPEED_KEY)
    here = Look(kernel(driver), machine.core_speed(_SPEED_S), limits.quota_writes(driver, _EXTENT).value)
    calibrated = Look(
        calibration.kernel,
        None if speed is None else speed.value,
        calibration.values["quota_write_delay_s"].value,
    )
    return Probe(calibration.name, here, calibrated)


def kernel(driver: Driver) -> str:
    """Return the kernel as a calibration names it."""
    return f"{machine.facts()['kernel']}, cgroup v{driver.version}"


def core_speed() -> dict[str, Value]:
    """Return a core's speed as a calibration keeps it."""
    source = "measured: iterations of PBKDF2-SHA256 per CPU second of one thread"
    return {SPEED_KEY: Value(machine.core_speed(2 * _SPEED_S), "1/s", source)}


def _version(text: str) -> tuple[str, ...]:
    """Return the kernel's first two numbers and the version of cgroups, as far as the text has them."""
    return tuple(match[1] for word in (r"(\d+\.\d+)", r"cgroup v(\d)") if (match := re.search(word, text)))
