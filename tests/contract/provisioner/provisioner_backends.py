"""The backends of the contract of provisioners: virtual, Google Cloud's adapter, emulated types."""

from __future__ import annotations

import os
import sys
from typing import Protocol

from control.jobs import InstanceType
from control.provisioner import Order, Provisioner
from testbed.cloud import emulated
from testbed.cloud.gcloud import Gcloud
from testbed.cloud.provisioner import EmulatedInstances
from testbed.containers import network
from testbed.containers.cgroup import tree
from testbed.containers.cgroup.drivers import detect
from tests.contract.provisioner.compute import ZONE, Compute
from twin.cloud.provisioner import Virtual
from twinbed import BackendError

OWNER = "twinbed-contract"
KIND = InstanceType("n1-standard-4", "gcp", 4, 15, network_bps=10e9)
_TRAIN = """
import os, time
steps = open(f"{os.environ['TWINBED_STEPS']}/{os.environ['RANK']}.steps", "ab", 0)
while True:
    time.sleep(0.01)
    steps.write(time.monotonic_ns().to_bytes(8, "little"))
"""
TRAINS = (sys.executable, "-S", "-c", _TRAIN)
DIES = (sys.executable, "-S", "-c", "raise SystemExit('no data')")


def order(token: str = "t1", command: tuple[str, ...] = TRAINS, owner: str = OWNER) -> Order:
    return Order(owner, token, KIND, 2, command, 64, lease_s=600)


class Backend(Protocol):
    """A backend. fault_at: number of the inner call that fails. late: whether it fails after its effect.
    inner: number of inner calls so far."""

    provisioner: Provisioner
    inner: int

    def __init__(self, fault_at: int | None = None, *, late: bool = False) -> None: ...
    def billable(self) -> int: ...
    def pass_time(self, seconds: float) -> None: ...
    def dies(self) -> None: ...


class _Faulty(Virtual):
    def __init__(self, fault_at: int | None, *, late: bool) -> None:
        super().__init__(lambda _: 0.01)
        self.fault_at, self.late, self.inner = fault_at, late, 0

    def _create(self, name, order):
        self._at(lambda: Virtual._create(self, name, order))

    def _delete(self, name):
        self._at(lambda: Virtual._delete(self, name))

    def _at(self, effect):
        number, self.inner = self.inner, self.inner + 1
        if number != self.fault_at or self.late:
            effect()
        if number == self.fault_at:
            raise BackendError("the cloud is down")


class InTwin:
    def __init__(self, fault_at: int | None = None, *, late: bool = False) -> None:
        self.provisioner = _Faulty(fault_at, late=late)

    @property
    def inner(self) -> int:
        return self.provisioner.inner

    def billable(self) -> int:
        return len(self.provisioner._instances)

    def pass_time(self, seconds: float) -> None:
        self.provisioner.now_s += seconds

    def dies(self) -> None:
        raise NotImplementedError("a job in the twin cannot die")


class InGcloud:
    def __init__(self, fault_at: int | None = None, *, late: bool = False) -> None:
        self.compute = Compute(fault_at, late=late)
        ends = " ".join(str(10_000_000 * number) for number in range(200))
        self.compute.console = f"Debian GNU/Linux 12 ttyS0\n[    9.1] twinbed-steps 431 {ends}\n"
        self.provisioner = Gcloud(
            ZONE,
            "mine",
            real=True,
            cap_usd=1.0,
            call=self.compute,
            wait=self.compute.wait,
            clock=lambda: self.compute.now_s,
        )

    @property
    def inner(self) -> int:
        return len(self.compute.calls)

    def billable(self) -> int:
        return len(self.compute.instances)

    def pass_time(self, seconds: float) -> None:
        self.compute.now_s += seconds

    def dies(self) -> None:
        self.compute.console = "twinbed-steps 0 \ntwinbed-end 1 no data\n"


class InCgroups:
    """The inner calls are those of tc: two for each worker when it starts, two under its limits."""

    def __init__(self, fault_at: int | None = None, *, late: bool = False) -> None:
        self.provisioner = EmulatedInstances(cores=8.0)
        self.inner = 0
        real = emulated._tc.__wrapped__ if hasattr(emulated._tc, "__wrapped__") else emulated._tc

        def counted(*arguments):
            number, self.inner = self.inner, self.inner + 1
            if number != fault_at or late:
                real(*arguments)
            if number == fault_at:
                raise BackendError("tc: the machine refused")

        counted.__wrapped__ = real
        emulated._tc = counted

    def billable(self) -> int:
        mine = f"run-{os.getpid()}-"
        groups = [path for path in tree.runs(detect().mounts) if path.name.startswith(mine)]
        return len(tree.pids(groups)) + len([run for run in network.runs() if run.startswith(mine)])

    def pass_time(self, seconds: float) -> None:
        self.provisioner._life.begun_s -= seconds / emulated.SCALE

    def dies(self) -> None:
        pass
