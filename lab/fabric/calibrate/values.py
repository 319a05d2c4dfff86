"""The calibrated values of a fabric, measured or assumed, as a TOML file, and the twin's parameters from
them.

For: reading, checking and writing a fabric's calibration, and replacing single values. Not for: the form of
the file (lab.ask.calibration). calibration_default.toml ships.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from control.fabric import BfdTimers
from lab.ask.calibration import Calibration, Form, Value
from lab.fabric.calibrate.retries import RetryProfile, retry_profile
from twin.fabric.model import (
    Bond,
    ControlPlane,
    Delay,
    FastPath,
    Handling,
    QueuePair,
    Reroute,
    Scheme,
    Stalls,
)
from twinbed import ScenarioError
from twinbed.text import nearest

DEFAULT_PATH = Path(__file__).with_name("calibration_default.toml")
_DELAYS = ("carrier_s", "message_s", "route_s", "rule_s", "session_up_s")
_FAST = ("late_s", "told_s", "route_s")
UNITS: Mapping[str, Mapping[str, str]] = {
    "control": dict.fromkeys(("hold_s", *_DELAYS), "s"),
    "fast": dict.fromkeys(_FAST, "s"),
    "stalls": {"per_s": "1/s", "floor_s": "s", "excess_s": "s"},
    "bfd": {"interval_s": "s", "multiplier": "packets"},
    "bond": {"miimon_s": "s", "lacp_s": "s"},
    "reroute": {"timeout_s": "s", "rebuild_s": "s"},
    "link": {"rate_bps": "bit/s", "delay_s": "s"},
    "software": {"rate_bps": "bit/s", "delay_s": "s"},
    "collective": {"alpha_s": "s"},
    "queue_pair": {
        "timeout": "exponent",
        "retry_count": "retries",
        "timer_slack": "timeouts",
        "mtu_bytes": "B",
        "window": "packets",
    },
    "retry_cx6_20_43": {
        "adaptive_s": "s",
        "first_s": "s",
        "least_timeout": "exponent",
        "tolerance_s": "s",
    },
    "retry_cx6_20_40": {
        "rungs_s": "s",
        "error_s": "s",
        "retry_count": "retries",
        "most_timeout": "exponent",
    },
    "retry_floor_off": {"first": "timeouts"},
    "retry_adp": {
        "base_s": "s", "granularity": "exponent", "first_low": "units", "first_range": "units",
        "first_share": "1", "low": "units", "size": "units", "tries": "tries", "total": "exponent",
        "slack": "timeouts",
    },
}  # fmt: skip
"""Section → its values and their units."""
FORM = Form(DEFAULT_PATH, 3, UNITS, "fabric")
write = FORM.write

_SERIES = {
    "retry_cx6_20_43": ("adaptive_s",),
    "retry_cx6_20_40": ("rungs_s",),
    "retry_adp": ("low", "size", "tries"),
}
"""Section → values that are series, which no single number replaces."""

_WHOLE = ("exponent", "packets", "retries", "tries", "B")
"""Units of which there are only whole numbers."""


def load_calibration(path: str | Path | None = None) -> Calibration:
    """Return the calibration in a file, or the one that ships. Raises ScenarioError."""
    calibration = FORM.load(path)
    for name, value in calibration.values.items():
        section, _, key = name.partition(".")
        for number in value.series or (value.value,):
            if UNITS[section][key] in _WHOLE and number % 1:
                raise ScenarioError(f"{path or DEFAULT_PATH}: {name}: {number:g}; give a whole number")
    return calibration


Replaced = Mapping[str, Mapping[str, float]]
"""Replaced values: section → value → number."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """Everything that the twin takes from a calibration.

    rate_bps, delay_s: rate and one-way delay of a link between a host and a ToR.
    software_rate_bps, software_delay_s: the same of a host whose kernel does the overlay.
    alpha_s: latency of a collective's step, s.
    """

    control: ControlPlane
    timers: BfdTimers
    bond: Bond
    reroute: Reroute
    queue_pair: QueuePair
    rate_bps: float
    delay_s: float
    software_rate_bps: float
    software_delay_s: float
    alpha_s: float

    def handling(self, scheme: Scheme) -> Handling:
        """Return the delays and timers with which a scheme handles faults."""
        return Handling(scheme, self.control, self.timers, self.bond, self.reroute)


def check(replaced: Replaced) -> Replaced:
    """Return `replaced`. Raises ScenarioError for a value that no calibration has, and names the nearest
    value, and for a part of an exponent or of a packet."""
    known = [f"{section}.{key}" for section, units in UNITS.items() for key in units]
    for section, values in replaced.items():
        for key in values:
            name = f"{section}.{key}"
            if name not in known:
                hint = nearest(name, known, f"sections are {', '.join(UNITS)}")
                raise ScenarioError(f"{name}: no calibration has such a value; {hint}")
            if key in _SERIES.get(section, ()):
                raise ScenarioError(f"{name}: a series; change it in a calibration file of your own")
            if UNITS[section][key] in _WHOLE and values[key] % 1:
                raise ScenarioError(f"{name}: {values[key]:g}; give a whole number")
    return replaced


def fabric(
    calibration: Calibration,
    replaced: Replaced,
    *,
    retries: RetryProfile = RetryProfile.CX6_20_43,
    fast_path: bool = False,
) -> Fabric:
    """Return the calibration's fabric with single values replaced. A replaced delay keeps its relative
    spread.

    retries: how queue pairs space their retransmissions. fast_path: hosts run the fast path. Raises
    ScenarioError for queue pairs that no adapter has.
    """
    values = dict(calibration.values)
    numbers = {key: value.value for key, value in values.items()}
    numbers |= {
        f"{section}.{key}": value for section, changes in replaced.items() for key, value in changes.items()
    }

    def delay(key: str) -> Delay:
        return _delay(values[key], numbers[key])

    def of(section: str) -> dict[str, float]:
        return {key: numbers[f"{section}.{key}"] for key in UNITS[section]}

    pair = {key: int(value) for key, value in of("queue_pair").items() if key != "timer_slack"}
    return Fabric(
        control=ControlPlane(
            hold_s=numbers["control.hold_s"],
            **{key: delay(f"control.{key}") for key in _DELAYS},
            stalls=Stalls(**of("stalls")),
            fast=FastPath(**{key: delay(f"fast.{key}") for key in _FAST}) if fast_path else None,
        ),
        timers=BfdTimers(numbers["bfd.interval_s"], int(numbers["bfd.multiplier"])),
        bond=Bond(**of("bond")),
        reroute=Reroute(**of("reroute")),
        queue_pair=QueuePair(**pair, retry_profile=retry_profile(retries, values, replaced)),
        rate_bps=numbers["link.rate_bps"],
        delay_s=numbers["link.delay_s"],
        software_rate_bps=numbers["software.rate_bps"],
        software_delay_s=numbers["software.delay_s"],
        alpha_s=numbers["collective.alpha_s"],
    )


def _delay(measured: Value, median_s: float) -> Delay:
    if measured.p95 is None or not measured.value:
        return Delay(median_s, median_s)
    return Delay(median_s, median_s * max(measured.p95 / measured.value, 1.0))
