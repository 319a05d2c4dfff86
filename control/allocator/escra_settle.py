"""Escra's CPU rule as one loop over arrays that a backend may compile.

For: `settle`, the same rule as `CpuRule.step` in escra_cpu.py, with the same results to the bit. Not for:
compiling it. `settle` is plain Python over NumPy arrays and scalars, so it also runs uncompiled, though
slowly. It calls no other module of ours, because a compiled function is cached as long as its own file does
not change.

Sums stay exact: amounts are whole microcores, as escra_cpu.py says. The other operations are those of
`CpuRule.step` in the same order.
"""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Flags, Floats, Reason, Reasons, Slots

_UNUSED, _THROTTLED = int(Reason.UNUSED), int(Reason.THROTTLED)


class Rule(NamedTuple):
    """Constants of the rule, from EscraSettings.

    raised: Υ as a share of the pool. lowered: κ in microcores per core. gamma: cores. guard: the setting
    stale_mean_guard. least: the kernel's minimum quota, microcores. min_change: share of the quota. block:
    containers whose changes are listed together, raises before cuts.
    """

    raised: float
    lowered: float
    gamma: float
    guard: bool
    least: float
    min_change: float
    block: int


class EscraBooks(NamedTuple):
    """State by slot, and by application. `settle` changes all but app, cap and limit.

    unused: float64[n, slots], the window's positions. flags: uint32[slots], newest lowest. reported, ahead:
    uint8[slots], as in Windows. app: int64[slots]. cap, allocated: float64[slots], microcores. limit, used:
    float64[apps], microcores.
    """

    unused: NDArray[np.float64]
    flags: NDArray[np.uint32]
    reported: NDArray[np.uint8]
    ahead: NDArray[np.uint8]
    app: Slots
    cap: Floats
    allocated: Floats
    limit: Floats
    used: Floats


class Table(NamedTuple):
    """The arguments of `settle` for consecutive reports of the same containers.

    slots, everyone: as in `settle`. position: position of the windows; if everyone reports, it advances by
    one before each report.
    """

    rule: Rule
    books: EscraBooks
    slots: Slots
    everyone: bool
    position: int


