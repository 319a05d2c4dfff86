"""What is measured for the page, how often, side by side with what, and which of it calibrates the twin.

For: `make results-fidelity-fabric`. Not for: measuring (campaign.py, side_by_side.py). What calibrates is
never compared with the twin that it calibrated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lab.fabric.real.settings import Road, Setting, What

_CALIBRATING = (3, 100)
_FEW_S, _MANY_S = 200.0, 600.0
_OFFERED = (Road.FAST, Road.STOCK)
_MANY, _SOME, _ALONE = 100, 50, 40


@dataclass(frozen=True, slots=True)
class Planned:
    """faults: of a setting; watched_s: seconds without a fault in which downs are counted; hurried: bgpd is
    asked to return quickly after a repair, so that the next fault can come."""

    setting: Setting
    faults: int = 0
    watched_s: float = 0.0
    hurried: bool = True


def _broken(
    road: Road, multiplier: int, interval_ms: int, faults: dict[What, int], *, busy: bool = False
) -> tuple[Planned, ...]:
    """One fabric's settings."""
    return tuple(
        Planned(Setting(road, multiplier, interval_ms, what, busy), count) for what, count in faults.items()
    )


def _both_roads(faults: dict[What, int], *timers: tuple[int, int], busy: bool = False) -> tuple[Planned, ...]:
    """Of a fabric per road that users may take, and timers."""
    return tuple(
        planned for each in timers for road in _OFFERED for planned in _broken(road, *each, faults, busy=busy)
    )


def _watched(seconds: float, *timers: tuple[int, int]) -> tuple[Planned, ...]:
    return tuple(Planned(Setting(road, *each), 0, seconds) for each in timers for road in _OFFERED)


CALIBRATION = tuple(
    Planned(Setting(road, *_CALIBRATING, what), faults, hurried=what is not What.OUT)
    for road, what, faults in (
        (Road.FAST, What.BOTH, _MANY),
        (Road.REAL_TIME, What.BOTH, _SOME),
        (Road.STOCK, What.BOTH, _MANY),
        (Road.FAST, What.CARRIER, _SOME),
        (Road.REAL_TIME, What.OUT, 20),
    )
)
"""The settings that the twin's delays come from; how long a link takes to come back from the one that is not
hurried."""

_BOTH, _CARRIER = {What.BOTH: _MANY}, {What.CARRIER: _MANY}
_ONE_WAY, _EACH_WAY = {What.OUT: _SOME, What.IN: _SOME}, {What.OUT: _MANY, What.IN: _MANY}

ROUNDS: tuple[tuple[Planned, ...], ...] = (
    _broken(Road.FAST, 5, 50, {What.BOTH: _ALONE}),
    (
        *_broken(Road.FAST, 5, 50, {What.BOTH: _ALONE + _MANY}),
        *_broken(Road.STOCK, 5, 50, _BOTH),
        *_broken(Road.FAST, 3, 50, _BOTH),
        *_broken(Road.STOCK, 3, 50, _BOTH),
    ),
    (
        *CALIBRATION,
        *_broken(Road.FAST, 3, 300, {What.BOTH: _SOME}),
        *_broken(Road.STOCK, 3, 300, {What.BOTH: _SOME}),
    ),
    (
        *_broken(Road.FAST, 3, 20, _BOTH),
        *_broken(Road.STOCK, 3, 20, _BOTH),
        *_broken(Road.REAL_TIME, 5, 50, _BOTH),
    ),
    (*_broken(Road.FAST, 3, 10, _BOTH), *_broken(Road.STOCK, 5, 50, _ONE_WAY)),
    (*_broken(Road.FAST, 5, 50, _CARRIER | _ONE_WAY), *_broken(Road.STOCK, 5, 50, _CARRIER)),
    _both_roads(_BOTH, (5, 50), busy=True),
    _watched(_FEW_S, (5, 50), (3, 50), (3, 100)),
    _watched(_FEW_S, (3, 300), (3, 20)),
    (*_broken(Road.REAL_TIME, 3, 50, _BOTH), *_broken(Road.REAL_TIME, 3, 100, {What.CARRIER: _SOME})),
    _both_roads(_BOTH, (3, 300)),
    _watched(_FEW_S, (3, 10)),
    _watched(_MANY_S, (5, 50), (3, 50), (3, 100)),
    _watched(_MANY_S, (3, 300), (3, 20)),
    (*_broken(Road.STOCK, 3, 10, _BOTH), *_both_roads(_CARRIER, (3, 10))),
    (*_both_roads(_CARRIER, (3, 50), (3, 100)), *_broken(Road.FAST, 5, 50, _EACH_WAY)),
    (*_both_roads(_CARRIER, (3, 300), (3, 20)), *_broken(Road.STOCK, 5, 50, _EACH_WAY)),
    _watched(_MANY_S, (3, 10)),
    _both_roads(_BOTH, (3, 50), (3, 100), busy=True),
    (*_both_roads(_BOTH, (3, 300), busy=True), *_both_roads(_CARRIER, (5, 50), busy=True)),
    _both_roads(_BOTH, (3, 20), (3, 10), busy=True),
)
"""What is measured side by side, the most telling first. A round is as large as leaves the CPUs time; one
setting is measured alone and beside others, to see whether that matters. Fast timers cost most, and lost
carriers, for which flows are never thinned. The road REAL_TIME only shows what each of the fast path's parts
brings, so that it is measured at some timers."""


def _all(rounds: Iterable[Iterable[Planned]]) -> tuple[Planned, ...]:
    return tuple(each for round_ in rounds for each in round_)


ALL = tuple(each for each in _all(ROUNDS) if each.faults)
"""All that breaks something."""

OTHERS = tuple(
    each
    for each in ALL
    if (each.setting.multiplier, each.setting.interval_ms) != _CALIBRATING and not each.setting.busy
)
"""What the twin is compared with: other timers than those that calibrate it; it knows of no load."""

WATCHED = tuple(each for each in _all(ROUNDS) if each.watched_s)
"""Those in which false downs are counted."""

STALLS = Setting(Road.FAST, *_CALIBRATING)
"""What stands there while a calibration counts the machine's stalls."""
