"""Lists the measurements of the page, their numbers, their grouping, and those that calibrate the twin.

For: `make results-fidelity-fabric`. Not for: measuring (campaign.py). A setting that calibrates is never
compared with the twin that it calibrated.
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
    """One planned measurement.

    faults: number of faults.
    watched_s: time without a fault in which downs are counted, s.
    hurried: bgpd returns quickly after a repair, so that the next fault can come.
    """

    setting: Setting
    faults: int = 0
    watched_s: float = 0.0
    hurried: bool = True


def _broken(
    road: Road, multiplier: int, interval_ms: int, faults: dict[What, int], *, busy: bool = False
) -> tuple[Planned, ...]:
    """Return the settings of one fabric."""
    return tuple(
        Planned(Setting(road, multiplier, interval_ms, what, busy), count) for what, count in faults.items()
    )


def _both_roads(faults: dict[What, int], *timers: tuple[int, int], busy: bool = False) -> tuple[Planned, ...]:
    """Return the settings of one fabric for each road that users may take, and each timer."""
    return tuple(
        planned
        for timer in timers
        for road in _OFFERED
        for planned in _broken(road, *timer, faults, busy=busy)
    )


def _watched(seconds: float, *timers: tuple[int, int]) -> tuple[Planned, ...]:
    return tuple(Planned(Setting(road, *timer), 0, seconds) for timer in timers for road in _OFFERED)


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
"""Settings that give the twin its delays. The one that is not hurried shows how long a link takes to come
back."""

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
"""Settings that are measured in parallel, the most informative first. The size of a round leaves spare CPU
time. One setting is measured alone and beside others, to see whether that matters. Fast timers and lost
carriers, for which flows are never thinned, cost most. REAL_TIME shows the effect of each part of the fast
path, at some timers only."""


def _all(rounds: Iterable[Iterable[Planned]]) -> tuple[Planned, ...]:
    return tuple(planned for round_ in rounds for planned in round_)


ALL = tuple(planned for planned in _all(ROUNDS) if planned.faults)
"""Planned measurements that break something."""

OTHERS = tuple(
    planned
    for planned in ALL
    if (planned.setting.multiplier, planned.setting.interval_ms) != _CALIBRATING and not planned.setting.busy
)
"""Planned measurements that the twin is compared with: other timers than the calibration's, and no load,
which the twin does not model."""

WATCHED = tuple(planned for planned in _all(ROUNDS) if planned.watched_s)
"""Planned measurements that count false downs."""

STALLS = Setting(Road.FAST, *_CALIBRATING)
"""The setting that runs while a calibration counts the machine's stalls."""
