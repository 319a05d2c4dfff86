"""The last n reported periods of every container: throttled flags and unused runtime.

For: the two means of Escra's CPU rule. Not for: deciding. A window starts empty when its container joins.
Means cover the periods reported since then, at most n.

Layout: one contiguous column per window position, so that a period in which everyone reports writes one array
at one shared position. Containers that report on their own are counted as `ahead` of the shared position. The
next period in which everyone reports brings them back in line. Throttled flags are the bits of one word per
container, newest lowest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Flags, Floats, Slots
from control.allocator.roster import Roster

MAX_LENGTH = 32
"""Periods that fit in the word of flags."""

_WORD = (1 << MAX_LENGTH) - 1


class Windows:
    """Windows of `length` periods (1…MAX_LENGTH) for every slot of a roster."""

    def __init__(self, roster: Roster, length: int) -> None:
        self._length = length
        self._ones = (1 << length) - 1
        self._mask = np.uint32(self._ones)
        self._flags = roster.column(0, np.uint32)
        self._unused = roster.column(0.0, np.float64, length, order="F")
        self._reported = roster.column(0, np.uint8)
        self._ahead = roster.column(0, np.uint8)
        self.position = 0
        self._in_line = True

    @property
    def arrays(self) -> tuple[Floats, NDArray[np.uint32], NDArray[np.uint8], NDArray[np.uint8]]:
        """The arrays for `escra_settle.EscraBooks`: unused by position, flags, reported, ahead."""
        unused: Floats = self._unused.values.T
        return unused, self._flags.values, self._reported.values, self._ahead.values

    def fall_out_of_line(self) -> None:
        """Note that some containers reported on their own."""
        self._in_line = False

    def advance(self) -> None:
        """Begin a period in which every member reports. One `write` per slice of slots follows."""
        self.align()
        self.move(1)

    def move(self, periods: int) -> None:
        """Begin the last of `periods` periods. `settle` wrote those before it."""
        self.position = (self.position + periods) % self._length

    def write(self, slots: slice, unused_cores: Floats, throttled: Flags) -> None:
        """Write m slots' reports after `advance`: unused cores, float64[m]; throttled, bool[m]."""
        self._unused.values[slots, self.position] = unused_cores
        flags = self._flags.values[slots]
        np.left_shift(flags, 1, out=flags)
        np.bitwise_or(flags, throttled, out=flags)
        reported = self._reported.values[slots]
        np.add(reported, 1, out=reported)
        np.minimum(reported, self._length, out=reported)

    def write_some(self, slots: Slots, unused_cores: Floats, throttled: Flags) -> None:
        """Write the reports of m containers, as `write` does, no `advance`. slots: distinct, int64[m]."""
        self._in_line = False
        ahead = self._ahead.values[slots] + np.uint8(1)
        ahead[ahead == self._length] = 0
        self._ahead.values[slots] = ahead
        # Containers whose periods end together are usually at one position.
        steps = set(ahead.tolist())
        for step in steps:
            rows = slice(None) if len(steps) == 1 else np.flatnonzero(ahead == step)
            self._unused.values[slots[rows], (self.position + step) % self._length] = unused_cores[rows]
        flags = self._flags.values.take(slots)
        flags <<= np.uint32(1)
        flags |= throttled
        self._flags.values[slots] = flags
        reported = self._reported.values.take(slots)
        reported += np.uint8(1)
        np.minimum(reported, np.uint8(self._length), out=reported)
        self._reported.values[slots] = reported

    def write_one(self, slot: int, unused_cores: float, throttled: bool) -> None:
        """Write a report of one container, as `write_some` does."""
        self._in_line = False
        ahead = (self._ahead.cells[slot] + 1) % self._length
        self._ahead.cells[slot] = ahead
        self._unused.cells[slot, (self.position + ahead) % self._length] = unused_cores
        self._flags.cells[slot] = (self._flags.cells[slot] << 1 | throttled) & _WORD
        self._reported.cells[slot] = min(self._reported.cells[slot] + 1, self._length)

    def throttled_share_of(self, slot: int) -> float:
        """Return `throttled_share` of one slot, in [0, 1]."""
        flags: int = self._flags.cells[slot] & self._ones
        reported: int = self._reported.cells[slot]
        return flags.bit_count() / reported

    def mean_unused_of(self, slot: int) -> float:
        """Return `mean_unused` of one slot, cores, summed in the same order."""
        total = 0.0
        for position in range(self._length):
            total += self._unused.cells[slot, position]
        reported: int = self._reported.cells[slot]
        return total / reported

    def throttled_share(self, slots: Slots) -> Floats:
        """Return mean_n(th), float64[m] in [0, 1], of slots that have reported at least once."""
        count: Floats = np.bitwise_count(self._flags.values[slots] & self._mask).astype(np.float64)
        count /= self._reported.values[slots]
        return count

    def mean_unused(self, slots: Slots) -> Floats:
        """Return mean_n(q − u) in cores, float64[m], of slots that have reported at least once.

        The sum is computed anew from the window. A running sum would drift. It would also cost time for every
        container, not only for `slots`.
        """
        positions = self._unused.values.T
        total: Floats = positions[0].take(slots)
        for unused in positions[1:]:
            total += unused.take(slots)
        total /= self._reported.values.take(slots)
        return total

    def align(self) -> None:
        """Bring containers that reported on their own to the shared position."""
        if self._in_line:
            return
        slots = np.flatnonzero(self._ahead.values)
        ahead = self._ahead.values[slots]
        source = (np.arange(self._length) + ahead[:, None]) % self._length
        self._unused.values[slots] = np.take_along_axis(self._unused.values[slots], source, axis=1)
        self._ahead.values[slots] = 0
        self._in_line = True
