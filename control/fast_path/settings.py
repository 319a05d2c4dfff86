"""The fast path's parameters, each with its unit, its default and the reason for it. Not for: using them."""

from __future__ import annotations

from dataclasses import dataclass

from control.settings import check, parameter
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class FastPathSettings:
    """Raises ScenarioError naming the parameter for a value out of its range."""

    least_interval_s: float = parameter(
        0.05,
        unit="seconds",
        low=0.001,
        why="our own end's required minimum receive interval, which no packet of the far end's names; BFD's "
        "detection time counts whichever is longer",
    )
    repeats_s: tuple[float, ...] = parameter(
        (0.0, 0.005, 0.02),
        unit="seconds after a change",
        low=0.0,
        why="a report is a datagram and may be lost: three times within what BGP needs for one hop (50 ms)",
    )
    refresh_s: float = parameter(
        1.0, unit="seconds", low=0.01, why="between reports while an uplink is dead; three in a lifetime"
    )
    lifetime_s: float = parameter(
        3.0,
        unit="seconds",
        low=0.01,
        high=3600.0,
        why="a report holds no longer unless it is repeated: a host that died takes nothing from others for "
        "good",
    )
    steady_s: float = parameter(
        0.5,
        unit="seconds",
        low=0.0,
        why="a session is up for so long before its uplink is believed again; BGP needs longer to come back",
    )
    most_s: float = parameter(
        10.0,
        unit="seconds",
        low=0.1,
        why="what BGP has not confirmed by then is given back: its word is the last. With BFD it needs 0.1 s "
        "for each of two hops",
    )
    read_s: float = parameter(
        1.0,
        unit="seconds",
        low=0.01,
        why="between two readings of the routes though no change was announced: announcements may be lost",
    )
    read_pause_s: float = parameter(
        0.02, unit="seconds", low=0.0, why="between two readings at least: a burst of changes is read once"
    )

    def __post_init__(self) -> None:
        check("fast_path", self)
        if self.lifetime_s <= self.refresh_s:
            raise ScenarioError(
                f"fast_path.lifetime_s: {self.lifetime_s:g} s is over before the next report, after "
                f"refresh_s = {self.refresh_s:g} s"
            )
