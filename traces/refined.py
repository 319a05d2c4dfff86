"""Put a trace on finer intervals in blocks, for traces whose fine form does not fit into memory.

For: the same bits as `refine`, in blocks. Readers ask for them in the order of time, several at once or one
after the other. Not for: the random model (refine.py).

The position in the random numbers at the start of each block is kept, so that the block can be drawn again. A
reader that is ahead waits a while for the others, so that a block is usually drawn only once.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traces.refine import DEFAULT, Burstiness, Bursts, Mark, interpolate, multiple, refined_note
from traces.schema import Floats, UsageTrace

BLOCK_CELLS = 2_000_000
"""Number of fine intervals × containers of a block, which takes some 100 MB with all derived data."""

_KEPT = 2
"""Number of blocks that are kept: the one that the first readers read, and the one before."""

_PATIENCE_S = 5.0
"""Longest wait of a reader for slower readers, s. They may have been stopped."""


class Block(NamedTuple):
    """Fine rows from row `first` on, as in UsageTrace, but with memory in whole bytes."""

    first: int
    cpu_cores: Floats
    memory_bytes: NDArray[np.int64]
    present: NDArray[np.bool_]


class Refined:
    """The trace on intervals of interval_s, which divides the trace's own. Parameters are as in `refine`.

    rows: number of fine intervals. block_rows: number of rows of a block; the last block may have fewer.
    notes: notes of the trace on the fine intervals. Raises TraceError if interval_s does not divide the
    trace's interval.
    """

    def __init__(
        self,
        trace: UsageTrace,
        interval_s: float,
        seed: np.random.SeedSequence,
        burstiness: Burstiness = DEFAULT,
        max_cores: float | None = None,
        block_cells: int = BLOCK_CELLS,
    ) -> None:
        self.trace = trace
        self._parts = multiple(trace.interval_s, interval_s)
        count, columns = trace.shape
        self._step = max(1, block_cells // (self._parts * columns))
        self.rows, self.block_rows = count * self._parts, self._step * self._parts
        self.notes = (*trace.notes, refined_note(trace, interval_s, burstiness, max_cores))
        cap = np.inf if max_cores is None else max_cores
        self._bursts = Bursts(columns, self._parts, interval_s, seed, burstiness, cap)
        self._marks: dict[int, Mark] = {0: self._bursts.mark}
        self._kept: dict[int, Block] = {}
        self._readers: weakref.WeakSet[Reader] = weakref.WeakSet()
        self._changed = threading.Condition()

    @property
    def starts(self) -> NDArray[np.int64]:
        """Rows at which a container appears or ends, int64[k], ascending."""
        present = self.trace.present
        return (np.flatnonzero((present[1:] != present[:-1]).any(axis=1)) + 1) * self._parts

    def blocks(self) -> Iterator[Block]:
        """Yield all blocks in order."""
        reader = self.reader()
        for number in range(-(-self.rows // self.block_rows)):
            yield reader.block(number)
        reader.close()

    def cpu_blocks(self) -> Iterator[Floats]:
        """Yield the CPU use of all blocks in order, without memory and network."""
        for number in range(-(-self.rows // self.block_rows)):
            with self._changed:
                cpu = self._draw_cpu(number)
            yield cpu

    def reader(self) -> Reader:
        """Return a reader, which reads all blocks once, in order."""
        with self._changed:
            reader = Reader(self)
            self._readers.add(reader)
            return reader

    def _read(self, reader: Reader, number: int) -> Block:
        with self._changed:
            self._move(reader, number)
            self._changed.wait_for(lambda: number in self._kept or self._slowest() >= number - 1, _PATIENCE_S)
            block = self._kept.get(number)
            if block is None:
                block = self._kept[number] = self._draw(number)
            places = [reader.at for reader in self._readers]
            for old in sorted(self._kept):
                beyond = not min(places) <= old <= max(places) + 1
                if old != number and (beyond or len(self._kept) > _KEPT):
                    del self._kept[old]
            return block

    def _move(self, reader: Reader, number: int) -> None:
        with self._changed:
            reader.at = number
            self._changed.notify_all()

    def _leave(self, reader: Reader) -> None:
        with self._changed:
            self._readers.discard(reader)
            if not self._readers:
                self._kept.clear()
            self._changed.notify_all()

    def _slowest(self) -> int:
        return min(reader.at for reader in self._readers)

    def _draw(self, number: int) -> Block:
        """Return block `number`, drawn."""
        trace, parts, cpu = self.trace, self._parts, self._draw_cpu(number)
        first = number * self._step
        last, before = first + self._step, max(first - 1, 0)
        memory = np.empty(cpu.shape, np.int64)
        rows = slice(before, last)
        interpolate(trace.memory_bytes[rows], trace.present[rows], parts, first - before, True, memory)
        return Block(first * parts, cpu, memory, np.repeat(trace.present[first:last], parts, axis=0))

    def _draw_cpu(self, number: int) -> Floats:
        """Return a block's CPU use. Draws also the blocks between it and the last known position."""
        known = max(start for start in self._marks if start <= number)
        self._bursts.go_to(self._marks[known])
        for step in range(known, number + 1):
            first = step * self._step
            cpu = self._bursts.draw(self.trace.cpu_cores[first : first + self._step])
            self._marks[step + 1] = self._bursts.mark
        return cpu


class Reader:
    """A reader of a `Refined` trace. at: number of the block read last; −1 at first."""

    def __init__(self, refined: Refined) -> None:
        self._refined, self.at = refined, -1

    def block(self, number: int) -> Block:
        """Return the block of that number, from 0."""
        return self._refined._read(self, number)

    def close(self) -> None:
        """End the reading, so that no reader waits for this one, and no block is kept for it."""
        self._refined._leave(self)
