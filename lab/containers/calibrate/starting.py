"""Measures how long the service program takes to start, and how much CPU that takes.

For: `restart_s` and `restart_cpu_s`, because a container that is killed spends its start-up again, under
its quota. Not for: the costs of the running program (program.py). The program starts alone, as a restarted
container does.
"""

from __future__ import annotations

import os
import time

from control.services import Handler, Service, ServiceApp
from lab.ask.calibration import Value
from lab.containers.calibrate.figures import distribution
from testbed.containers import ownership
from testbed.containers.cgroup.drivers import Driver
from testbed.containers.host.hosted import HostedContainer
from testbed.containers.host.identity import own
from testbed.containers.services.deploy import deploy
from twinbed import BackendError

_POLL_S = 0.002
_DEADLINE_S = 30.0


def measure(driver: Driver, starts: int) -> dict[str, Value]:
    """Return fields of twin.containers.model.Machine from `starts` starts. Raises BackendError if one does
    not answer."""
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
