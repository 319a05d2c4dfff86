"""Instances that this machine emulates: clusters in cgroups and shaped networks that run the user's job.

For: measured step times in a search (`twinbed recommend --search --backend testbed`). Not for: limits and
measuring themselves (emulated.py), GPUs, and parameter servers, which the jobs' all-reduce does not have. A
second of an emulated type takes 1/SCALE seconds here; bills and measurements are in the type's seconds. One
cluster is held at a time, because two would disturb each other's steps. If this process dies, its watchdog
removes its cluster; a lease ends at the next call after its time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from control.provisioner import Held, Order, Reading, State, cannot_run
from testbed.cloud.emulated import SCALE, Cluster, emulated
from testbed.cloud.steps import NOISE_AFTER, NOISE_STEPS
from testbed.containers import leftovers
from testbed.containers.cgroup.drivers import detect
from testbed.containers.record.watchdog import watchdog
from twinbed import ScenarioError

FIRST_STEPS_S = 240.0
"""Longest time until a job's first steps are over, seconds of this machine."""
STEPS_S = 300.0
"""Longest time of the measured steps, seconds of this machine."""
LEFT_CORES = 0.25
"""Cores of this machine that workers leave to the measurement and the kernel."""


@dataclass(slots=True)
class _Life:
    """A cluster that is held. begun_s: monotonic time of its launch, s. state: state of all its instances."""

    order: Order
    cluster: Cluster
    begun_s: float
    state: State = State.CREATING


class EmulatedInstances:
    """A provisioner of emulated types. cores: cores of this machine that it may use; None: all."""

    def __init__(self, *, cores: float | None = None) -> None:
        self._cores = float(os.cpu_count() or 1) if cores is None else cores
        self._life: _Life | None = None

    def refusal(self, order: Order) -> str:
        """Return the reason why this machine cannot emulate the order, or ""."""
        if order.server is not None:
            return "emulated clusters have no parameter server; leave --server out, or take --backend twin"
        try:
            limits = emulated(order.kind)
        except ScenarioError as error:
            return str(error)
        needed = order.workers * limits.cores + LEFT_CORES
        if needed > self._cores:
            return (
                f"{order.workers} × {order.kind.name} need {needed:.2f} cores here, and there are "
                f"{self._cores:g}; allow fewer workers or smaller types"
            )
        return ""

    def launch(self, order: Order) -> tuple[str, ...]:
        """Start the job's processes; see Provisioner. Raises ScenarioError while another order is held."""
        self._expire()
        if self._life is not None:
            if (self._life.order.owner, self._life.order.token) == (order.owner, order.token):
                return order.names()
            raise ScenarioError(f"{self._life.order.token} is held here; stop it before {order.token}")
        if problem := self.refusal(order):
            raise ScenarioError(problem)
        directory = Path(order.directory) if order.directory else None
        noise_steps = NOISE_STEPS if order.noisy else 0
        cluster = Cluster(order.command, order.workers, directory=directory, noise_steps=noise_steps)
        # A cluster that fails to start has removed its parts by itself.
        cluster.__enter__()
        self._life = _Life(order, cluster, time.monotonic(), State.RUNNING)
        return order.names()

    def status(self, order: Order) -> dict[str, State]:
        """Return the state of each instance."""
        self._expire()
        life = self._life
        mine = life is not None and (life.order.owner, life.order.token) == (order.owner, order.token)
        return dict.fromkeys(order.names(), life.state if mine and life is not None else State.GONE)

    def measure(self, order: Order, steps: int) -> Reading:
        """Measure steps under the type's limits; see Provisioner.

        Gradients are measured first, without limits, because the type's speed does not change them. Those
        steps are billed as if they had taken as long as the others.
        """
        life = self._life
        if State.GONE in self.status(order).values() or life is None:
            return cannot_run(0.0, f"{order.token} is not held")
        begun_s = time.monotonic()
        try:
            if order.noisy:
                life.cluster.wait_for_steps(FIRST_STEPS_S, NOISE_AFTER)
            else:
                life.cluster.wait_for_steps(FIRST_STEPS_S)
            # The start has no limits; its bill comes from the provider's rules.
            begun_s = time.monotonic()
            left_s = order.lease_s / SCALE - (begun_s - life.begun_s)
            measured = life.cluster.measure(
                emulated(order.kind), count=steps, within_s=max(min(STEPS_S, left_s), 1.0)
            )
        except ScenarioError as error:
            life.state = State.FAILED
            return cannot_run(self._billed_s(begun_s), str(error))
        if not measured.fits:
            life.state = State.FAILED
            return cannot_run(self._billed_s(begun_s), "it does not fit into the memory")
        billed_s = self._billed_s(begun_s)
        if not order.noisy:
            return Reading(measured.step_s * SCALE, billed_s)
        billed_s += NOISE_AFTER * float(measured.step_s.mean()) * SCALE
        noise = life.cluster.noise(order.batch)
        return Reading(measured.step_s * SCALE, billed_s, noise=noise)

    def stop(self, owner: str, token: str) -> None:
        """End the processes and remove groups, networks and files."""
        life = self._life
        if life is not None and (life.order.owner, life.order.token) == (owner, token):
            # Where this fails, the instances are still held. The rest is left over then, and the next stop
            # removes it.
            life.cluster.__exit__(None, None, None)
            leftovers.sweep(detect())
            self._life = None

    def held(self, owner: str) -> tuple[Held, ...]:
        """Return the instances of the order that is held."""
        self._expire()
        life = self._life
        if life is None or life.order.owner != owner:
            return ()
        return tuple(Held(name, life.order.token, life.state) for name in life.order.names())

    def _billed_s(self, since_s: float) -> float:
        return (time.monotonic() - since_s) * SCALE

    def _expire(self) -> None:
        life = self._life
        if life is not None and self._billed_s(life.begun_s) >= life.order.lease_s:
            self.stop(life.order.owner, life.order.token)


@contextmanager
def emulated_instances() -> Iterator[EmulatedInstances]:
    """Yield a provisioner whose instances are removed at once if this process dies."""
    with watchdog():
        yield EmulatedInstances()
