"""Retransmission timers: when a queue pair sends again, and when it gives up.

For: the instants of a busy sender whose path is lost, for the closed form (recovery.py), the packets
(packets.py) and every job that dies of it. Not for: the cost of a gap, nor the values of a profile, which are
data with their sources (the calibration's `retry_…` sections). All times are seconds since the last progress.
Progress starts the timers again.
Source: InfiniBand Architecture Specification 1.4, 9.7.6.1.3 and 9.9.2.4, for the plain timer; NVIDIA,
"Adaptive Retransmission: Parameters Control", 2025, for the generator.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, chain, islice, pairwise, repeat
from math import fsum, inf, isfinite
from typing import Protocol

from twinbed import ScenarioError

_UNIT_S = 4.096e-6
"""Unit of the ACK timeout, s (InfiniBand Architecture Specification 1.4, 9.7.6.1.3)."""

_TIMEOUTS = range(32)
_RETRIES = range(8)
_SLACKS = 1.0, 4.0
"""Least and greatest factor by which a timer may be late (specification 1.4, 9.7.6.1.3)."""

_MOST_RANGES = 4
_MOST_RUNGS = 20_000
"""Largest number of instants of a generator. More make no sense: a second apart they last for hours."""

_BASES_US = frozenset(2.0**exponent for exponent in range(2, 32))
"""Bases of a generator's time unit, µs (NVIDIA, the same)."""
_DIGITS = 6
"""Decimal places of a base in µs that count, because 4e-6 · 1e6 is not quite 4."""

_ROUNDED = 1 - 1e-9
"""Share of the error's time at which a retransmission is the error, because sums are rounded."""


@dataclass(frozen=True)
class Ladder:
    """When a queue pair sends again.

    waits_s: consecutive waits, s. The first is from the last progress to the first retransmission, the second
    from there to the second one, and so on. The last wait ends in the error state. inf: the timer does not
    run.
    """

    waits_s: tuple[float, ...]

    @property
    def retries(self) -> int:
        """Number of times that it goes back, whether for its timer or for a negative acknowledgement."""
        return len(self.waits_s) - 1

    @cached_property
    def rungs_s(self) -> tuple[float, ...]:
        """Instants of its retransmissions, s, strictly increasing."""
        # Sums are exact and are rounded once, so that equal waits give multiples of a wait to the bit.
        running = (wait_s for wait_s in self.waits_s[:-1] if isfinite(wait_s))
        return tuple(float(instant) for instant in accumulate(map(Fraction, running)))

    @cached_property
    def error_s(self) -> float:
        """Time of the error, s (completion "retry exceeded"); inf: never."""
        return fsum(self.waits_s)


class Profile(Hashable, Protocol):
    """The rule by which an adapter spaces its retransmissions."""

    def waits_s(self, timeout: int, retry_count: int) -> tuple[float, ...]:
        """Return the waits of a Ladder, s, at least one. Raises ScenarioError for unknown settings."""
        ...


def ack_timeout_s(timeout: int) -> float:
    """Return the local ACK timeout of an exponent, s; inf for 0, with which the timer never ends."""
    return _UNIT_S * 2.0**timeout if timeout else inf


@lru_cache(maxsize=256)
def ladder(profile: Profile, timeout: int, retry_count: int) -> Ladder:
    """Return when a queue pair sends again and gives up.

    timeout: exponent of the local ACK timeout, 0 … 31 (0: the timer never ends). retry_count: 0 … 7. Raises
    ScenarioError for other numbers, and for those that the profile does not know.
    """
    if timeout not in _TIMEOUTS:
        raise ScenarioError(f"queue_pair.timeout: {timeout} is not one of 0 … 31 (4.096 µs · 2^timeout)")
    if retry_count not in _RETRIES:
        raise ScenarioError(f"queue_pair.retry_count: {retry_count} is not one of 0 … 7")
    if timeout == 0:
        return Ladder((inf,) * (retry_count + 1))
    return Ladder(profile.waits_s(timeout, retry_count))


