"""What is measured for the page, how often, and which of it calibrates the twin.

For: `make results-fidelity-fabric`. Not for: measuring (campaign.py). What calibrates is never compared with
the twin that it calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.fabric.real.settings import Road, Setting, What

_CALIBRATING = (3, 100)


@dataclass(frozen=True, slots=True)
class Planned:
    """faults: of a setting; watched_s: seconds without a fault in which downs are counted; hurried: bgpd is
    asked to return quickly after a repair, so that the next fault can come."""

    setting: Setting
    faults: int = 0
    watched_s: float = 0.0
    hurried: bool = True


def _planned(road: Road, multiplier: int, interval_ms: int, faults: int, watched_s: float = 0.0) -> Planned:
    return Planned(Setting(road, multiplier, interval_ms), faults, watched_s)


def _other(road: Road, what: What, faults: int, *, busy: bool = False) -> Planned:
    return Planned(Setting(road, 5, 50, what, busy), faults)


CALIBRATION = tuple(
    Planned(Setting(road, *_CALIBRATING, what), faults, hurried=what is not What.OUT)
    for road, what, faults in (
        (Road.FAST, What.BOTH, 110),
        (Road.REAL_TIME, What.BOTH, 60),
        (Road.STOCK, What.BOTH, 60),
        (Road.REAL_TIME, What.CARRIER, 40),
        (Road.REAL_TIME, What.OUT, 20),
    )
)
"""The settings that the twin's delays come from; how long a link takes to come back from the one that is not
hurried."""

OTHERS = (
    _planned(Road.FAST, 5, 50, 110, 660),
    _planned(Road.STOCK, 5, 50, 110, 300),
    _planned(Road.REAL_TIME, 5, 50, 110),
    _planned(Road.FAST, 3, 50, 110, 660),
    _other(Road.FAST, What.CARRIER, 110),
    _other(Road.FAST, What.BOTH, 110, busy=True),
    _planned(Road.STOCK, 3, 50, 60, 300),
    _planned(Road.REAL_TIME, 3, 50, 60),
    _other(Road.FAST, What.OUT, 40),
    _other(Road.FAST, What.IN, 40),
    _other(Road.REAL_TIME, What.OUT, 40),
    _other(Road.REAL_TIME, What.IN, 40),
    _other(Road.REAL_TIME, What.CARRIER, 40),
    _other(Road.STOCK, What.BOTH, 60, busy=True),
    _other(Road.REAL_TIME, What.BOTH, 60, busy=True),
    _planned(Road.FAST, 3, 300, 40),
    _planned(Road.STOCK, 3, 300, 40),
    _planned(Road.FAST, 3, 20, 40, 180),
    _planned(Road.STOCK, 3, 20, 40, 180),
    _planned(Road.FAST, 3, 10, 40, 180),
    _planned(Road.STOCK, 3, 10, 40, 180),
)
"""All others, the most telling first."""

ALL = (*CALIBRATION, *OTHERS)

WATCHED = (*(each for each in OTHERS if each.watched_s), Planned(Setting(Road.FAST, *_CALIBRATING), 0, 300))
"""Those in which false downs are counted."""
