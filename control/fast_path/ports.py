"""What reaches the fast path of a host, what it asks for, and what a backend promises to do with it.

A backend hands over one event at a time and carries out the instructions that come back, in their order. It
promises:
- `at_s` never goes back, and it is when the thing happened, not when it was read: a packet that arrived
  before a timer's time is handed over before that `TimerFired`, however late both are read;
- `Routes` is read whole after `ReadRoutes`, with everything that was asked for before in force;
- arming the timer moves it;
- only reports that message.Opener believed are handed over.

Uplinks are numbered from 0; hosts are known by their loopback (IPv4 as a whole number), ToRs by a number that
is the same at every host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from control.fast_path.bfd import Control
from control.fast_path.message import Report

NextHops = Mapping[int, frozenset[int]]
"""Host → the uplinks by which it is reached."""


class Reason(StrEnum):
    """Why something is asked for."""

    STARTED = "the fast path started"
    SILENT = "nothing was heard over the uplink for the detection time"
    TOLD_DOWN = "the far end of the uplink says that it does not hear us"
    NO_CARRIER = "the uplink lost its carrier"
    REPORTED = "the host says by which ToRs it cannot be reached"
    UP_AGAIN = "the uplink's session is up again"
    CONFIRMED = "BGP's routes do without the dead next hop"
    NO_OTHER = "BGP's routes have no other next hop"
    OVER = "the longest time is over; BGP's word is the last"
    EXPIRED = "the report was not repeated"
    PERIODIC = "it is time again"
    CHANGED = "routes changed"
    MENDED = "the table of the fast path is not as it should be"


# --- events ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The fast path runs; nothing is known, and a predecessor may have left routes."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Heard:
    """A BFD control packet of the uplink's gateway arrived."""

    at_s: float
    uplink: int
    control: Control


@dataclass(frozen=True, slots=True)
class CarrierLost:
    """The uplink's device says that nothing is connected."""

    at_s: float
    uplink: int


@dataclass(frozen=True, slots=True)
class Told:
    """Another host's report."""

    at_s: float
    report: Report


@dataclass(frozen=True, slots=True)
class RoutesChanged:
    """A message said that routes changed, or that such messages were lost."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Routes:
    """The answer to `ReadRoutes`. main: what BGP has put in force; steered: what stands in the fast path's
    own table, whoever wrote it."""

    at_s: float
    main: NextHops
    steered: NextHops


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The armed timer's time has come."""

    at_s: float


Event = Started | Heard | CarrierLost | Told | RoutesChanged | Routes | TimerFired

# --- instructions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Steer:
    """Reach the host by these uplinks alone, whatever BGP says; one or more."""

    host: int
    uplinks: frozenset[int]
    reason: Reason


@dataclass(frozen=True, slots=True)
class Release:
    """Reach the host as BGP says."""

    host: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Tell:
    """Send the report to every other host."""

    report: Report
    reason: Reason


@dataclass(frozen=True, slots=True)
class ReadRoutes:
    """Read BGP's routes and the fast path's own; the answer is `Routes`."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Send `TimerFired` at that time, of the backend's time line."""

    at_s: float


Instruction = Steer | Release | Tell | ReadRoutes | ArmTimer
