"""The port through which a search holds instances: launch, status, measure, stop, and the list of billable
instances.

For: the terms that all backends share (virtual, emulated, a real cloud). Not for: choosing a cluster
(recommender/), nor for ensuring that nothing stays billable (lab.cloud.search.held). Every instance carries
the owner and the token of its order. So the owner's name suffices to find all of its instances, even after a
crash in the middle of a launch. Every order has a lease: the backend ends its instances after that time even
if no call arrives. Source: FC² (Ta, Cluster Computing 22, 2019) §6 for provisioner and monitor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from control.jobs import InstanceType, Real
from twinbed import ScenarioError

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
"""Form of an owner and a token: what every cloud allows in the names and labels of instances."""


class State(StrEnum):
    """State of an instance. A backend bills for every instance that is not GONE."""

    CREATING = "creating"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Order:
    """A cluster to launch and the job that it is to run.

    owner: mark of the search that pays; token: name of this launch, unique for its owner.
    kind: type of the workers; workers: their number.
    server: type of the one parameter server, None for none.
    command: command of each process; directory: folder where it runs, "" for any.
    batch: samples per worker and step.
    lease_s: time after which the instances end by themselves, s as the backend bills it.
    spot: whether they are bought on the spot market.
    noisy: whether the noise scale of the job's gradients is measured, too.

    Raises ScenarioError for an owner or token that no cloud would accept, and counts and leases below 1.
    """

    owner: str
    token: str
    kind: InstanceType
    workers: int
    command: tuple[str, ...]
    batch: int
    lease_s: float
    directory: str = ""
    server: InstanceType | None = None
    spot: bool = False
    noisy: bool = False

    def __post_init__(self) -> None:
        for name in (self.owner, self.token):
            if not _NAME.fullmatch(name):
                raise ScenarioError(f"{name!r}: expected up to 40 of a–z, 0–9 and -, a letter first")
        if self.workers < 1 or self.batch < 1 or not self.lease_s >= 1:
            raise ScenarioError(
                f"{self.workers} workers, batch {self.batch}, lease {self.lease_s:g} s: each is at least 1"
            )

    def names(self) -> tuple[str, ...]:
        """Return the names of the instances: the workers by rank, then the parameter server."""
        workers = tuple(f"{self.owner}-{self.token}-{rank}" for rank in range(self.workers))
        return workers + ((f"{self.owner}-{self.token}-server",) if self.server else ())


@dataclass(frozen=True, slots=True)
class Reading:
    """Measurements on a cluster.

    step_s: duration of each measured step on the ordered type, s, float64[k]. held_s: time that the instances
    were held for it, s as billed; with the provider's start-up only if from_launch. use_bps: bandwidth of the
    server's port that one worker used, bit/s; NaN if not measured. noise: noise scale of the gradients,
    samples; NaN if not measured or not known. problem: reason why the job cannot run there, "" if it can.
    With a problem there is no step. revoked: whether the problem is that the provider took a spot instance
    back, which tells nothing about the job.
    """

    step_s: Real
    held_s: float
    use_bps: float = float("nan")
    problem: str = ""
    noise: float = float("nan")
    revoked: bool = False
    from_launch: bool = False


def cannot_run(held_s: float, problem: str, *, revoked: bool = False) -> Reading:
    """Return the reading of a job that does not run on a cluster."""
    return Reading(np.empty(0), held_s, problem=problem, revoked=revoked)


@dataclass(frozen=True, slots=True)
class Held:
    """One billable instance. name: name of the instance; token: token of its order; state: any state but
    GONE."""

    name: str
    token: str
    state: State


class Provisioner(Protocol):
    """Holds instances. Any call may raise BackendError; after that, `held` and `stop` still work."""

    def refusal(self, order: Order) -> str:
        """Return why this backend cannot launch the order, "" if it can. It launches nothing."""
        ...

    def launch(self, order: Order) -> tuple[str, ...]:
        """Start the order's instances and its job on them, and return their names.

        A second launch with the same owner and token returns the same names and starts nothing. Raises
        ScenarioError for an order that it refuses.
        """
        ...

    def status(self, order: Order) -> Mapping[str, State]:
        """Return the state of each instance of the order by name; GONE if it does not exist."""
        ...

    def measure(self, order: Order, steps: int) -> Reading:
        """Return `steps` steps or more of a launched order after warming up. The call blocks until then.

        A job that ends earlier gives a reading with a problem, not an error.
        """
        ...

    def stop(self, owner: str, token: str) -> None:
        """End the instances of an order. Return when none is billable. A second call is harmless."""
        ...

    def held(self, owner: str) -> tuple[Held, ...]:
        """Return every billable instance of an owner, by name."""
        ...
