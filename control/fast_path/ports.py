"""The events that reach the fast path of a host, its instructions, and what a backend promises.

For: the port between the fast path and its backends. Not for: decisions (fast_path.py). Source: our design.

A backend hands over one event at a time and carries out the instructions in order. It promises:
- `at_s` never goes back. It is the time at which something happened, not when it was read: a packet that
  arrived before a timer's time is handed over before that `TimerFired`, however late both are read.
- `Routes` answers `ReadRoutes`, is complete, and shows all earlier instructions in force.
- Arming the timer moves it.
- Only reports that message.Opener accepted are handed over.

Uplinks are numbered from 0. A host is identified by its loopback (IPv4 as an integer), a ToR by a number that
is the same at every host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from control.fast_path.bfd import Control
from control.fast_path.message import Report

NextHops = Mapping[int, frozenset[int]]
"""Host → the uplinks over which it is reached."""


class Reason(StrEnum):
    """The reason of an instruction."""

    STARTED = "the fast path started"
    SILENT = "nothing was heard over the uplink for the detection time"
    TOLD_DOWN = "the far end of the uplink reports that it does not hear us"
    NO_CARRIER = "the uplink lost its carrier"
    REPORTED = "the host reported the ToRs over which it cannot be reached"
    UP_AGAIN = "the uplink's session is up again"
    CONFIRMED = "BGP's routes do without the dead next hop"
    NO_OTHER = "BGP's routes have no other next hop"
    OVER = "the longest time is over, so BGP's routes are used again"
    EXPIRED = "the report was not repeated"
    PERIODIC = "the routes are due to be read again"
    CHANGED = "routes changed"
    MENDED = "the routing table of the fast path was not as it should be"


# --- events ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Event:
    """Something that happened at at_s on the backend's clock, s."""

    at_s: float


class Started(_Event):
    """The fast path has started and knows nothing yet. A predecessor may have left routes."""


@dataclass(frozen=True, slots=True)
class Heard(_Event):
    """A BFD control packet from the uplink's gateway arrived."""

    uplink: int
    control: Control


@dataclass(frozen=True, slots=True)
class Silent(_Event):
    """BFD's data plane, which watches the uplink in our place, heard nothing for the detection time."""

    uplink: int


@dataclass(frozen=True, slots=True)
class CarrierLost(_Event):
    """The uplink's device reports that it has no carrier."""

    uplink: int


@dataclass(frozen=True, slots=True)
class Told(_Event):
    """Another host's report arrived."""

    report: Report


class RoutesChanged(_Event):
    """The kernel said that routes changed, or that such messages were lost."""


@dataclass(frozen=True, slots=True)
class Routes(_Event):
    """The answer to `ReadRoutes`.

    main: BGP's routes that are in force; steered: those in the fast path's own table, also a predecessor's.
    """

    main: NextHops
    steered: NextHops


class TimerFired(_Event):
    """The time of the armed timer has come."""


Event = Started | Heard | Silent | CarrierLost | Told | RoutesChanged | Routes | TimerFired

# --- instructions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Steer:
    """Reach the host over these uplinks only (one or more), whatever BGP says."""

    host: int
    uplinks: frozenset[int]
    reason: Reason


@dataclass(frozen=True, slots=True)
class Release:
    """Reach the host by BGP's own routes again."""

    host: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Tell:
    """Send the report to every other host."""

    report: Report
    reason: Reason


@dataclass(frozen=True, slots=True)
class ReadRoutes:
    """Read BGP's routes and those of the fast path. The answer is `Routes`."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Send `TimerFired` at at_s on the backend's clock."""

    at_s: float


Instruction = Steer | Release | Tell | ReadRoutes | ArmTimer
