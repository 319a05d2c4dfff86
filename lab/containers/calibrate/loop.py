"""Measures how well the control loop keeps time under load: telemetry delay, jitter and loss, and its own
CPU.

For: one run of many small containers under Escra. Not for: single writes (limits.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from control.allocator import make
from control.allocator.model import Application
from lab.ask.calibration import Value, distribution
from lab.containers.calibrate.figures import jitter
from testbed.containers import ownership
from testbed.containers.host import loop
from testbed.containers.host.identity import own
from testbed.containers.host.observed import Observed
from testbed.containers.load.stress_scripts import StressScripts

CONTAINERS = 11
_BYTES = 32 << 20
_CORES = 0.5
"""Most CPU that all containers together use, cores."""
_CYCLE = 10
"""Number of periods after which a container switches between more and less CPU."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Measured values of the control loop. delay, jitter, loss: the telemetry's, as in Machine; cores: CPU
    use of the loop."""

    delay: Value
    jitter: Value
    loss: Value
    cores: Value


def measure(duration_s: float) -> Kept:
    """Run CONTAINERS containers for `duration_s` seconds. Raises as loop.control."""
    observed = run(CONTAINERS, duration_s)
    late, lost, reports = observed.times.lateness_s, observed.times.lost, observed.reports
    setting = f"{CONTAINERS} containers for {duration_s:g} s, telemetry {observed.telemetry}"
    return Kept(
        distribution(late, "s", f"measured: from when a report was due until it was served; {setting}"),
        jitter(late, f"measured: (p95 - p50) / 1.645 of the same; {setting}"),
        Value(lost / max(lost + reports, 1), "1", f"measured: periods that ended unread; {setting}", reports),
        Value(observed.times.own_cores, "cores", f"measured: CPU of the loop's thread; {setting}"),
    )


def run(containers: int, duration_s: float) -> Observed:
    """Run containers that each use a little CPU, alternating between more and less, under Escra. Raises as
    loop.control.

    Escra's gamma is so small that limits follow the use, so quotas are written all the time.
    """
    most_cores = _CORES / containers
    periods = round(duration_s / 0.1)
    rows = np.arange(periods)[:, None] // _CYCLE + np.arange(containers)[None, :]
    demand = np.where(rows % 2, most_cores, most_cores / 4)
    names = [f"c{index}" for index in range(containers)]
    with ownership.temporary_directory() as folder:
        scripts = StressScripts(
            folder, names, demand, np.full(demand.shape, _BYTES), peak_cores=[most_cores] * containers
        )
        application = Application("calibration", 2 * _CORES + 0.05 * containers, 2 * _BYTES * containers)
        return loop.control(
            scripts.containers,
            [application],
            make("escra", {"gamma": most_cores / 4}),
            loop.Settings(duration_s=duration_s, logs=folder, identity=own(os.environ)),
            client=scripts,
        )
