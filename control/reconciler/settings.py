"""The reconciler's parameters, each with its unit, its default and the reason for it. Not for: using them."""

from __future__ import annotations

from dataclasses import dataclass

from control.settings import check, parameter


@dataclass(frozen=True, slots=True)
class ReconcilerSettings:
    """Raises ScenarioError naming the parameter for a value out of its range."""

    owner: int = parameter(
        0x7477_696E_6265_6400,
        unit="cookie",
        low=1,
        why="marks our rules, a predecessor's among them, so it is the same for all (the bytes say twinbed)",
    )
    timeout_s: float = parameter(
        1.0,
        unit="seconds",
        low=0.001,
        why="a change of which every message was lost is missed no longer; a dump of 10,000 entries takes "
        "about 18 ms, 2 % of it",
    )
    dump_interval_s: float = parameter(
        0.02,
        unit="seconds",
        low=0.0,
        why="between the starts of two dumps, so that a burst of messages is answered by a few; the first "
        "message is answered at once",
    )
    answer_s: float = parameter(
        5.0,
        unit="seconds",
        low=0.001,
        why="more than ten times what a dump of 100,000 entries takes; doubled for each one missed in a row",
    )
    retry_s: float = parameter(
        0.05, unit="seconds", low=0.001, why="first pause of a rule change that failed; doubled each time"
    )
    retry_max_s: float = parameter(
        1.0,
        unit="seconds",
        low=0.001,
        why="longest pause: no rule is missing for longer once it would succeed",
    )
    batch_rules: int = parameter(
        1000,
        unit="rules",
        low=1,
        why="changed before news are looked at: about 0.4 s where tc installs 2,800 rules a second",
    )
    max_rules: int = parameter(
        1_000_000,
        unit="rules on all representors",
        low=0,
        why="what the adapter's table holds; foreign rules count. Above what any host of the source needs",
    )
    first_action: int = parameter(
        0x7462_0000,
        unit="index",
        low=1,
        high=2**31,
        why="shared actions are numbered from here, away from those that tc numbers by itself from 1",
    )

    def __post_init__(self) -> None:
        check("reconciler", self)