def settle(
    rule: Rule,
    books: EscraBooks,
    position: int,
    slots: Slots,
    everyone: bool,
    quota: Floats,
    unused: Floats,
    throttled: Flags,
    decided_rows: Slots,
    decided_cores: Floats,
    decided_reasons: Reasons,
) -> int:
    """Apply the rule to one report and book it.

    position: the position of the windows that everyone's report is written to. slots: int64[k], not used if
    everyone reports: row i is then slot i. quota, unused, throttled: the report, [k] arrays in cores.
    decided_rows, decided_cores, decided_reasons: [k] arrays that receive the rows whose quotas change, the
    new quotas in cores, and why. Returns how many change, or −1 with no quota changed if a quota or an unused
    runtime is not a number.
    """
    count, length = len(quota), len(books.unused)
    ones = (1 << length) - 1
    # A loop for each array: the compiler then does several containers at once.
    if everyone:
        for row in range(count):
            books.unused[position, row] = unused[row]
        for row in range(count):
            books.flags[row] = ((np.int64(books.flags[row]) << 1) | throttled[row]) & 0xFFFFFFFF
        for row in range(count):
            seen = np.int64(books.reported[row])
            books.reported[row] = seen + (seen < length)
    for row in range(0 if everyone else count):
        slot = slots[row]
        ahead = (np.int64(books.ahead[slot]) + 1) % length
        books.ahead[slot] = ahead
        books.unused[(position + ahead) % length, slot] = unused[row]
        books.flags[slot] = ((np.int64(books.flags[slot]) << 1) | throttled[row]) & 0xFFFFFFFF
        seen = np.int64(books.reported[slot])
        books.reported[slot] = seen + (seen < length)
    reported, cap, allocated = books.reported[:count], books.cap[:count], books.allocated[:count]
    if not everyone:
        reported, cap, allocated = books.reported[slots], books.cap[slots], books.allocated[slots]
    means = np.zeros(count)
    for k in range(length):
        if everyone:
            for row in range(count):
                means[row] += books.unused[k, row]
        else:
            for row in range(count):
                means[row] += books.unused[k, slots[row]]
    # The cuts of all containers, of which those that are wanted count. A cut that is too small is not wanted.
    deltas, cuts, broken = np.empty(count), np.empty(count, np.bool_), False
    for row in range(count):
        mean = means[row] / reported[row]
        mean = unused[row] if rule.guard & (mean > unused[row]) else mean
        target = quota[row] * 1e6 - mean * rule.lowered
        # Written so that a NaN passes the comparisons.
        target = cap[row] if target > cap[row] else target
        target = rule.least if target < rule.least else target
        cut = (unused[row] > rule.gamma) & (not throttled[row])
        broken |= cut & (not isfinite(target))
        delta = np.floor(target) - allocated[row]
        least = allocated[row] * rule.min_change
        least = least if least > 1.0 else 1.0
        deltas[row] = delta
        cuts[row] = cut & ((delta > 0.0) | (-delta >= least))
    chosen = np.empty((2, count), np.int64)
    ups, downs = chosen[0], chosen[1]
    up_count, down_count = np.int64(0), np.int64(0)
    for row in range(count):
        # No branches, which would be mispredicted: the next row overwrites a row that does not count.
        ups[up_count] = row
        up_count += throttled[row]
        downs[down_count] = row
        down_count += cuts[row]
    sums = np.zeros((3, len(books.limit)))
    pool, asked, share = sums[0], sums[1], sums[2]
    for app in range(len(pool)):
        pool[app] = books.limit[app] - books.used[app]
    for number in range(up_count):
        row = ups[number]
        slot = row if everyone else slots[row]
        app = books.app[slot]
        bits = np.int64(books.flags[slot]) & ones
        bits -= (bits >> 1) & 0x55555555
        bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
        bits = (((bits + (bits >> 4)) & 0x0F0F0F0F) * 0x01010101 >> 24) & 0xFF
        target = quota[row] * 1e6 + bits / reported[row] * rule.raised * pool[app]
        target = cap[row] if target > cap[row] else target
        target = rule.least if target < rule.least else target
        broken |= not isfinite(target)
        deltas[row] = max(np.floor(target) - allocated[row], 0.0)
        asked[app] += deltas[row]
    if broken:
        return -1
    for number in range(down_count):
        row = downs[number]
        if deltas[row] > 0.0:
            asked[books.app[row if everyone else slots[row]]] += deltas[row]
    for app in range(len(pool)):
        share[app] = pool[app] / asked[app] if asked[app] > pool[app] else 1.0
    changed, up, down = 0, 0, 0
    while up < up_count or down < down_count:
        # The next block with a change: its raises, then its cuts.
        first = count
        if up < up_count:
            first = ups[up]
        if down < down_count:
            first = min(first, downs[down])
        end = (first // rule.block + 1) * rule.block
        while True:
            if up < up_count and ups[up] < end:
                row, reason = ups[up], _THROTTLED
                up += 1
            elif down < down_count and downs[down] < end:
                row, reason = downs[down], _UNUSED
                down += 1
            else:
                break
            slot, delta = row if everyone else slots[row], deltas[row]
            app = books.app[slot]
            if delta > 0.0 and asked[app] > pool[app]:
                delta = np.floor(delta * share[app])
            # No branch, as above: a change that is too small becomes 0.
            before = allocated[row]
            kept = abs(delta) >= max(before * rule.min_change, 1.0)
            delta = delta if kept else 0.0
            books.allocated[slot] = before + delta
            books.used[app] += delta
            decided_rows[changed] = row
            decided_cores[changed] = (before + delta) / 1e6
            decided_reasons[changed] = reason
            changed += kept
    return changed
