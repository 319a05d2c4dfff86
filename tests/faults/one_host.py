"""Runs on one host in a child process that faults hit: a control loop, a recording, OCI containers.

For: starting a run with a random mix of containers, and reading its result. Not for: the faults. The child
is forked, so that it begins at once. It can be killed like any other process.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from control.allocator import make
from control.allocator.model import Application
from control.services import Call, Handler, Service, ServiceApp
from testbed.containers.cgroup.attached import attach
from testbed.containers.cgroup.drivers import detect
from testbed.containers.host.container import ContainerSpec
from testbed.containers.host.loop import AttachedSpec, Managed, Settings, control
from testbed.containers.host.observed import Observed
from testbed.containers.host.runtimes import Entering
from testbed.containers.load.generator import LoadGenerator
from testbed.containers.load.plan import LoadPlan
from testbed.containers.ownership import new_run, temporary_directory
from testbed.containers.record.recorder import record
from testbed.containers.services.deploy import deploy
from tests.faults.fault_world import DEADLINE_S, Containers, ViolationError
from twinbed import TwinbedError

Form = Literal["loop", "load", "recording", "oci"]

CORES = 0.3
FOREIGN = "foreign"
MIB = 1 << 20
PERIOD_S = 0.1

IDLE = ("sleep", "1000")
GROWER = (
    "perl",
    "-e",
    'for (1 .. 60) { push @kept, "x" x (1 << 20); select(undef, undef, undef, 0.02) } sleep 1000',
)
COMMANDS = (
    IDLE,
    ("sh", "-c", "while :; do :; done"),
    ("perl", "-e", "while (1) { select(undef, undef, undef, 0.05 * rand()); $x++ for 1 .. 20000 }"),
    GROWER,
    ("sh", "-c", "sleep 1000 & sleep 1000 & wait"),
)
APP = ServiceApp(
    "shop",
    {
        "front": Service({"x": Handler(0.0005, stages=((Call("back.y"),),))}),
        "back": Service({"y": Handler(0.0005)}),
    },
    {"x": "front.x"},
)


@dataclass(frozen=True)
class Outcome:
    """How a child ended. how: `ended`, `error` (a line for the user), `interrupted`, `killed`, `crashed`;
    text: that line, or the traceback; events: (kind, container); rows: periods in the record."""

    how: str
    text: str = ""
    events: tuple[tuple[str, str], ...] = ()
    rows: int = 0
    up: dict[str, bool] = field(default_factory=dict)


class Child:
    """A child process with its run. names: names of its containers. lasts_s: length of its time line, s."""

    def __init__(self, form: Form, draws: random.Random) -> None:
        self.form, self.lasts_s = form, draws.uniform(1.0, 2.0)
        self._commands = {f"c{n}": draws.choice(COMMANDS) for n in range(draws.randint(2, 5))}
        self._foreign = form == "loop" and draws.random() < 0.5
        sys.stdout.flush()
        self._told, tells = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._told)
            self._be(tells)
        os.close(tells)
        self.containers = Containers(f"run-{self.pid}-*")
        self._began: float | None = None

    @property
    def names(self) -> set[str]:
        """Return the containers that the run itself made, without those of services."""
        return set(self._commands)

    def running(self, patience_s: float = DEADLINE_S) -> bool:
        """Wait until the time line has begun. Returns False if the child ended before."""
        if self._began is None:
            readable, _, _ = select.select([self._told], [], [], patience_s)
            if not readable:
                raise ViolationError("the run did not begin")
            if os.read(self._told, 1) != b"!":
                return False
            self._began = time.monotonic()
        return True

    def wait(self, patience_s: float = DEADLINE_S) -> Outcome:
        """Wait for the child's end and return its outcome. A child that takes too long is killed, which is a
        violation."""
        said, deadline = b"", time.monotonic() + patience_s
        while time.monotonic() < deadline:
            readable, _, _ = select.select([self._told], [], [], 0.05)
            if not readable:
                continue
            block = os.read(self._told, 1 << 16)
            said += block
            if not block:
                break
        else:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
            os.close(self._told)
            raise ViolationError(f"the {self.form} did not end within {patience_s:g} s")
        os.close(self._told)
        _, status = os.waitpid(self.pid, 0)
        text = said.lstrip(b"!")
        if not text:
            return Outcome("killed", f"status {status}")
        told: dict[str, Any] = json.loads(text)
        return Outcome(**{**told, "events": tuple(map(tuple, told.get("events", ())))})

    # --- in the child ----------------------------------------------------------------------------

    def _be(self, tells: int) -> None:
        """Run in the child. This function never returns."""
        runs: dict[Form, Callable[[Callable[[], None]], dict[str, Any]]] = {
            "loop": self._loop,
            "load": self._load,
            "recording": self._recording,
            "oci": self._oci,
        }
        begun = [False]

        def begin() -> None:
            if not begun[0]:
                begun[0] = True
                os.write(tells, b"!")

        try:
            with temporary_directory() as self._folder:
                told = {"how": "ended", **runs[self.form](begin)}
        except KeyboardInterrupt:
            told = {"how": "interrupted"}
        except TwinbedError as error:
            told = {"how": "error", "text": str(error)}
        except BaseException:
            told = {"how": "crashed", "text": traceback.format_exc()}
        os.write(tells, json.dumps(told).encode())
        os._exit(0)

    def _loop(self, begin: Callable[[], None]) -> dict[str, Any]:
        driver = detect()
        containers = [Managed(ContainerSpec(name, words)) for name, words in self._commands.items()]
        if self._foreign:
            containers.append(Managed(AttachedSpec(FOREIGN, lambda: attach("/docker/abc", driver))))
        observed = control(
            containers,
            [Application("app", CORES, 400 * MIB)],
            make("escra", {"gamma": 0.01}),
            Settings(duration_s=self.lasts_s, logs=self._folder),
            on_tick=lambda _progress: begin(),
        )
        return _told(observed)

    def _load(self, begin: Callable[[], None]) -> dict[str, Any]:
        at_s = np.arange(0.0, self.lasts_s, 0.02)
        with deploy(APP, self._folder) as laid_out:
            plan = LoadPlan(at_s, np.zeros(len(at_s), np.int64), laid_out.entries, self.lasts_s)
            with LoadGenerator(plan, self._folder) as generator:
                observed = control(
                    [Managed(container.spec, ready=container.ready) for container in laid_out.containers],
                    [Application("app", CORES, 400 * MIB)],
                    make("escra", {"gamma": 0.01}),
                    Settings(duration_s=self.lasts_s + 10.0, logs=self._folder),
                    client=generator,
                    on_tick=lambda _progress: begin(),
                )
                try:
                    generator.result()
                except TwinbedError as error:
                    return _told(observed) | {"how": "error", "text": str(error)}
        return _told(observed)

    def _recording(self, begin: Callable[[], None]) -> dict[str, Any]:
        record(
            [ContainerSpec(name, words) for name, words in self._commands.items()],
            app="app",
            duration_s=self.lasts_s,
            network_mode="own",
            logs=self._folder,
            on_tick=lambda _progress: begin(),
        )
        return {}

    def _oci(self, begin: Callable[[], None]) -> dict[str, Any]:
        driver, run = detect(), new_run()
        made = []
        try:
            for name in list(self._commands)[:2]:
                spec = ContainerSpec(name, IDLE, runtime="oci")
                made.append(Entering(spec, driver.create(run, name)))
                made[-1].start((), None, None)
            begin()
            time.sleep(self.lasts_s)
        finally:
            for container in made:
                container.tidy()
                container.group.remove()
            driver.finish(run)
        return {}


def _told(observed: Observed) -> dict[str, Any]:
    events, last = observed.events, observed.series.up[-1:]
    return {
        "rows": len(observed.series.up),
        "events": [
            (kind, observed.names[each]) for kind, each in zip(events.kind, events.container, strict=True)
        ],
        "up": {
            name: bool(up) for name, up in zip(observed.names, last[0] if len(last) else (), strict=False)
        },
    }
