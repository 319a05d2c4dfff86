"""A container's life on this machine: its states, their transitions, and the wait before a restart.

For: the one table that the local control loop and agents follow. Not for: carrying anything out
(executor.py). A pair that is not in the table is our bug: `Life.on` raises an error and the state stays
unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum, auto

from control.allocator.backoff import RESET_S, wait_s
from twinbed import InvariantError

NS = 1_000_000_000
"""Nanoseconds per second."""

NEVER_NS = 1 << 62
"""A time later than any other, ns."""


class State(IntEnum):
    """The state of a container.

    ABSENT: its command was not started yet, or it left. STARTING: its command runs and is not ready yet. UP:
    it is ready. STARTING_HELD, HELD: its tasks wait at the memory limit. ENDING: it was told to end or was
    killed, and has not ended yet. DOWN: its command ended and waits for its next start.
    """

    ABSENT = 0
    STARTING = 1
    UP = 2
    STARTING_HELD = 3
    HELD = 4
    ENDING = 5
    DOWN = 6


class Event(Enum):
    """An event of a container.

    START: its command was executed, or its cgroup was attached. READY: it is ready. HOLD: its tasks were held
    at the memory limit. RELEASE: they continue. END: we told it to end or killed it. EXIT: its command ended
    or could not be started, and will be restarted. LEAVE: it leaves finally.
    """

    START = auto()
    READY = auto()
    HOLD = auto()
    RELEASE = auto()
    END = auto()
    EXIT = auto()
    LEAVE = auto()


NEXT: Mapping[tuple[State, Event], State] = {
    (State.ABSENT, Event.START): State.STARTING,
    (State.DOWN, Event.START): State.STARTING,
    (State.STARTING, Event.READY): State.UP,
    (State.STARTING, Event.HOLD): State.STARTING_HELD,
    (State.UP, Event.HOLD): State.HELD,
    (State.STARTING_HELD, Event.RELEASE): State.STARTING,
    (State.HELD, Event.RELEASE): State.UP,
    (State.STARTING, Event.END): State.ENDING,
    (State.UP, Event.END): State.ENDING,
    (State.STARTING_HELD, Event.END): State.ENDING,
    (State.HELD, Event.END): State.ENDING,
    (State.STARTING, Event.EXIT): State.DOWN,
    (State.UP, Event.EXIT): State.DOWN,
    (State.STARTING_HELD, Event.EXIT): State.DOWN,
    (State.HELD, Event.EXIT): State.DOWN,
    (State.ENDING, Event.EXIT): State.DOWN,
    (State.DOWN, Event.EXIT): State.DOWN,
} | {(state, Event.LEAVE): State.ABSENT for state in State}

AWAKE = (State.STARTING, State.UP)
"""The command runs and its tasks are not held."""

ASLEEP = (State.STARTING_HELD, State.HELD)
"""The command runs and its tasks are held."""

RUNNING = AWAKE + ASLEEP


class Life:
    """One container's state and its restarts. started_ns: time of the command's last start, CLOCK_MONOTONIC;
    deliberate: its present end was requested because of new limits, so it is not a failure."""

    def __init__(self, state: State = State.ABSENT) -> None:
        self.state = state
        self.started_ns = 0
        self.deliberate = False
        self._failures = 0

    def on(self, event: Event) -> None:
        """Move to the next state. Raises InvariantError where the table has none; the state then stays."""
        following = NEXT.get((self.state, event))
        if following is None:
            raise InvariantError(f"a container that is {self.state.name} got the event {event.name}")
        self.state = following

    def next_start_ns(self, now_ns: int) -> int:
        """Return when a command that has just ended starts again, and count its failure. The first failure
        restarts at once. A deliberate end, or one after RESET_S, forgets earlier failures; a deliberate end
        does not count as a failure."""
        if self.deliberate or now_ns - self.started_ns >= RESET_S * NS:
            self._failures = 0
        wait_ns = round(wait_s(self._failures) * NS)
        self._failures += not self.deliberate
        self.deliberate = False
        return now_ns + wait_ns
