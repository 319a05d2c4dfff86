"""The fast path's parameters.

For: each parameter's unit, default and the reason for the default. Not for: using them. Source: our design.
"""

from __future__ import annotations

from dataclasses import dataclass

from control.settings import check, parameter
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class FastPathSettings:
    """Settings of one fast path. Raises ScenarioError naming the parameter for a value out of its range."""

    least_interval_s: float = parameter(
        0.05,
        unit="seconds",
        low=0.001,
        why="required minimum receive interval of our own end, which the far end's packets do not contain; "
        "BFD's detection time uses the longer of the two intervals",
    )
    repeats_s: tuple[float, ...] = parameter(
        (0.0, 0.005, 0.02),
        unit="seconds after a change",
        low=0.0,
        why="a report is a datagram and may be lost, so it is sent three times within the 50 ms that BGP "
        "needs for one hop",
    )
    refresh_s: float = parameter(
        1.0, unit="seconds", low=0.01, why="time between reports while an uplink is dead; three per lifetime"
    )
    lifetime_s: float = parameter(
        3.0,
        unit="seconds",
        low=0.01,
        high=3600.0,
        why="a report expires after this time unless it is repeated, so a host that died does not block "
        "others' routes for ever",
    )
    steady_s: float = parameter(
        0.5,
        unit="seconds",
        low=0.0,
        why="a session must be up for this time before its uplink is used again; BGP needs longer to come "
        "back",
    )
    most_s: float = parameter(
        10.0,
        unit="seconds",
        low=0.1,
        why="a change that BGP has not confirmed by then is undone, because BGP has the last word. With BFD, "
        "BGP needs 0.1 s for each of two hops",
    )
    read_s: float = parameter(
        1.0,
        unit="seconds",
        low=0.01,
        why="time between two readings of the routes without an announced change, as announcements may be "
        "lost",
    )
    read_pause_s: float = parameter(
        0.02,
        unit="seconds",
        low=0.0,
        why="shortest time between two readings, so that a burst of changes is read once",
    )

    def __post_init__(self) -> None:
        check("fast_path", self)
        if self.lifetime_s <= self.refresh_s:
            raise ScenarioError(
                f"fast_path.lifetime_s: a report expires after {self.lifetime_s:g} s, before the next one is "
                f"sent after refresh_s = {self.refresh_s:g} s"
            )
