"""Retransmission profiles by name, from the values of a calibration.

For: turning the sections `retry_…` of a calibration into a profile of twin.fabric.retransmission. Not for:
the instants that follow from it, nor which profile a scenario names (lab.fabric.input).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from itertools import zip_longest

from lab.ask.calibration import Values
from twin.fabric.retransmission import Adaptive, FloorOff, Generator, Manual, Plain, Profile, Range, Recorded
from twinbed import ScenarioError


class RetryProfile(StrEnum):
    """The adapter whose retransmission timer a queue pair has.

    PLAIN: the InfiniBand specification's; soft RoCE, and adapters without adaptive retransmission.
    MANUAL: the totals that NVIDIA's NCCL manual prints.
    CX6_20_43, CX6_20_40: ConnectX-6 with firmware 20.43 and 20.40, as measured.
    FLOOR_OFF: ConnectX-6 with adaptive retransmission and the shortest timeout switched off.
    ADP: the generator that NVIDIA documents for firmware of April 2025 and later.
    """

    PLAIN = "plain"
    MANUAL = "manual"
    CX6_20_43 = "cx6-20.43"
    CX6_20_40 = "cx6-20.40"
    FLOOR_OFF = "floor-off"
    ADP = "adp"


def retry_profile(
    name: str, values: Values, replaced: Mapping[str, Mapping[str, float]] | None = None
) -> Profile:
    """Return the profile of this name. replaced: single values in place of the calibration's, by section.

    Raises ScenarioError for series of ranges that do not belong together.
    """
    changed = replaced or {}

    def number(section: str, key: str) -> float:
        return changed.get(section, {}).get(key, values[f"{section}.{key}"].value)

    def series(section: str, key: str) -> tuple[float, ...]:
        entry = values[f"{section}.{key}"]
        return entry.series or (entry.value,)

    match RetryProfile(name):
        case RetryProfile.PLAIN:
            return Plain(number("queue_pair", "timer_slack"))
        case RetryProfile.MANUAL:
            return Manual()
        case RetryProfile.CX6_20_43:
            section = "retry_cx6_20_43"
            return Adaptive(
                series(section, "adaptive_s"),
                number(section, "first_s"),
                int(number(section, "least_timeout")),
                number(section, "tolerance_s"),
            )
        case RetryProfile.CX6_20_40:
            section = "retry_cx6_20_40"
            return Recorded(
                series(section, "rungs_s"),
                number(section, "error_s"),
                int(number(section, "retry_count")),
                int(number(section, "most_timeout")),
            )
        case RetryProfile.FLOOR_OFF:
            return FloorOff(number("retry_floor_off", "first"))
        case RetryProfile.ADP:
            section = "retry_adp"
            columns = [series(section, key) for key in ("low", "size", "tries")]
            rows = list(zip_longest(*columns))
            if any(None in row for row in rows):
                raise ScenarioError(f"{section}: low, size and tries need a number for each range")
            return Generator(
                base_s=number(section, "base_s"),
                granularity=int(number(section, "granularity")),
                first_low=number(section, "first_low"),
                first_range=number(section, "first_range"),
                first_share=number(section, "first_share"),
                ranges=tuple(Range(low, size, int(tries)) for low, size, tries in rows),
                total=int(number(section, "total")),
                slack=number(section, "slack"),
            )
