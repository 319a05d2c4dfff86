"""The events that reach a controller of tunnel rules, its instructions, and what a backend promises.

For: the port between the controller and its backends. Not for: decisions (reconciler.py). Source: our design.

A backend (the twin's SimPy process, the testbed's event loop) hands over one event at a time, in the order in
which it saw them, and carries out the instructions that come back. It promises:
- It sends one `Started` first. The successor of a crashed controller is a new object with its own `Started`.
- `at_s` never goes back. It is the backend's clock; the controller has no other.
- `Changed` and `Overflowed` may be lost, doubled, late and out of order. They are not sent for the
  controller's own rule changes (the kernel says who asked: nlmsg_pid).
- Each request is answered at most once and completely. Arrays that were handed over are never changed.
- The rule changes of one request are made in the order of their rows, each completely or not at all. A rule
  whose action does not exist yet creates the action (VNI, remote); the action goes with its last rule.
- Arming a timer that is already armed moves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from control.reconciler.model import ForwardingState, Rules, Table, Whole

Reasons = NDArray[np.uint8]

ALL_TABLES = frozenset(Table)


class Timer(StrEnum):
    """A timer of the controller.

    PERIODIC: a dump is due even if no message came. ANSWER: a request was not answered in time. PAUSE: the
    shortest time between two dumps has passed. RETRY: a rule change that failed may be tried again.
    """

    PERIODIC = "periodic"
    ANSWER = "answer"
    PAUSE = "pause"
    RETRY = "retry"


class Reason(IntEnum):
    """The reason of an instruction. One byte per rule; `describe` returns the text."""

    STARTED = 1
    CHANGED = 2
    OVERFLOWED = 3
    PERIODIC = 4
    UNANSWERED = 5
    LATE_ANSWER = 6
    INTERRUPTED = 7
    DUMP_FAILED = 8
    RETRY = 9
    NEW_ENTRY = 10
    MOVED = 11
    WITHDRAWN = 12
    ON_THIS_HOST = 13
    DUPLICATE = 14
    NO_ROOM = 15
    MOVED_OUT_OF_REACH = 16

    def describe(self) -> str:
        """Return the reason as a short clause for a table or a log line."""
        return _REASON_TEXT[self]


_REASON_TEXT = {
    Reason.STARTED: "the controller started",
    Reason.CHANGED: "the kernel said that a table changed",
    Reason.OVERFLOWED: "the kernel said that messages were lost (ENOBUFS)",
    Reason.PERIODIC: "the last dump is one timeout old",
    Reason.UNANSWERED: "a request was not answered in time",
    Reason.LATE_ANSWER: "an answer came too late",
    Reason.INTERRUPTED: "tables changed during the last dump",
    Reason.DUMP_FAILED: "the last dump failed",
    Reason.RETRY: "a rule change that failed is due again",
    Reason.NEW_ENTRY: "a reachable entry has no rule",
    Reason.MOVED: "the entry is at another VTEP or in another VNI than its rule",
    Reason.WITHDRAWN: "the entry is gone",
    Reason.ON_THIS_HOST: "the MAC address is on this host",
    Reason.DUPLICATE: "another rule does the same",
    Reason.NO_ROOM: "there are more rules than the kernel takes",
    Reason.MOVED_OUT_OF_REACH: "the entry moved to a VTEP without a route",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of an instruction. at_s: time at which the reason became known, s. request: the dump that
    showed it (0: none).
    """

    reason: Reason
    at_s: float
    request: int = 0


# --- events ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Event:
    """Something that happened at at_s on the backend's clock."""

    at_s: float


@dataclass(frozen=True, slots=True)
class _Answer(_Event):
    """An answer to the request of that number."""

    request: int


class Started(_Event):
    """The controller has started and knows nothing yet."""


@dataclass(frozen=True, slots=True)
class Changed(_Event):
    """A message said that these tables changed. It is a hint: it may be older than the last dump."""

    tables: frozenset[Table]


class Overflowed(_Event):
    """Messages were lost because the socket's buffer was full (ENOBUFS)."""


@dataclass(frozen=True, slots=True)
class Dumped(_Answer):
    """The answer to `Dump`.

    rules: all rules on the representors, whoever owns them.
    incomplete: tables that changed while they were read (NLM_F_DUMP_INTR); entries may be missing from them.
    """

    state: ForwardingState
    rules: Rules
    incomplete: frozenset[Table] = frozenset()


@dataclass(frozen=True, slots=True)
class DumpFailed(_Answer):
    """A `Dump` could not be answered. why: the system's error message."""

    why: str


class Installed(_Answer):
    """Every rule change of the request is in force."""


@dataclass(frozen=True, slots=True)
class InstallFailed(_Answer):
    """Some rule changes of the request were refused; the others are in force.

    rows: positions of the refused rules in the request, int64[k].
    why: the system's error message for the first.
    full: a rule was refused because the kernel takes no more rules (ENOSPC).
    """

    rows: Whole
    why: str
    full: bool = False


@dataclass(frozen=True, slots=True)
class TimerFired(_Event):
    """The time of an armed timer has come."""

    timer: Timer


Event = Started | Changed | Overflowed | Dumped | DumpFailed | Installed | InstallFailed | TimerFired

# --- instructions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dump:
    """Read these tables completely. The answer is `Dumped` or `DumpFailed`."""

    request: int
    tables: frozenset[Table]
    cause: Cause


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A change of rules: `Add`, `Replace` or `Delete`. reasons: a `Reason` per rule, uint8[n].

    A handle of 0 in `Replace` and `Delete` means the rule with that device, MAC address and cookie.
    """

    request: int
    rules: Rules
    reasons: Reasons
    cause: Cause


class Add(RuleChange):
    """Install the rules. Their handle is 0; the kernel gives one."""


class Replace(RuleChange):
    """Give the installed rule of each handle the new VNI, remote and action, atomically."""


class Delete(RuleChange):
    """Remove the rules of these handles. A rule that is already gone is no failure."""


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Send `TimerFired` in after_s seconds."""

    timer: Timer
    after_s: float
    cause: Cause


Instruction = Dump | RuleChange | ArmTimer


class RuleController(Protocol):
    """An object that keeps tunnel rules in step with the kernel's forwarding state."""

    def handle(self, event: Event) -> list[Instruction]:
        """Return the instructions for the event, in the order in which they are carried out.

        Raises InvariantError for an event that is impossible now; the controller is then unchanged.
        """
        ...
