"""Splits a failover into steps: the time of each step, from observed events and the fast path's journal.

For: calibrating the twin's delays on real faults. Not for: observing (testbed.fabric.witness), or the
distributions over many faults (lab.fabric.validate.judge).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from control.fabric import BfdState, Fault
from lab.fabric.real.settings import Setting, What
from testbed.fabric.model import Fabric, Injected
from testbed.fabric.witness import BfdSeen, BgpSeen, RouteSeen, Seen

CHAIN = {
    "near": "the host at the fault: from its detection time's end until its kernel had other routes",
    "sent": "from the end of the ToR's detection time until its update arrived at the other host",
    "far": "the other host: from the update's arrival until its kernel had other routes",
    "told_down": "from the end of one side's detection time until the other side heard of it",
    "carrier_near": "a lost carrier, until the routes of the host at the fault had changed",
    "carrier_sent": "a lost carrier, until the ToR's update arrived at the other host",
    "fast_late": "the fast path: from the detection time's end until it acted",
    "fast_route": "from then until its routes were in force",
    "fast_told": "from then until the other host had its report",
    "fast_far": "from then until the other host's routes were in force",
    "fast_carrier": "the fast path: from a lost carrier until it acted",
}
"""The steps, in seconds each."""

_SECOND_NS = 1e9


def chain(
    fabric: Fabric,
    fault: Fault,
    setting: Setting,
    injected: Injected,
    seen: Sequence[Seen],
    decisions: Sequence[Mapping[str, Any]],
) -> dict[str, float]:
    """Return step → seconds for the observed steps. decisions: those of all fast paths."""
    detection_ns = setting.timers.detection_s * _SECOND_NS
    host, uplink = fault.host, fault.uplink
    carrier = setting.what is What.CARRIER
    # A lost carrier causes events before the call that took the carrier away has returned.
    at_ns = injected.asked_ns if carrier else injected.at_ns
    other = next(candidate.index for candidate in fabric.hosts if candidate.index != host)
    heard = [
        event for event in seen if isinstance(event, BfdSeen) and (event.host, event.uplink) == (host, uplink)
    ]
    last = {
        side: max(
            (event.at_ns for event in heard if event.at_host is side and event.at_ns <= at_ns), default=None
        )
        for side in (True, False)
    }
    host_ns = at_ns if carrier else _plus(last[True], detection_ns)
    tor_ns = at_ns if carrier else _plus(last[False], detection_ns)
    down = [event for event in heard if event.at_ns > at_ns and event.state is BfdState.DOWN]
    down_ns = min((event.at_ns for event in down), default=None)
    if setting.what is What.OUT:
        host_ns = down_ns
    elif setting.what is What.IN:
        tor_ns = down_ns
    near_ns = _changed(seen, host, other, at_ns)
    far_ns = _changed(seen, other, host, at_ns)
    update_ns = min(
        (
            event.at_ns
            for event in seen
            if isinstance(event, BgpSeen)
            and event.at_ns > at_ns
            and (event.host, event.uplink) == (other, uplink)
        ),
        default=None,
    )
    steps = {
        "carrier_near" if carrier else "near": _between(host_ns, near_ns),
        "carrier_sent" if carrier else "sent": _between(tor_ns, update_ns),
        "far": _between(update_ns, far_ns),
    }
    if setting.what in (What.OUT, What.IN):
        # Only the side that hears nothing detects the fault by itself.
        deaf = setting.what is not What.OUT
        steps["told_down"] = _between(_plus(last[deaf], detection_ns), down_ns)
    steps |= _fast(fabric, fault, at_ns, host_ns, decisions, carrier=carrier)
    return {key: value for key, value in steps.items() if value is not None}


def _fast(
    fabric: Fabric,
    fault: Fault,
    at_ns: int,
    known_ns: float | None,
    decisions: Sequence[Mapping[str, Any]],
    *,
    carrier: bool,
) -> dict[str, float | None]:
    here = fabric.hosts[fault.host].loopback
    steers = [decision for decision in decisions if decision["what"] == "steer" and decision["at_ns"] > at_ns]
    mine = next(
        (decision for decision in steers if decision["on"] != "Told" and decision["host"] != here), None
    )
    theirs = next(
        (decision for decision in steers if decision["on"] == "Told" and decision["host"] == here), None
    )
    told = next(
        (decision for decision in decisions if decision["what"] == "tell" and decision["at_ns"] > at_ns), None
    )
    steps: dict[str, float | None] = {}
    if told is not None:
        acted_ns = told["at_ns"]
        steps["fast_carrier" if carrier else "fast_late"] = _between(known_ns, acted_ns)
        steps["fast_told"] = None if theirs is None else _between(acted_ns, theirs["at_ns"])
    if mine is not None:
        steps["fast_route"] = _between(mine["at_ns"], mine["done_ns"])
    if theirs is not None:
        steps["fast_far"] = _between(theirs["at_ns"], theirs["done_ns"])
    return steps


def _changed(seen: Sequence[Seen], host: int, other: int, after_ns: int) -> int | None:
    """Return the time at which a host's kernel first had other routes to another host."""
    times = [
        event.at_ns
        for event in seen
        if isinstance(event, RouteSeen)
        and (event.host, event.other) == (host, other)
        and event.at_ns > after_ns
    ]
    return min(times, default=None)


def _plus(at_ns: int | None, more_ns: float) -> float | None:
    return None if at_ns is None else at_ns + more_ns


def _between(one_ns: float | None, other_ns: float | None) -> float | None:
    return None if one_ns is None or other_ns is None else (other_ns - one_ns) / _SECOND_NS
