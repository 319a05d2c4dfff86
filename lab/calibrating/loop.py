"""How well the control loop keeps time under load: telemetry delay, jitter and loss, its own CPU.

For: one run of many small containers under Escra. Not for: single writes (limits.py).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from control.allocator import make
from control.allocator.model import Application
from lab.calibrating.figures import distribution, jitter
from lab.calibration import Value
from testbed.containers import loop
from testbed.containers.stress_scripts import StressScripts

CONTAINERS = 11
_BYTES = 32 << 20
_CORES = 0.04
_CYCLE = 10


@dataclass(frozen=True, slots=True)
class Kept:
    """telemetry: delay, jitter and loss, fields of Machine; cores: what the loop used; writes: of quotas."""

    delay: Value
    jitter: Value
    loss: Value
    cores: Value


def measure(duration_s: float) -> Kept:
    """Runs CONTAINERS containers, each a little CPU in turns, for so long. Raises as loop.control."""
    periods = round(duration_s / 0.1)
    rows = np.arange(periods)[:, None] // _CYCLE + np.arange(CONTAINERS)[None, :]
    demand = np.where(rows % 2, _CORES, _CORES / 4)
    names = [f"c{index}" for index in range(CONTAINERS)]
    with tempfile.TemporaryDirectory(prefix="twinbed-calibrate-") as name:
        scripts = StressScripts(
            Path(name), names, demand, np.full(demand.shape, _BYTES), peak_cores=[_CORES] * CONTAINERS
        )
        application = Application("calibration", 1.5 * _CORES * CONTAINERS, 2 * _BYTES * CONTAINERS)
        found = loop.control(
            scripts.containers,
            [application],
            make("escra", {}),
            loop.Settings(duration_s=duration_s, logs=Path(name)),
            client=scripts,
        )
    late, lost, reports = found.times.lateness_s, found.times.lost, found.reports
    what = f"{CONTAINERS} containers for {duration_s:g} s, telemetry {found.telemetry}"
    return Kept(
        distribution(late, "s", f"measured: from when a report was due until it was served; {what}"),
        jitter(late, f"measured: (p95 - p50) / 1.645 of the same; {what}"),
        Value(lost / max(lost + reports, 1), "1", f"measured: periods that ended unread; {what}", reports),
        Value(found.times.own_cores, "cores", f"measured: CPU of the loop's thread; {what}"),
    )
