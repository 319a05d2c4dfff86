"""Makes all measurements of `twinbed calibrate`, one after another, as one calibration.

For: `twinbed calibrate`. The start of the service program is measured here. Not for: the other
measurements. No workload that validations use is used here.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, fields
from datetime import UTC, datetime

from control.services import Handler, Service, ServiceApp
from lab.ask.calibration import Value, distribution
from lab.ask.kind import Progress
from lab.containers.calibrate import limits, loop, probe, program
from lab.containers.calibrate.values import MachineCalibration, Program, load_calibration
from testbed.containers import leftovers, machine, ownership
from testbed.containers.cgroup.drivers import Driver, detect
from testbed.containers.host.hosted import HostedContainer
from testbed.containers.host.identity import own
from testbed.containers.services.deploy import deploy
from twin.containers.model import Machine
from twinbed import BackendError

HEAD = """What `twinbed calibrate` found on this machine. Every value carries its unit and its source; a value
that nobody has measured says "assumption". `[values.*]` are the fields of twin.containers.model.Machine,
`[program.*]` those of lab.containers.calibrate.values.Program, `[measured.*]` are further measurements."""

STEPS = ("quota writes", "memory writes", "OOM grants", "throttling", "control loop", "service program")


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure. extent: extent of the measurement of limits; starts: number of starts of the
    service program; loop_s, program_s: length of the control loop's and the program's run, s."""

    extent: limits.Extent
    starts: int
    loop_s: float
    program_s: float


THOROUGH = Effort(limits.Extent(writes=4000, grants=1000, burn_s=4.0), starts=20, loop_s=60.0, program_s=95.0)
QUICK = Effort(
    limits.Extent(writes=500, grants=100, burn_s=1.0, quotas_ms=(5, 20, 100)),
    starts=4,
    loop_s=8.0,
    program_s=20.0,
)


def calibrate(name: str, effort: Effort, tell: Progress) -> MachineCalibration:
    """Measure this machine. Raise BackendError if it cannot be measured. No process is left running."""
    driver = detect()
    leftovers.sweep(driver)
    values = dict(load_calibration().values)
    tell(STEPS[0], 0.0)
    values["quota_write_delay_s"] = limits.quota_writes(driver, effort.extent)
    tell(STEPS[0], 1.0)
    values["reclaim_delay_s"] = limits.memory_writes(driver, effort.extent)
    values["burst_s"] = limits.burst(driver)
    tell(STEPS[1], 1.0)
    values["oom_grant_delay_s"] = limits.oom_grants(driver, effort.extent).grants
    tell(STEPS[2], 1.0)
    measured = probe.core_speed()
    for threads in (1, 2):
        measured |= limits.throttling(driver, effort.extent, threads)
        tell(STEPS[3], threads / 2)
    kept = loop.measure(effort.loop_s)
    tell(STEPS[4], 1.0)
    values |= {
        "telemetry_delay_s": kept.delay,
        "telemetry_jitter_s": kept.jitter,
        "telemetry_loss": kept.loss,
    }
    costs = program.measure(effort.program_s, lambda fraction: tell(STEPS[5], fraction))
    values |= _starting(driver, effort.starts)
    facts = machine.facts()
    return MachineCalibration(
        name=name,
        kernel=probe.kernel(driver),
        cpu=f"{facts['cpus']} × {facts['cpu_model']}",
        date=datetime.now(UTC).date().isoformat(),
        values={field.name: values[field.name] for field in fields(Machine)},
        sha256="",
        program={
            field.name: ({"loop_cores": kept.cores} | costs.program)[field.name] for field in fields(Program)
        },
        measured=measured | costs.residuals,
    )


_POLL_S = 0.002
_DEADLINE_S = 30.0


def _starting(driver: Driver, starts: int) -> dict[str, Value]:
    """Return fields of twin.containers.model.Machine from `starts` starts. Raises BackendError if a start
    gives no answer."""
    app = ServiceApp("calibration", {"alone": Service({"work": Handler(0.0)})}, {"page": "alone.work"})
    taken_s: list[float] = []
    burnt_s: list[float] = []
    with ownership.temporary_directory() as folder, deploy(app, folder) as placed:
        (container,) = placed.containers
        for _ in range(starts):
            run = ownership.new_run()
            group = driver.create(run, "start")
            started = HostedContainer(
                "start", container.spec, group, ready=container.ready, identity=own(os.environ)
            )
            began = time.monotonic()
            try:
                started.start((), None, time.monotonic_ns(), lasting=False)
                while not started.is_ready():
                    if started.reap() or time.monotonic() - began > _DEADLINE_S:
                        raise BackendError("calibration: the service program does not start; see its message")
                    time.sleep(_POLL_S)
                taken_s.append(time.monotonic() - began)
                burnt_s.append(group.read().cpu_ns * 1e-9)
            finally:
                started.kill()
                while started.exit_code is None and not started.reap():
                    time.sleep(_POLL_S)
                group.remove()
                driver.finish(run)
    source = "measured: the service program, alone and under no limits, from its start to its first answer"
    return {
        "restart_s": distribution(taken_s, "s", source),
        "restart_cpu_s": distribution(burnt_s, "s", f"{source}: CPU time"),
    }
