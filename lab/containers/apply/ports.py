"""The port between an apply and containers, wherever they run.

For: the protocol between the steps of an apply and what they act on: containers of this machine (places.py)
or pods of a cluster (lab.connect.kubernetes). Not for: either of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from testbed.containers.attach.limits import Counters


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running container that a row may mean.

    name: as --map takes it, e.g. docker:web
    plain: its own name
    labels: its labels
    pod: name of its pod, "" for none
    workload: name of the workload that owns its pod, "" where that is not known
    """

    name: str
    plain: str
    labels: Mapping[str, str] = field(default_factory=dict)
    pod: str = ""
    workload: str = ""


class Target(Protocol):
    """One container. Values are by quantity, a key of advise.model.Setting; math.inf is no limit. Every
    method raises GroupGoneError if the container no longer exists, BackendError if its machine refuses."""

    @property
    def name(self) -> str:
        """Return the target's full name."""

    def read(self) -> dict[str, float]:
        """Return the values in force, without those that cannot be set here."""

    def settled(self, quantity: str, value: float) -> float:
        """Return the value that will be in force, possibly rounded. If a limit cannot be removed here, it is
        the present limit."""

    def record(self) -> dict[str, Any]:
        """Return what `put_back` needs besides the value, as plain data."""

    def set(self, quantity: str, value: float) -> None:
        """Put a value in force, or raise; it may raise after a part of it is in force."""

    def put_back(self, quantity: str, value: float, record: Mapping[str, Any]) -> None:
        """Put back a value that `read` returned, with the `record` of that time. Idempotent."""

    def floor_bytes(self) -> int:
        """Return the smallest memory limit that leaves room above the present use, bytes."""

    def counters(self) -> Counters:
        """Return the container's counts so far."""


class Places(Protocol):
    """A runtime or a cluster that is searched for containers."""

    @property
    def kind(self) -> str:
        """Return the kind of place that is stored with changes, so that an undo uses the same place."""

    def candidates(self) -> Sequence[Candidate]:
        """Return the containers that rows are matched with by name and labels."""

    def named(self, text: str) -> list[str]:
        """Return the full names of the containers that a name of --map matches. Raise ScenarioError for an
        invalid name, GroupGoneError for a name without a container."""

    def target(self, name: str) -> Target:
        """Look up the container of a full name. Raise GroupGoneError if it no longer exists."""

    def close(self) -> None:
        """Close all open resources. Idempotent."""
