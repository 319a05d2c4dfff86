from itertools import product

import numpy as np
import pytest
import simpy

from control.fabric import BfdState, BfdTimers, Direction
from twin.fabric.bfd import RECEIVED
from twin.fabric.model import Bond
from twin.fabric.sessions import End, Wire, bfd_pace, lacp_pace


class Pair:
    """Two ends on a wire of 1 ms, and when each changed."""

    def __init__(self, pace, seed=0):
        self.env = simpy.Environment()
        self.wire = Wire(self.env, 0.001)
        self.changes = {way: [] for way in Direction}
        random = np.random.default_rng(seed)
        out, into = (End(self.wire, way, pace, random, self._note(way)) for way in Direction)
        out.join(into)
        into.join(out)

    def _note(self, way):
        return lambda up: self.changes[way].append((self.env.now, up))


def test_a_session_stays_up_as_long_as_packets_come():
    pair = Pair(bfd_pace(BfdTimers(0.05, 1)))
    pair.env.run(until=20.0)
    assert pair.changes == {Direction.OUT: [], Direction.IN: []}


def test_both_ends_fall_by_silence_and_rise_within_a_slow_interval_after_the_repair():
    pair = Pair(bfd_pace(BfdTimers(0.05, 3)))
    pair.env.run(until=1.0)
    pair.wire.lost |= set(Direction)
    pair.env.run(until=3.0)
    pair.wire.lost.clear()
    pair.env.run(until=20.0)
    for (fell_s, fell), (rose_s, rose) in pair.changes.values():
        assert (fell, rose) == (False, True)
        assert 1.1 <= fell_s <= 1.151
        # The first slow packet within a second, then down → init → up → up: three ways of 1 ms.
        assert 3.0 < rose_s <= 4.003


@pytest.mark.parametrize("deaf", Direction)
def test_the_end_that_hears_nothing_tells_the_other_at_once(deaf):
    pair = Pair(bfd_pace(BfdTimers(0.05, 3)))
    pair.env.run(until=1.0)
    lost = Direction.IN if deaf is Direction.OUT else Direction.OUT
    pair.wire.lost.add(lost)
    pair.env.run(until=2.0)
    ((silent_s, _),) = pair.changes[deaf]
    ((told_s, _),) = pair.changes[lost]
    assert 1.1 <= silent_s <= 1.151
    assert told_s == pytest.approx(silent_s + 0.001)
    pair.env.run(until=9.0)
    assert [len(changes) for changes in pair.changes.values()] == [1, 1]


def test_a_partner_is_given_up_after_three_lacpdus():
    pair = Pair(lacp_pace(Bond(lacp_s=1.0)))
    pair.env.run(until=10.0)
    pair.wire.lost |= set(Direction)
    pair.env.run(until=20.0)
    for ((fell_s, up),) in pair.changes.values():
        assert not up
        assert 12.0 <= fell_s <= 13.001


def test_the_table_is_rfc_5880_s():
    assert set(RECEIVED) == set(product((BfdState.DOWN, BfdState.INIT, BfdState.UP), repeat=2))
    up, down, init = BfdState.UP, BfdState.DOWN, BfdState.INIT
    # §6.2: up only from init or by an end that knows us; a neighbour that is down takes us down.
    rising = {pair for pair, after in RECEIVED.items() if after is up}
    assert rising == {(down, init), (init, init), (init, up), (up, init), (up, up)}
    assert RECEIVED[up, down] is down
