"""What reaches a controller of tunnel rules, what it asks for, and what a backend promises to do with it.

A backend (the twin's SimPy process, the testbed's event loop) hands over one event at a time, in the order in
which it saw them, and carries out the instructions that come back. It promises:
- one `Started` first; a crashed controller's successor is a new object with a `Started` of its own;
- `at_s` never goes back; it is the backend's time line, which the controller knows from nowhere else;
- `Changed` and `Overflowed` may be lost, doubled, late and out of order, and are not sent for the
  controller's own rule changes (the kernel says who asked: nlmsg_pid);
- each request is answered once at most, whole; arrays that were handed over do not change any more;
- rule changes of one request are made in the order of their rows, each wholly or not at all. A rule whose
  action's index is not there yet brings the action along (VNI, remote); the last rule takes it away;
- arming a timer that is armed moves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from control.reconciler.model import EvpnFdb, ForwardingState, Rules, Table, Whole

Reasons = NDArray[np.uint8]

ALL_TABLES = frozenset(Table)


class Timer(StrEnum):
    """PERIODIC: a dump is due whatever was heard. ANSWER: a request was not answered. PAUSE: enough time has
    passed since the last dump. RETRY: a rule that failed may be tried again."""

    PERIODIC = "periodic"
    ANSWER = "answer"
    PAUSE = "pause"
    RETRY = "retry"


class Reason(IntEnum):
    """Why something is asked for; one byte per rule, its text in `describe`."""

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
        """The reason as a short clause for a table or a log line."""
        return _REASON_TEXT[self]


_REASON_TEXT = {
    Reason.STARTED: "the controller started",
    Reason.CHANGED: "the kernel said that a table changed",
    Reason.OVERFLOWED: "the kernel said that messages were lost (ENOBUFS)",
    Reason.PERIODIC: "the last dump is a timeout ago",
    Reason.UNANSWERED: "a request was not answered in time",
    Reason.LATE_ANSWER: "an answer came that was no longer waited for",
    Reason.INTERRUPTED: "tables changed under the last dump",
    Reason.DUMP_FAILED: "the last dump failed",
    Reason.RETRY: "a rule change that failed is due again",
    Reason.NEW_ENTRY: "a reachable entry has no rule",
    Reason.MOVED: "the entry is at another VTEP or in another VNI than its rule",
    Reason.WITHDRAWN: "the entry is gone",
    Reason.ON_THIS_HOST: "the MAC address is on this host",
    Reason.DUPLICATE: "another rule does the same",
    Reason.NO_ROOM: "more rules than the kernel takes",
    Reason.MOVED_OUT_OF_REACH: "the entry moved to a VTEP without a route",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an instruction is given. at_s: when that was known; request: the dump that showed it (0: none)."""

    reason: Reason
    at_s: float
    request: int = 0


# --- events ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The controller runs; nothing is known."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Changed:
    """A message said that tables changed. entries: VXLAN forwarding entries that the message named, now there
    or `gone`.

    A hint: what the message says may be older than what it is compared with.
    """

    at_s: float
    tables: frozenset[Table]
    entries: EvpnFdb | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Overflowed:
    """The socket's buffer was full and messages were lost (ENOBUFS)."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Dumped:
    """The answer to `Dump`. rules: all on the representors, whoever's. incomplete: tables that changed while
    they were read (NLM_F_DUMP_INTR): what they show was there, what they lack may be there too."""

    at_s: float
    request: int
    state: ForwardingState
    rules: Rules
    incomplete: frozenset[Table] = frozenset()


@dataclass(frozen=True, slots=True)
class DumpFailed:
    """There is no answer to `Dump`; why: the system's word."""

    at_s: float
    request: int
    why: str


@dataclass(frozen=True, slots=True)
class Installed:
    """Every rule change of the request is in force."""

    at_s: float
    request: int


@dataclass(frozen=True, slots=True)
class InstallFailed:
    """rows: int64[k], positions in the request's rules that were refused; the others are in force. why: the
    system's word for the first. full: one was refused because the kernel takes no more rules (ENOSPC)."""

    at_s: float
    request: int
    rows: Whole
    why: str
    full: bool = False


@dataclass(frozen=True, slots=True)
class TimerFired:
    """An armed timer's time has come."""

    at_s: float
    timer: Timer


Event = Started | Changed | Overflowed | Dumped | DumpFailed | Installed | InstallFailed | TimerFired

# --- instructions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dump:
    """Read these tables wholly; the answer is `Dumped` or `DumpFailed`."""

    request: int
    tables: frozenset[Table]
    cause: Cause


@dataclass(frozen=True, slots=True)
class Add:
    """Install the rules (their handle is 0: the kernel gives one); reasons: uint8[n], a `Reason` per rule."""

    request: int
    rules: Rules
    reasons: Reasons
    cause: Cause


@dataclass(frozen=True, slots=True)
class Replace:
    """Give the installed rule of each handle the new VNI, remote and action, without a moment between.

    A handle of 0 means the rule with that device, MAC address and cookie.
    """

    request: int
    rules: Rules
    reasons: Reasons
    cause: Cause


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the rules of these handles (0 as in `Replace`); one that is gone already is no failure."""

    request: int
    rules: Rules
    reasons: Reasons
    cause: Cause


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Send `TimerFired` after_s from now."""

    timer: Timer
    after_s: float
    cause: Cause


RuleChange = Add | Replace | Delete
Instruction = Dump | RuleChange | ArmTimer


class RuleController(Protocol):
    """Keeps tunnel rules in step with the kernel's forwarding state."""

    def handle(self, event: Event) -> list[Instruction]:
        """What to do about it, in this order. Raises InvariantError for an event that cannot be, and is then
        as it was before."""
        ...
