"""The reconciler's parameters.

For: each parameter's unit, default and the reason for the default. Not for: using them. Source: our design.
"""

from __future__ import annotations

from dataclasses import dataclass

from control.settings import check, parameter


@dataclass(frozen=True, slots=True)
class ReconcilerSettings:
    """Settings of one reconciler. Raises ScenarioError naming the parameter for a value out of its range."""

    owner: int = parameter(
        0x7477_696E_6265_6400,
        unit="cookie",
        low=1,
        why="marks our rules and those of a crashed predecessor, so all processes use the same value (its "
        "bytes read twinbed)",
    )
    timeout_s: float = parameter(
        1.0,
        unit="seconds",
        low=0.001,
        why="longest time for which a change is missed if all its messages were lost; a dump of 10,000 "
        "entries takes about 18 ms, 2 % of it",
    )
    dump_interval_s: float = parameter(
        0.02,
        unit="seconds",
        low=0.0,
        why="shortest time between the starts of two dumps, so that a burst of messages leads to a few "
        "dumps; the first message leads to one at once",
    )
    answer_s: float = parameter(
        5.0,
        unit="seconds",
        low=0.001,
        why="time to wait for an answer: more than ten times what a dump of 100,000 entries takes; doubled "
        "for each answer missed in a row",
    )
    retry_s: float = parameter(
        0.05, unit="seconds", low=0.001, why="first pause after a rule change failed; doubled each time"
    )
    retry_max_s: float = parameter(
        1.0,
        unit="seconds",
        low=0.001,
        why="longest pause: once a rule change would succeed, the rule is missing for no longer than this",
    )
    batch_rules: int = parameter(
        1000,
        unit="rules",
        low=1,
        why="number of rules changed before new messages are considered: about 0.4 s if tc installs 2,800 "
        "rules a second",
    )
    max_rules: int = parameter(
        1_000_000,
        unit="rules on all representors",
        low=0,
        why="size of the adapter's table; foreign rules count. More than any host of the thesis needs",
    )
    first_action: int = parameter(
        0x7462_0000,
        unit="index",
        low=1,
        high=2**31,
        why="lowest index of our shared actions, far from the indices that tc itself gives from 1 upwards",
    )

    def __post_init__(self) -> None:
        check("reconciler", self)