def _needs_retries(name: str, retry_count: int) -> None:
    if retry_count == 0:
        raise ScenarioError(f"queue_pair.retry_count: 0 was never measured with {name}; give 1 to 7 or plain")


@dataclass(frozen=True, slots=True)
class Plain:
    """The specification's timer, with equal waits. Soft RoCE has it, and adapters without adaptive
    retransmission.

    slack: factor by which the timer is late, 1 to 4; the specification allows all of these.
    """

    slack: float = 1.0

    def waits_s(self, timeout: int, retry_count: int) -> tuple[float, ...]:
        """Return retry_count + 1 waits, s."""
        if not _SLACKS[0] <= self.slack <= _SLACKS[1]:
            raise ScenarioError(f"queue_pair.timer_slack: {self.slack} is not in 1 to 4")
        return (ack_timeout_s(timeout) * self.slack,) * (retry_count + 1)


PLAIN = Plain()


@dataclass(frozen=True, slots=True)
class Manual:
    """The totals that NVIDIA's NCCL manual prints: one wait less than the specification's."""

    def waits_s(self, timeout: int, retry_count: int) -> tuple[float, ...]:
        """Return retry_count waits, s. Raises ScenarioError if retry_count is 0."""
        _needs_retries("manual", retry_count)
        return (ack_timeout_s(timeout),) * retry_count


