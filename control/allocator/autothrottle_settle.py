"""Autothrottle's rule as one loop over arrays that a backend may compile.

For: `settle_captains`, the same as `Autothrottle.on_period` between two classifications of its containers,
with the same results to the bit. Not for: compiling it. It is plain Python over NumPy arrays and scalars, as
`escra_settle.settle` is, and it calls no other module of ours, for the reason given there.

Every operation, and the order of every sum, is that of autothrottle.py, autothrottle_captain.py and cap.py.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from control.allocator.autothrottle_captain import CaptainState
from control.allocator.model import Flags, Floats, Reason, Reasons, Slots

_NONE, _BACK = int(Reason.NONE), int(Reason.ROLLED_BACK)
_ABOVE, _BELOW = int(Reason.ABOVE_TARGET), int(Reason.BELOW_TARGET)


class CaptainNumbers(NamedTuple):
    """Constants of the rule. alpha, lowest, highest, window: as in CaptainRule. least: smallest quota, cores.
    period_s: length of a period, s. adding: whether quotas are summed for the Towers."""

    alpha: float
    lowest: float
    highest: float
    window: int
    least: float
    period_s: float
    adding: bool


class CaptainBooks(NamedTuple):
    """State by slot, and by application. `settle_captains` changes all but host_cores, app, boundaries,
    targets and total.

    captain: state of the Captains. quota: quotas in force, cores, float64[slots]. host_cores:
    float64[slots]. app, last_bytes: int64[slots]. usage_s, seconds, quota_s, quota_seconds: sums,
    float64[slots]. boundaries: float64[apps]. targets: float64[apps, 2]. total: Ω, cores, float64[apps].
    """

    captain: CaptainState
    quota: Floats
    host_cores: Floats
    app: Slots
    last_bytes: NDArray[np.int64]
    usage_s: Floats
    seconds: Floats
    quota_s: Floats
    quota_seconds: Floats
    boundaries: Floats
    targets: Floats
    total: Floats


class CaptainTable(NamedTuple):
    """The arguments of `settle_captains` for consecutive reports of the same containers. slots, everyone: as
    there."""

    numbers: CaptainNumbers
    books: CaptainBooks
    slots: Slots
    everyone: bool


def settle_captains(
    numbers: CaptainNumbers,
    books: CaptainBooks,
    slots: Slots,
    everyone: bool,
    quota: Floats,
    usage: Floats,
    memory: NDArray[np.int64],
    throttled: Flags,
    decided_rows: Slots,
    decided_cores: Floats,
    decided_reasons: Reasons,
) -> int:
    """Apply the rule to one report and book it.

    slots: int64[k], not used if everyone reports: row i is then slot i. quota, usage: cores; memory: bytes;
    throttled: the report, [k] arrays. decided_rows, decided_cores, decided_reasons: [k] arrays that receive
    the rows whose quotas change, the new quotas in cores, and why. Returns how many change.
    """
    captain = books.captain
    count, length = len(usage), captain.usage.shape[1]
    for row in range(count):
        slot = row if everyone else slots[row]
        books.usage_s[slot] += usage[row] * numbers.period_s
        books.seconds[slot] += numbers.period_s
        books.last_bytes[slot] = memory[row]
        captain.usage[slot, captain.reported[slot] % length] = usage[row]
        captain.reported[slot] += 1
        captain.periods[slot] += 1
        captain.throttled[slot] += throttled[row]
    for row in range(count if numbers.adding else 0):
        slot = row if everyone else slots[row]
        books.quota_s[slot] += quota[row] * numbers.period_s
        books.quota_seconds[slot] += numbers.period_s
    wanted = 0
    for row in range(count):
        slot = row if everyone else slots[row]
        due, lowered = captain.periods[slot] >= numbers.window, captain.lowered_from[slot]
        if not due and not (lowered > 0.0 and captain.throttled[slot] > 0):
            continue
        app = books.app[slot]
        idle = books.usage_s[slot] / books.seconds[slot] <= books.boundaries[app]
        target = books.targets[app, 1 if idle else 0]
        ratio = captain.throttled[slot] / numbers.window
        back = lowered > 0.0 and ratio > numbers.alpha * target
        if not due and not back:
            continue
        cores, reason = books.quota[slot], _NONE
        if back:
            captain.margin[slot] += ratio - target
            captain.lowered_from[slot] = 0.0
            cores, reason, ratio = 2.0 * lowered - cores, _BACK, 0.0
        if due:
            margin = max(captain.margin[slot] + (ratio - target), 0.0)
            captain.margin[slot] = margin
            excess, before, down = ratio - numbers.alpha * target, cores, False
            if excess > 0.0:
                cores, reason = cores * (1.0 + excess), _ABOVE
            else:
                most = captain.usage[slot, 0]
                for k in range(length):
                    most = max(most, captain.usage[slot, k])
                if most <= numbers.highest * cores:
                    mean, square = 0.0, 0.0
                    for k in range(length):
                        mean += captain.usage[slot, k]
                    mean /= length
                    for k in range(length):
                        apart = captain.usage[slot, k] - mean
                        square += apart * apart
                    aim = most + margin * sqrt(square / (length - 1))
                    down = aim <= numbers.highest * cores
                    if down:
                        cores, reason = max(aim, numbers.lowest * cores), _BELOW
            captain.lowered_from[slot] = before if down else 0.0
            captain.periods[slot] = 0
        captain.throttled[slot] = 0
        if reason != _NONE:
            decided_rows[wanted], decided_reasons[wanted] = row, reason
            decided_cores[wanted] = min(cores, books.host_cores[slot])
            wanted += 1
    if wanted == 0:
        return 0
    # Raises share what is unallocated once the cuts are made.
    after, sums = books.quota.copy(), np.zeros((2, len(books.total)))
    held, asked = sums[0], sums[1]
    for number in range(wanted):
        slot = decided_rows[number] if everyone else slots[decided_rows[number]]
        aim = max(decided_cores[number], numbers.least)
        decided_cores[number] = aim
        asked[books.app[slot]] += max(aim - books.quota[slot], 0.0)
        after[slot] = min(aim, books.quota[slot])
    for slot in range(len(after)):
        held[books.app[slot]] += after[slot]
    changed = 0
    for number in range(wanted):
        row, aim = decided_rows[number], decided_cores[number]
        slot = row if everyone else slots[row]
        app, now = books.app[slot], books.quota[slot]
        share = max(books.total[app] - held[app], 0.0) / asked[app] if asked[app] > 0.0 else 0.0
        if aim > now and share < 1.0:
            aim = now + (aim - now) * share
        if aim != now:
            books.quota[slot] = aim
            decided_rows[changed], decided_cores[changed] = row, aim
            decided_reasons[changed] = decided_reasons[number]
            changed += 1
    return changed
