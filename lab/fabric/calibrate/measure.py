"""Derives the twin's delays from measured failovers.

For: `twinbed calibrate --pillar fabric` and the results page. Not for: measuring faults
(lab.fabric.real.campaign). The effect of a fault on flows is compared with the twin
(lab.fabric.validate.judge) and never calibrates it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.ask.calibration import Calibration, Value, distribution
from lab.fabric.calibrate.values import load_calibration
from lab.fabric.real import campaign
from lab.fabric.real.plan import CALIBRATION, STALLS, WATCHED
from lab.fabric.real.settings import Road, What
from lab.fabric.real.store import MeasuredFault, Store, Watched
from testbed.containers import machine
from twinbed import BackendError

Floats = NDArray[np.float64]

HEAD = """What `twinbed calibrate --pillar fabric` found on this machine. Every value carries its unit and its
source; values that it does not measure are those of the file that ships. The `value` of a delay is its
median."""

_NAME = "calibrated"
_LEAST_S = 1e-5
"""Shortest delay, s. A shorter measured value comes from the clocks."""
_STALL_FLOOR_S = 0.05


STEPS = (
    *(planned.setting.key for planned in CALIBRATION if planned.setting.road is not Road.STOCK),
    "stalls",
)


@dataclass(frozen=True, slots=True)
class Effort:
    """The extent of a measurement.

    faults: number of faults of a setting.
    watched_s: time in which the machine's stalls are counted, s.
    """

    faults: int
    watched_s: float


THOROUGH, QUICK = Effort(30, 120.0), Effort(6, 10.0)


def calibrate(name: str, effort: Effort, progress: Callable[[str, float], None]) -> Calibration:
    """Measure a calibration and return it. Raises BackendError if this machine cannot measure. No process is
    left running."""
    with tempfile.TemporaryDirectory(prefix="twinbed-") as folder:
        store = Store(Path(folder))
        for planned in CALIBRATION:
            key = planned.setting.key
            if key in STEPS:
                progress(key, 0.0)
                campaign.measure(replace(planned, faults=effort.faults), store, _NAME, inf, lambda _: None)
                progress(key, 1.0)
        campaign.watch(STALLS, effort.watched_s, store, _NAME)
        progress(STEPS[-1], 1.0)
        return replace(calibrated(store, Road.FAST), name=name)


def calibrated(store: Store, road: Road) -> Calibration:
    """Return a road's calibration from the stored faults of plan.CALIBRATION, with the defaults for all other
    values.

    FAST has BGP's delays of REAL_TIME, on which it is based, and every road the fast path's own delays.
    Raises BackendError if a delay that every road has was not measured.
    """
    beneath = Road.REAL_TIME if road is Road.FAST else road
    silent: list[MeasuredFault] = []
    carrier: list[MeasuredFault] = []
    fast: list[MeasuredFault] = []
    back_s: list[float] = []
    for planned in CALIBRATION:
        setting, rows = planned.setting, store.faults(planned.setting)
        if setting.what is What.CARRIER:
            carrier += rows
        elif setting.road is Road.FAST:
            fast += rows
        elif setting.road is beneath:
            silent += rows
        if not planned.hurried:
            back_s += [row.back_s for row in rows]
    watched = max(
        (store.watched(planned.setting) for planned in WATCHED),
        key=lambda rows: sum(row.lasted_s for row in rows),
    )
    values = _of_bgp(silent) | _of_fast(fast) | _of_stalls(watched)
    late_s = values["fast.late_s"].value if "fast.late_s" in values else 0.0
    for key, times_s, what in (
        (
            "control.carrier_s",
            _steps(carrier, "fast_carrier") - late_s,
            "from a lost carrier until the fast path acted, less how late it is, median",
        ),
        ("control.session_up_s", np.array(back_s), "from the repair of a link until everybody used it again"),
    ):
        if times_s.size:
            values[key] = _delay(times_s, what)
    facts = machine.facts()
    default = load_calibration()
    return replace(
        default,
        name=str(road),
        kernel=f"{facts['kernel']}, FRR {road}",
        cpu=f"{facts['cpus']} × {facts['cpu_model']}",
        date=datetime.now(UTC).date().isoformat(),
        values={key: values.get(key, value) for key, value in default.values.items()},
        sha256="",
    )


def _of_bgp(rows: Sequence[MeasuredFault]) -> dict[str, Value]:
    """Return BGP's delays.

    The host at the fault needs one hold and its routes. A far host has new routes after two holds, the
    message and the routes. The difference is one hold and the message, of which only the message varies.
    """
    whole = [row.chain for row in rows if {"near", "sent", "far"} <= row.chain.keys()]
    if not whole:
        raise BackendError("calibrate: no complete failover was observed; measure on a quieter machine")
    near_s, sent_s, far_s = (np.array([parts[key] for parts in whole]) for key in ("near", "sent", "far"))
    message_s = sent_s - sent_s.min()
    more_s = np.median(sent_s) + np.median(far_s) - np.median(near_s)
    hold_s = max(float(more_s - np.median(message_s)), _LEAST_S)
    return {
        "control.hold_s": Value(
            hold_s,
            "s",
            "measured: what a host far away needs more than the one at the fault, less the message; medians",
            len(whole),
        ),
        "control.message_s": _delay(
            message_s,
            "from the end of the ToR's detection time until another host had its update, less the shortest",
        ),
        "control.route_s": _delay(
            near_s - hold_s,
            "from the end of the detection time until the host's kernel had new routes, less the hold",
        ),
    }


def _of_fast(rows: Sequence[MeasuredFault]) -> dict[str, Value]:
    routes = np.concatenate([_steps(rows, "fast_route"), _steps(rows, "fast_far")])
    late, told = _steps(rows, "fast_late"), _steps(rows, "fast_told")
    if not (routes.size and late.size and told.size):
        return {}
    return {
        "fast.late_s": _delay(late, "from the end of the detection time until the fast path acted"),
        "fast.told_s": _delay(told, "from then until another host had the report"),
        "fast.route_s": _delay(routes, "until the routes were in force, at either host"),
    }


def _of_stalls(watched: Sequence[Watched]) -> dict[str, Value]:
    """Return the machine's stalls as an exponential distribution beyond a floor.

    watched: rows of one fabric, because fabrics side by side see the same stalls.
    """
    lasted_s = sum(row.lasted_s for row in watched)
    beyond = np.array([stall_s for row in watched for stall_s in row.stalls_s if stall_s >= _STALL_FLOOR_S])
    beyond -= _STALL_FLOOR_S
    if not beyond.size:
        return {}
    count = beyond.size
    said = f"measured: {count} stalls of more than 50 ms in {lasted_s / 60:.1f} minutes"
    return {
        "stalls.per_s": Value(count / lasted_s, "1/s", said, count),
        "stalls.floor_s": Value(_STALL_FLOOR_S, "s", said),
        "stalls.excess_s": Value(max(float(beyond.mean()), _LEAST_S), "s", said, count),
    }


def _steps(rows: Sequence[MeasuredFault], key: str) -> Floats:
    return np.array([row.chain[key] for row in rows if key in row.chain], np.float64)


def _delay(values_s: Floats, what: str) -> Value:
    return distribution(values_s, "s", f"measured: {what}", _LEAST_S)
