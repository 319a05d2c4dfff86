"""The port between the code that decides who runs on what and a backend that carries it out.

For: `Scheduler`, which every policy implements and a backend calls. Not for: the policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np

from control.scheduler.model import Assignment, State


class Scheduler(Protocol):
    """Decides who runs on what. It keeps no clock: time comes with the state.

    at_events: whether it is asked at arrivals, ends and faults too, and not at the ends of rounds only.
    mixes_types: whether one job may run on several GPU types at once.
    elastic: whether a job may have another number of GPUs than its gang, where the state says how fast it is.
    forks: whether a job may have several times its GPUs: a copy of the whole gang on each of several servers.
    """

    at_events: ClassVar[bool] = False
    mixes_types: ClassVar[bool] = False
    forks: ClassVar[bool] = False
    elastic: ClassVar[bool] = False

    def on_round(self, state: State) -> Assignment:
        """Return who has which GPUs from now on. Jobs with GPUs now that are not in it are preempted."""
        ...

    def wake_s(self, state: State, given: Assignment) -> float:  # noqa: ARG002 - most policies need none
        """Return when it is to be asked again at the latest, if nothing else happens, s; inf: never."""
        return np.inf

    def remarks(self) -> Sequence[str]:
        """Return what a reader of the results should know of its decisions, each remark once."""
        return ()
