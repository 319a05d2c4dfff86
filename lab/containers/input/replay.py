"""A scenario's workload in the twin's form, and the port that converts every sort of input into it.

For: the runner's view of a trace, a synthetic demand, an application's requests or a function's pods. Not
for: any of these (workload.py, services/prepare.py, services/functions.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import History
from lab.containers.input.blocks import profile
from lab.containers.input.sections import ContainerScenario
from twin.containers.model import Machine, Workload
from twin.containers.requests.model import RequestWorkload
from twin.containers.serverless_model import ServerlessWorkload


@dataclass(frozen=True, slots=True)
class Replay:
    """A scenario's workload with one seed, in the twin's form.

    memory_known: whether the input has the container's memory, bool[N]; if not, its memory metrics are
        undefined.
    notes: changes and assumptions, one sentence each.
    about: further fields of the manifest about the workload, in JSON types.
    history: use of the containers in the profile, for policies that learn from it; None without a profile.
    refined: whether the input was coarser than a period, and a random model refined it.
    interval_s: interval of the input, s, if it is coarser than a period, else 0.
    """

    workload: Workload | RequestWorkload | ServerlessWorkload
    memory_known: NDArray[np.bool_]
    notes: tuple[str, ...]
    about: Mapping[str, Any] = field(default_factory=dict)
    history: History | None = None
    refined: bool = False
    interval_s: float = 0.0

    @property
    def profile(self) -> History | None:
        """The use whose peaks count as profiled: that of the profile run, or of the replayed trace."""
        load = self.workload
        if self.history is not None or not isinstance(load, Workload):
            return self.history
        if load.blocks is not None:
            return profile(load)
        demand = load.demand_cores
        if not load.present.all():
            demand = np.where(load.present, demand, np.nan)
        return History(demand, load.memory_bytes, load.period_s)


class Source(Protocol):
    """A scenario's loaded input, which its seeds and policies share."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the input's content, independent of its location."""

    @property
    def inputs(self) -> tuple[dict[str, Any], ...]:
        """The inputs as the manifest lists them: role, sha256, source, and further keys by kind."""

    def settle(self, scenario: ContainerScenario, resolved: dict[str, Any]) -> dict[str, Any]:
        """Return `resolved` (RunSpec.resolved) without the values that depend on a file's location."""

    def prepare(self, scenario: ContainerScenario, machine: Machine, seed: np.random.SeedSequence) -> Replay:
        """Return the workload with this seed. Raises ScenarioError for conditions that do not fit the
        input."""
