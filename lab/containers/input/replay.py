"""A scenario's workload ready for the twin, and the port through which every kind of input becomes one.

For: what the runner knows of a trace, a synthetic demand, an application's requests or a function's pods.
Not for: any of them (lab.containers.input.workload, lab.containers.input.services.prepare,
lab.containers.input.services.functions).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lab.containers.input.sections import ContainerScenario
from twin.containers.model import Machine, Workload
from twin.containers.requests.model import RequestWorkload
from twin.containers.serverless_model import ServerlessWorkload


@dataclass(frozen=True, slots=True)
class Replay:
    """A scenario's workload with one seed, ready for the twin.

    memory_known: bool[N], False where the input says nothing of the container's memory, so that memory
    metrics would be about nothing; notes: what was done and assumed, one sentence each; about: what else the
    manifest is to say of the workload (JSON types).
    """

    workload: Workload | RequestWorkload | ServerlessWorkload
    memory_known: NDArray[np.bool_]
    notes: tuple[str, ...]
    about: Mapping[str, Any] = field(default_factory=dict)


class Source(Protocol):
    """A scenario's input, loaded: what its seeds and policies share."""

    @property
    def sha256(self) -> str:
        """SHA-256 of all that the input says, wherever it lies."""

    @property
    def inputs(self) -> tuple[dict[str, Any], ...]:
        """What went in, for the manifest: role, sha256, source, …."""

    def settle(self, scenario: ContainerScenario, resolved: dict[str, Any]) -> dict[str, Any]:
        """`resolved` (RunSpec.resolved) without what depends on where a file lies."""

    def prepare(self, scenario: ContainerScenario, machine: Machine, seed: np.random.SeedSequence) -> Replay:
        """The workload with this seed; raises ScenarioError for conditions that do not fit the input."""
