"""Stop using a dead uplink within BFD's detection time, and hand back to BGP once its routes have changed.

For: one host's decisions: which next hops are dead, which hosts are reached around them, and the reports to
other hosts. Not for: packet formats (bfd.py, message.py), sockets and routes (a backend), or tunnel rules,
which no failover changes. Source: RFC 5880 §6.8.4 for the detection time; docs/decisions/0019 for the rest.

Rules of this file:
1. The fast path only removes next hops: a host is reached over the next hops of BGP's own routes without the
   dead ones. It never adds a next hop and never removes the last one.
2. It therefore ends by itself: once BGP's routes no longer use the dead next hop, nothing is left to remove.
3. Nothing is permanent: a dead uplink is used again when its session is up, and after `most_s` at the latest.
   A report holds for its lifetime.
4. Our routing table is what was read, not what was requested: a predecessor's routes are removed and a lost
   route is made again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from control.fabric import BfdState
from control.fast_path.bfd import Control
from control.fast_path.message import Report
from control.fast_path.ports import (
    ArmTimer,
    CarrierLost,
    Event,
    Heard,
    Instruction,
    NextHops,
    ReadRoutes,
    Reason,
    Release,
    Routes,
    RoutesChanged,
    Silent,
    Started,
    Steer,
    Tell,
    TimerFired,
    Told,
)
from control.fast_path.settings import FastPathSettings
from twinbed import InvariantError


@dataclass(slots=True)
class _Session:
    """The BFD session of one uplink, as overheard.

    up: whether the far end reports the state up. since_s: time of its last change. silent_at_s: end of the
    detection time.
    """

    up: bool = False
    since_s: float = -math.inf
    silent_at_s: float = math.inf


@dataclass(slots=True)
class _Dead:
    """A dead uplink. It is not used until until_s."""

    reason: Reason
    until_s: float


@dataclass(slots=True)
class _Due:
    """Times of scheduled actions.

    tell_s: times to send the report, ascending; read_s: time to read the routes; readable_s: earliest time at
    which they may be read again.
    """

    tell_s: list[float] = field(default_factory=list)
    read_s: float = math.inf
    readable_s: float = -math.inf


class FastPath:
    """The fast path of one host. An object lives from `Started` to the process's end."""

    def __init__(
        self, host: int, tors: Sequence[int], others: Iterable[int], settings: FastPathSettings
    ) -> None:
        """host: our loopback; tors: the ToR of each uplink; others: loopbacks of the other hosts."""
        self._host, self._tors, self._others = host, tuple(tors), frozenset(others) - {host}
        self._settings = settings
        self._sessions = tuple(_Session() for _ in self._tors)
        self._dead: dict[int, _Dead] = {}
        self._reports: dict[int, tuple[frozenset[int], float]] = {}
        self._main: dict[int, frozenset[int]] = {}
        self._steered: dict[int, frozenset[int]] = {}
        self._due = _Due()
        self._why_told = Reason.STARTED
        self._started = False

    @property
    def dead(self) -> frozenset[int]:
        """The uplinks that are considered dead, as indices."""
        return frozenset(self._dead)

    @property
    def steered(self) -> NextHops:
        """Host → uplinks over which it is reached, for each host that is not reached over BGP's own
        routes."""
        return dict(self._steered)

    def handle(self, event: Event) -> list[Instruction]:
        """Return the instructions for the event, in the order in which they are carried out.

        Raises InvariantError for an event that is impossible now; the fast path is then unchanged.
        """
        if isinstance(event, Started) == self._started:
            raise InvariantError(f"fast path: {type(event).__name__} cannot be {'twice' * self._started}")
        if isinstance(event, Heard | Silent | CarrierLost) and not 0 <= event.uplink < len(self._tors):
            raise InvariantError(f"fast path: there is no uplink {event.uplink}")
        self._started = True
        reason, out = self._take(event)
        steering = self._settle(reason)
        return [*steering, *self._told_now(event.at_s), *out, *self._timer()]

    def _take(self, event: Event) -> tuple[Reason, list[Instruction]]:
        """Update the state. Return the reason for what follows, and the instructions to read routes."""
        match event:
            case Started():
                return Reason.STARTED, self._read(event.at_s, Reason.STARTED)
            case Heard():
                return self._heard(event.at_s, event.uplink, event.control), []
            case Silent():
                was_up, self._sessions[event.uplink].up = self._sessions[event.uplink].up, False
                return self._lose(event.at_s, event.uplink, Reason.SILENT) if was_up else Reason.CHANGED, []
            case CarrierLost():
                self._sessions[event.uplink].up = False
                return self._lose(event.at_s, event.uplink, Reason.NO_CARRIER), []
            case Told():
                return self._reported(event.at_s, event.report), []
            case RoutesChanged():
                return Reason.CHANGED, self._read(event.at_s, Reason.CHANGED)
            case Routes():
                return self._routes(event), []
            case TimerFired():
                return self._time_passed(event.at_s)

    # --- state -----------------------------------------------------------------------------------------

    def _heard(self, at_s: float, uplink: int, control: Control) -> Reason:
        session = self._sessions[uplink]
        if control.state is not BfdState.UP:
            was_up, session.up = session.up, False
            # An end that was shut down on purpose reports ADMIN_DOWN; that is no fault (RFC 5880 §6.8.16).
            if was_up and control.state is not BfdState.ADMIN_DOWN:
                return self._lose(at_s, uplink, Reason.TOLD_DOWN)
            return Reason.CHANGED
        if not session.up:
            session.up, session.since_s = True, at_s
        timers = control.timers.received_at_least(self._settings.least_interval_s)
        session.silent_at_s = at_s + timers.detection_s
        if uplink in self._dead and at_s - session.since_s >= self._settings.steady_s:
            return self._believe(at_s, uplink, Reason.UP_AGAIN)
        return Reason.CHANGED

    def _lose(self, at_s: float, uplink: int, reason: Reason) -> Reason:
        if uplink not in self._dead:
            self._dead[uplink] = _Dead(reason, at_s + self._settings.most_s)
            self._tell(at_s, reason)
        return reason

    def _believe(self, at_s: float, uplink: int, reason: Reason) -> Reason:
        del self._dead[uplink]
        self._tell(at_s, reason)
        return reason

    def _reported(self, at_s: float, report: Report) -> Reason:
        if report.sender not in self._others:
            return Reason.REPORTED
        if report.tors:
            lifetime_s = min(report.lifetime_s, self._settings.lifetime_s)
            self._reports[report.sender] = report.tors, at_s + lifetime_s
        else:
            self._reports.pop(report.sender, None)
        return Reason.REPORTED

    def _routes(self, event: Routes) -> Reason:
        self._main = {host: hops for host, hops in event.main.items() if host in self._others}
        expected, self._steered = self._steered, dict(event.steered)
        return Reason.CONFIRMED if expected == self._steered else Reason.MENDED

    def _time_passed(self, at_s: float) -> tuple[Reason, list[Instruction]]:
        reason, out = Reason.PERIODIC, list[Instruction]()
        for uplink, session in enumerate(self._sessions):
            if session.up and session.silent_at_s <= at_s:
                session.up = False
                reason = self._lose(at_s, uplink, Reason.SILENT)
        for uplink in [uplink for uplink, dead in self._dead.items() if dead.until_s <= at_s]:
            reason = self._believe(at_s, uplink, Reason.OVER)
        for sender in [sender for sender, (_, until_s) in self._reports.items() if until_s <= at_s]:
            del self._reports[sender]
            reason = Reason.EXPIRED
        if self._due.read_s <= at_s:
            out = self._read(at_s, Reason.PERIODIC)
        return reason, out

    # --- consequences ----------------------------------------------------------------------------------

    def _around(self, host: int) -> frozenset[int] | None:
        """Return the living uplinks to `host`; None if BGP's routes have no dead uplink or only dead ones."""
        hops = self._main.get(host, frozenset())
        tors, _ = self._reports.get(host, (frozenset[int](), 0.0))
        alive = frozenset(hop for hop in hops if hop not in self._dead and self._tors[hop] not in tors)
        return alive if alive and alive != hops else None

    def _settle(self, reason: Reason) -> list[Instruction]:
        """Return the instructions that bring our routing table to its target."""
        out: list[Instruction] = []
        for host in sorted(self._main.keys() | self._steered.keys()):
            wanted = self._around(host)
            if wanted == self._steered.get(host):
                continue
            if wanted is not None:
                self._steered[host] = wanted
                out.append(Steer(host, wanted, reason))
            else:
                del self._steered[host]
                out.append(Release(host, self._why_released(host, reason)))
        return out

    def _why_released(self, host: int, reason: Reason) -> Reason:
        if reason is not Reason.CONFIRMED:
            return reason
        return Reason.CONFIRMED if self._main.get(host) else Reason.NO_OTHER

    def _tell(self, at_s: float, reason: Reason) -> None:
        """Schedule the report now and its repetitions. `handle` puts the more urgent routes before it."""
        self._why_told = reason
        self._due.tell_s = [at_s + after_s for after_s in self._settings.repeats_s]

    def _told_now(self, at_s: float) -> list[Instruction]:
        due = [tell_s for tell_s in self._due.tell_s if tell_s <= at_s]
        if not due:
            return []
        self._due.tell_s = self._due.tell_s[len(due) :]
        if not self._due.tell_s and self._dead:
            self._due.tell_s = [at_s + self._settings.refresh_s]
        tors = frozenset(self._tors[uplink] for uplink in self._dead)
        return [Tell(Report(self._host, tors, self._settings.lifetime_s), self._why_told)]

    def _read(self, at_s: float, reason: Reason) -> list[Instruction]:
        """Read the routes now, or schedule it if too little time has passed since the last reading."""
        due = self._due
        if at_s < due.readable_s:
            due.read_s = min(due.read_s, due.readable_s)
            return []
        due.readable_s = at_s + self._settings.read_pause_s
        due.read_s = at_s + self._settings.read_s
        return [ReadRoutes(reason)]

    def _timer(self) -> list[Instruction]:
        due_s = [session.silent_at_s for session in self._sessions if session.up]
        due_s += [dead.until_s for dead in self._dead.values()]
        due_s += [until_s for _, until_s in self._reports.values()]
        return [ArmTimer(min([*due_s, *self._due.tell_s, self._due.read_s]))]
