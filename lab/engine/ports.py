"""The port of engines, which carry out units of work, several at a time.

For: the engines (local.py, dask.py) and their driver (running.py). Not for: the work of a unit, which is the
caller's function. Units are independent, and do not know where they run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from lab.ask.kind import Progress

Asked = TypeVar("Asked")
Done = TypeVar("Done")

Places = Mapping[str, str]
"""Path of a file as the unit names it → the path at which the worker finds its content."""

Work = Callable[[Asked, Places, Progress], Done]
"""The work on a unit: a function of a module. It may be called again for the same unit, even by two workers
at the same time, so its result must be the same each time. The result must be small."""


@dataclass(frozen=True, slots=True)
class Unit(Generic[Asked]):
    """One piece of work.

    asked: argument of `work`; it is pickled.
    group: name of the unit's group; units of a group take about equally long.
    files: paths that the work reads. The content of a file is sent to the worker; a folder must be there.
    """

    asked: Asked
    group: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Done]):
    """Result of an attempt at a unit.

    number: number with which the unit was submitted.
    done: result of the work; None if it failed.
    error: the error if it failed.
    lost: whether the worker died with all of its units, any of which may be the cause.
    seconds: time that the work took, s.
    """

    number: int
    done: Done | None = None
    error: Exception | None = None
    lost: bool = False
    seconds: float = 0.0


class Session(Protocol):
    """A started engine with one function."""

    @property
    def width(self) -> int:
        """The number of units that should be in progress, so that no worker waits."""
        ...

    def submit(self, number: int, unit: Unit[Any]) -> None:
        """Begin a unit. Raises TwinbedError if its files cannot be read."""
        ...

    def ended(self) -> Sequence[Outcome[Any]]:
        """Return the results since the last call. If there are none, wait for a moment.

        Raises BackendError if the engine is lost, and the errors of `progress`.
        """
        ...


class Engine(Protocol):
    """A place where units are carried out."""

    def session(self, work: Work[Any, Any], progress: Progress | None) -> AbstractContextManager[Session]:
        """Return the engine, started. Leaving the context stops all work and leaves nothing behind.

        Raises BackendError if the engine cannot be reached or has no usable worker.
        """
        ...
