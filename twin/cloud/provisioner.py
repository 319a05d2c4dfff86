"""Instances in virtual time, for rehearsing a search. Their steps take the time of a model.

For: the trials and the price of a search (`twinbed recommend --search --backend twin`), and faults at any
call. Not for: learning about a job, because only the model answers. Each order's clock starts at its launch.
A call takes no time except the steps that it measures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from control.provisioner import Held, Order, Reading, State, cannot_run
from twinbed import ScenarioError
from twinbed.text import counted

WARM_UP_STEPS = 3
"""Number of steps that are held and paid but not measured, as on the testbed."""


@dataclass(slots=True)
class _Instance:
    """An instance that is billed. order: its order; until_s: end of its lease on the virtual clock."""

    order: Order
    until_s: float


@dataclass(slots=True)
class Virtual:
    """A provisioner without machines.

    step_s: function: order → time of a step on its cluster, s; NaN if the model does not apply. spread:
    standard deviation of the logarithm of a step's time. noise: noise scale of the job's gradients, samples;
    NaN if not known. seed: seed of the draws. now_s: the virtual clock.
    """

    step_s: Callable[[Order], float]
    spread: float = 0.02
    noise: float = float("nan")
    seed: int = 0
    now_s: float = 0.0
    _instances: dict[str, _Instance] = field(default_factory=dict)

    def refusal(self, order: Order) -> str:
        """Return the reason if the model has no step time for the order, else ""."""
        if np.isfinite(self.step_s(order)):
            return ""
        return f"the model of the local run knows no step time on {order.kind.name}"

    def launch(self, order: Order) -> tuple[str, ...]:
        """Create the instances that do not exist yet; see Provisioner."""
        if problem := self.refusal(order):
            raise ScenarioError(problem)
        self._expire()
        for name in order.names():
            if name not in self._instances:
                self._create(name, order)
        return order.names()

    def status(self, order: Order) -> dict[str, State]:
        """Return RUNNING for existing instances, else GONE."""
        self._expire()
        there = self._instances
        return {name: State.RUNNING if name in there else State.GONE for name in order.names()}

    def measure(self, order: Order, steps: int) -> Reading:
        """Draw the steps around the model's time, and advance the clock by the held time; see Provisioner."""
        first = self._instances.get(order.names()[0])
        mean_s = self.step_s(order)
        held_s = (WARM_UP_STEPS + steps) * mean_s
        if first is None or self.now_s + held_s > first.until_s:
            left_s = 0.0 if first is None else first.until_s - self.now_s
            self.now_s += left_s
            self._expire()
            asked = counted(steps, "step")
            return cannot_run(left_s, f"the lease of {order.lease_s:g} s ended before {asked}")
        # The owner is random, and the same question has the same rehearsal.
        generator = np.random.default_rng([self.seed, *order.token.encode()])
        drawn = mean_s * np.exp(self.spread * generator.standard_normal(steps))
        self.now_s += held_s
        return Reading(drawn, held_s, noise=self.noise if order.noisy else float("nan"))

    def stop(self, owner: str, token: str) -> None:
        """Delete the instances of an order one by one."""
        for name, instance in list(self._instances.items()):
            if (instance.order.owner, instance.order.token) == (owner, token):
                self._delete(name)

    def held(self, owner: str) -> tuple[Held, ...]:
        """Return the owner's instances whose lease has not ended."""
        self._expire()
        there = sorted(self._instances.items())
        return tuple(
            Held(name, instance.order.token, State.RUNNING)
            for name, instance in there
            if instance.order.owner == owner
        )

    def _create(self, name: str, order: Order) -> None:
        self._instances[name] = _Instance(order, self.now_s + order.lease_s)

    def _delete(self, name: str) -> None:
        self._instances.pop(name, None)

    def _expire(self) -> None:
        for name, instance in list(self._instances.items()):
            if self.now_s >= instance.until_s:
                self._instances.pop(name)
