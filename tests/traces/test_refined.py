"""Blocks of a refined trace are the rows of the whole, whoever reads them and in whatever company."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.patience import PATIENCE_S
from tests.traces.test_refine import burstiness, seed, steady
from tests.traces.trace_strategies import usage_traces
from traces import refined
from traces.refine import Burstiness, refine
from traces.refined import Refined


@given(
    usage_traces(), st.sampled_from([2, 7, 30]), burstiness, st.integers(1, 4), st.sampled_from([None, 0.05])
)
@settings(max_examples=60)
def test_blocks_are_the_rows_of_the_whole_to_the_bit(trace, parts, bursts, intervals, max_cores):
    interval_s = trace.interval_s / parts
    whole = refine(trace, interval_s, seed(), bursts, max_cores)
    blocks = Refined(trace, interval_s, seed(), bursts, max_cores, intervals * parts * trace.shape[1])
    for _ in range(2):
        read = list(blocks.blocks())
        assert [block.first for block in read] == list(range(0, blocks.rows, blocks.block_rows))
        for name in ("cpu_cores", "present"):
            joined = np.concatenate([getattr(block, name) for block in read])
            np.testing.assert_array_equal(joined, getattr(whole, name))
        memory = np.concatenate([block.memory_bytes for block in read])
        np.testing.assert_array_equal(memory, np.rint(whole.memory_bytes))
    changed = (whole.present[1:] != whole.present[:-1]).any(axis=1)
    assert blocks.starts.tolist() == (np.flatnonzero(changed) + 1).tolist()
    assert blocks.notes == whole.notes


def drawn(monkeypatch):
    """The numbers of the blocks that are drawn from now on."""
    numbers = []
    draw = Refined._draw

    def noted(self, number):
        numbers.append(number)
        return draw(self, number)

    monkeypatch.setattr(Refined, "_draw", noted)
    return numbers


def blocks_of_two_seconds() -> Refined:
    return Refined(steady(20, 2, 1.0), 0.1, seed(), Burstiness(1.0, 0.3), block_cells=40)


def test_readers_side_by_side_share_what_is_drawn(monkeypatch):
    monkeypatch.setattr("traces.refined._PATIENCE_S", PATIENCE_S)
    numbers, blocks = drawn(monkeypatch), blocks_of_two_seconds()
    readers = [blocks.reader() for _ in range(4)]
    seen = [[] for _ in readers]

    def read(reader, rows):
        rows += [reader.block(number).cpu_cores.sum() for number in range(10)]
        reader.close()

    threads = [threading.Thread(target=read, args=pair) for pair in zip(readers, seen, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen[1:] == seen[:-1]
    assert numbers == list(range(10))


def test_a_reader_that_has_ended_leaves_its_last_block_to_the_next_reader(monkeypatch):
    monkeypatch.setattr(refined, "_PATIENCE_S", 0.0)
    numbers, blocks = drawn(monkeypatch), blocks_of_two_seconds()
    first, second, third = (blocks.reader() for _ in range(3))
    for number in range(9):
        for reader in (first, second):
            reader.block(number)
        if number < 8:
            third.block(number)
    first.block(9)
    first.close()
    third.block(8)
    second.block(9)
    assert numbers == list(range(10))


def test_readers_one_after_the_other_see_the_same(monkeypatch):
    numbers, blocks = drawn(monkeypatch), blocks_of_two_seconds()
    one, other = ([block.cpu_cores.sum() for block in blocks.blocks()] for _ in range(2))
    assert one == other
    assert numbers == 2 * list(range(10))


def test_a_reader_does_not_wait_for_one_that_was_stopped_for_ever(monkeypatch):
    monkeypatch.setattr(refined, "_PATIENCE_S", 0.01)
    blocks = blocks_of_two_seconds()
    stopped, reader = blocks.reader(), blocks.reader()
    stopped.block(0)
    last = [reader.block(number) for number in range(10)][-1]
    # The reader may still continue, and reads the same rows as before.
    for number in range(1, 10):
        late = stopped.block(number)
    np.testing.assert_array_equal(late.cpu_cores, last.cpu_cores)


def test_no_more_than_two_blocks_are_kept_and_none_at_the_end():
    blocks = blocks_of_two_seconds()
    reader = blocks.reader()
    for number in range(10):
        reader.block(number)
        assert len(blocks._kept) <= 2
    reader.close()
    assert not blocks._kept


@pytest.mark.parametrize("intervals", [1, 3])
def test_a_block_is_whole_intervals_of_the_trace(intervals):
    blocks = Refined(steady(20, 3, 1.0), 0.1, seed(), block_cells=30 * intervals + 29)
    assert blocks.block_rows == 10 * intervals