@dataclass(frozen=True, slots=True)
class Adaptive:
    """ConnectX-6, firmware 20.43: an adaptive phase, which costs one retry, then waits of two ACK timeouts.

    instants_s: instants of the adaptive phase as far as any exponent reaches, s, increasing.
    first_s: the instant at which it begins, s: one of instants_s, or one before them.
    least_timeout: exponent below which the exponent changes nothing.
    tolerance_s: how much longer than the ACK timeout an adaptive wait may be, s.
    """

    instants_s: tuple[float, ...]
    first_s: float
    least_timeout: int
    tolerance_s: float

    def waits_s(self, timeout: int, retry_count: int) -> tuple[float, ...]:
        """Return the adaptive waits, then the regular ones, s. Raises ScenarioError if retry_count is 0."""
        _needs_retries("cx6-20.43", retry_count)
        timer_s = ack_timeout_s(max(timeout, self.least_timeout))
        regular_s = 2 * timer_s
        instants_s = (self.first_s, *(at_s for at_s in self.instants_s if at_s > self.first_s))
        waits_s = [after_s - at_s for at_s, after_s in pairwise((0.0, *instants_s))]
        longer = (
            number
            for number, wait_s in enumerate(waits_s)
            if number > 0 and wait_s > timer_s + self.tolerance_s
        )
        kept = next(longer, len(waits_s))
        first_regular_s = min([*waits_s[kept : kept + 1], regular_s])
        regular = [first_regular_s, *repeat(regular_s, retry_count - 2)] if retry_count > 1 else []
        return (*waits_s[:kept], *regular)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Instants as they were measured with one retry count, and with any exponent up to a limit.

    rungs_s: instants of retransmissions, increasing, s. error_s: time of the error, s. retry_count: retry
    count of the measurement. most_timeout: largest exponent.
    """

    rungs_s: tuple[float, ...]
    error_s: float
    retry_count: int
    most_timeout: int

    def waits_s(self, timeout: int, retry_count: int) -> tuple[float, ...]:
        """Return the waits between the measured instants, s. Raises ScenarioError for settings that were not
        measured."""
        if retry_count != self.retry_count or timeout > self.most_timeout:
            raise ScenarioError(
                f"queue_pair: timeout {timeout}, retry_count {retry_count}: cx6-20.40 was measured with "
                f"{self.retry_count} retries and timeouts up to {self.most_timeout} alone; "
                "give these, or take cx6-20.43"
            )
        return tuple(after_s - at_s for at_s, after_s in pairwise((0.0, *self.rungs_s, self.error_s)))


@dataclass(frozen=True, slots=True)
class FloorOff:
    """Adaptive retransmission and the shortest timeout both switched off: plain waits after a first one.

    first: additional time of the first wait, in ACK timeouts.
    """

    first: float

    def waits_s(self, timeout: int, retry_count: int) -> tuple[float, ...]:
        """Return retry_count + 1 waits, s, of which the first is longer by `first` ACK timeouts."""
        timer_s = ack_timeout_s(timeout)
        return ((1 + self.first) * timer_s, *repeat(timer_s, retry_count))


@dataclass(frozen=True, slots=True)
class Range:
    """A range of a generator's timeouts. low, size: lower bound and size, in units. tries: number of times
    that each timeout is used."""

    low: float
    size: float
    tries: int

    def __post_init__(self) -> None:
        """Raise ScenarioError for a range without a timeout."""
        if not (self.low > 0 and self.size > 0 and self.tries >= 1):
            raise ScenarioError(f"retry_adp: {self}: give low and size above 0, and tries of 1 or more")

    def timeouts(self) -> Iterator[float]:
        """Yield the timeouts in units: the low bound, doubled until the range ends, each `tries` times."""
        timeout = self.low
        while timeout < self.low + self.size:
            yield from repeat(timeout, self.tries)
            timeout *= 2


@dataclass(frozen=True, slots=True)
class Generator:
    """The generator that NVIDIA documents for firmware of April 2025 and later (RoCE alone).

    base_s: base of the time unit, s. granularity: its exponent; a unit is base_s · 2^granularity.
    first_low, first_range: the first timeout is uniform in [first_low, first_low + first_range − 1], in
    units.
    first_share: position of the first timeout in that range, from 0 (lowest) to 1.
    ranges: one to four ranges, used one after another. The last timeout repeats until the end.
    total: exponent of the time without progress after which it is in error, base_s · 2^total; 0: that time is
    the ACK timeout times the retries.
    slack: factor by which timers are late, 1 to 4.
    After progress the generator starts again, which is one of the documented ways.
    """

    base_s: float
    granularity: int
    first_low: float
    first_range: float
    first_share: float
    ranges: tuple[Range, ...]
    total: int = 0
    slack: float = 1.0

    def waits_s(self, timeout: int, retry_count: int) -> tuple[float, ...]:
        """Return the waits until the total, s. Before the slack, no wait is longer than the ACK timeout.

        Raises ScenarioError for impossible values.
        """
        _needs_retries("adp", retry_count)
        self._check()
        longest_s = ack_timeout_s(timeout)
        total_s = self.base_s * 2.0**self.total if self.total else longest_s * retry_count
        unit_s = self.base_s * 2.0**self.granularity
        first = self.first_low + self.first_share * (self.first_range - 1)
        ranged = [value for part in self.ranges for value in part.timeouts()]
        waits_s: list[float] = []
        elapsed_s = 0.0
        for value in islice(chain([first], ranged, repeat(ranged[-1])), _MOST_RUNGS):
            wait_s = min(value * unit_s, longest_s) * self.slack
            if elapsed_s + wait_s >= total_s * _ROUNDED:
                return (*waits_s, total_s - elapsed_s)
            elapsed_s += wait_s
            waits_s.append(wait_s)
        raise ScenarioError(f"retry_adp: more than {_MOST_RUNGS} retransmissions before the total")

    def _check(self) -> None:
        if not 1 <= len(self.ranges) <= _MOST_RANGES:
            raise ScenarioError(f"retry_adp: {len(self.ranges)} ranges; give 1 to {_MOST_RANGES}")
        if round(self.base_s * 1e6, _DIGITS) not in _BASES_US:
            raise ScenarioError("retry_adp.base_s: give a power of two of microseconds, 4e-6 s at least")
        if not (self.first_low > 0 and self.first_range >= 1):
            raise ScenarioError("retry_adp: give first_low above 0, and first_range of 1 or more")
        if not (0 <= self.first_share <= 1 and _SLACKS[0] <= self.slack <= _SLACKS[1]):
            raise ScenarioError("retry_adp: give first_share in 0 to 1, and slack in 1 to 4")
