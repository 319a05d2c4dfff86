"""Carries out units of work on an engine, decides their order, and repeats units that fail.

For: `run`, which lab.runs.runner, lab.sweep and the studies call, and `kept`, for several of its calls. Not
for: the engines (local.py, dask.py).
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from lab.ask.kind import Progress
from lab.engine.ports import Done, Engine, Outcome, Session, Unit, Work
from twinbed import InvariantError, ScenarioError, TraceError

Asked = TypeVar("Asked")

ATTEMPTS = 3
"""Attempts at a unit. A machine may fail once or twice; a unit that fails three times is at fault."""

_SAME_AGAIN = (ScenarioError, TraceError, InvariantError)
"""Errors of the question, of the input and of our code: the next attempt would end the same."""


def run(
    engine: Engine,
    units: Sequence[Unit[Asked]],
    work: Work[Asked, Done],
    progress: Progress | None = None,
    *,
    wanted: Callable[[str], bool] = lambda _: True,
) -> Generator[Outcome[Done], None, None]:
    """Yield the result of each unit, in the order in which they end. A failed unit is repeated first.

    The first unit of every group comes first, then units of the groups with the shortest units. wanted: takes
    the group of a unit before it begins; units of groups that are not wanted are left out. Close the iterator
    to stop all work. Raises BackendError if the engine is lost; errors of `progress` and KeyboardInterrupt
    pass through. In all these cases no unit is left running.
    """
    with engine.session(work, progress) as session:
        yield from _Course(session, units, wanted).outcomes()


@contextmanager
def kept(engine: Engine, work: Work[Any, Any]) -> Iterator[Engine]:
    """Return the engine, started once for all runs of this work, one after the other and without progress.

    Raises as `run`.
    """
    with engine.session(work, None) as session:
        yield _Kept(session)


class _Kept:
    """An engine whose session is open."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def session(self, work: Work[Any, Any], progress: Progress | None) -> AbstractContextManager[Session]:  # noqa: ARG002 — the session has them
        return nullcontext(self._session)


class _Course:
    """Units in progress on a session."""

    def __init__(self, session: Session, units: Sequence[Unit[Any]], wanted: Callable[[str], bool]) -> None:
        self._session, self._units = session, units
        self._order = _Order(units, wanted)
        self._under_way: set[int] = set()
        self._again: deque[int] = deque()
        self._suspects: deque[int] = deque()
        self._attempts: Counter[int] = Counter()
        self._is_alone = False

    def outcomes(self) -> Iterator[Outcome[Any]]:
        while self._fill():
            for outcome in self._session.ended():
                self._under_way.discard(outcome.number)
                if self._is_final(outcome):
                    group = self._units[outcome.number].group
                    self._order.ended(group, outcome.seconds)
                    yield outcome

    def _fill(self) -> bool:
        """Begin as many units as there is room for, and return whether any unit is under way."""
        if self._suspects or (self._is_alone and self._under_way):
            # A lost unit is repeated alone, which shows whether it kills its worker.
            if not self._under_way:
                self._begin(self._suspects.popleft())
                self._is_alone = True
            return True
        self._is_alone = False
        while len(self._under_way) < max(1, self._session.width):
            number = self._again.popleft() if self._again else self._order.take()
            if number is None:
                break
            self._begin(number)
        return bool(self._under_way)

    def _begin(self, number: int) -> None:
        self._under_way.add(number)
        self._session.submit(number, self._units[number])

    def _is_final(self, outcome: Outcome[Any]) -> bool:
        if outcome.error is None:
            return True
        if isinstance(outcome.error, _SAME_AGAIN):
            return True
        self._attempts[outcome.number] += 1
        if self._attempts[outcome.number] >= ATTEMPTS:
            return True
        (self._suspects if outcome.lost else self._again).append(outcome.number)
        return False


class _Order:
    """The order of the units: it chooses the next one."""

    def __init__(self, units: Sequence[Unit[Any]], wanted: Callable[[str], bool]) -> None:
        self._waiting: dict[str, deque[int]] = {}
        for number, unit in enumerate(units):
            self._waiting.setdefault(unit.group, deque()).append(number)
        self._wanted = wanted
        self._first = deque(self._waiting)
        self._spent: dict[str, tuple[float, int]] = {}
        self._shortest = [(math.inf, group) for group in self._waiting]
        heapq.heapify(self._shortest)

    def take(self) -> int | None:
        """Return the number of the next unit, or None if none is left."""
        while self._first:
            group = self._first.popleft()
            if self._wanted(group):
                return self._waiting[group].popleft()
        while self._shortest:
            mean, group = self._shortest[0]
            if mean == self._mean(group) and self._waiting[group] and self._wanted(group):
                return self._waiting[group].popleft()
            heapq.heappop(self._shortest)
        return None

    def ended(self, group: str, seconds: float) -> None:
        """Record the time of a unit of the group, s."""
        total, count = self._spent.get(group, (0.0, 0))
        self._spent[group] = total + seconds, count + 1
        heapq.heappush(self._shortest, (self._mean(group), group))

    def _mean(self, group: str) -> float:
        total, count = self._spent.get(group, (0.0, 0))
        return total / count if count else math.inf
