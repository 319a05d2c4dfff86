"""The port between a scheduler and a backend that carries out its decisions.

For: `Scheduler`, which every policy implements and a backend calls. Not for: the policies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from control.scheduler.model import Assignment, State


class Scheduler(Protocol):
    """Decides which jobs run on which GPUs. It has no clock: time comes with the state.

    at_events: whether it also decides at arrivals, ends and faults, not only at the ends of rounds.
    mixes_types: whether one job may run on several GPU types at once.
    elastic: whether a job may have another number of GPUs than its gang, if the state gives its speed.
    forks: whether a job may have several times its GPUs: a copy of the whole gang on each of several servers.
    """

    at_events: ClassVar[bool] = False
    mixes_types: ClassVar[bool] = False
    forks: ClassVar[bool] = False
    elastic: ClassVar[bool] = False

    def on_round(self, state: State) -> Assignment:
        """Return the GPUs of jobs from now on. A job with GPUs that is missing in the result is preempted."""
        ...

    def wake_s(self, state: State, given: Assignment) -> float:  # noqa: ARG002 - most policies need none
        """Return the latest time of the next call if nothing else happens, s; inf: none."""
        return np.inf

    def compile(self, compiler: Callable[[Any], Any]) -> None:  # noqa: ARG002 - most policies have no loops
        """Let a backend compile the loops that decide (decision 0049). compiler: returns a function
        compiled."""
        return

    def remarks(self) -> Sequence[str]:
        """Return remarks on its decisions for the reader of the results, each once."""
        return ()
