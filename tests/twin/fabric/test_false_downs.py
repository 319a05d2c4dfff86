"""Sessions that stalls bring down: as many as the closed form says, and when they leave a pair no path."""

from dataclasses import replace

import numpy as np
import pytest

from control.fabric import BfdTimers
from twin.fabric.bfd import false_downs_per_hour
from twin.fabric.false_downs import false_downs, without_path
from twin.fabric.model import Stalls
from twin.fabric.topology import dual_tor

TWO = dual_tor(2)
HOUR_S = 3600.0


@pytest.mark.parametrize("timers", [BfdTimers(0.05, 3), BfdTimers(0.02, 3), BfdTimers(0.1, 3)])
def test_stalls_bring_down_as_many_sessions_as_the_closed_form_says(thorn, timers):
    stalls, hours = Stalls(per_s=0.04, floor_s=0.05, excess_s=0.04), 4000
    handling = replace(thorn, timers=timers, control=replace(thorn.control, stalls=stalls))
    since_s, lasts_s = np.arange(hours) * HOUR_S, np.full(hours, HOUR_S)
    downs = false_downs(TWO, handling, since_s, lasts_s, np.random.SeedSequence(4))
    assert false_downs_per_hour(timers, stalls, 4) == pytest.approx(len(downs.window) / hours, rel=0.02)
    assert (np.diff(downs.window) >= 0).all()
    assert downs.end_s - downs.begin_s == pytest.approx(2.0)
    assert set(zip(downs.host.tolist(), downs.uplink.tolist(), strict=True)) == {
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    }


def test_a_machine_that_never_stalls_has_none(thorn):
    still = replace(thorn, control=replace(thorn.control, stalls=Stalls(0.0, 0.05, 0.04)))
    downs = false_downs(TWO, still, np.zeros(3), np.full(3, HOUR_S), np.random.SeedSequence(4))
    assert downs.window.size == 0


def test_a_pair_is_without_a_path_where_every_path_lacks_a_link():
    # The path by ToR 0 lacks host 0's link and then host 1's; that by ToR 1 lacks one in between.
    unused = [(0, 0, (1.0, 3.0)), (1, 0, (2.5, 5.0)), (0, 1, (4.0, 6.0)), (1, 1, (0.0, 1.5))]
    assert without_path(TWO, 0, 1, unused) == [(1.0, 1.5), (4.0, 5.0)]
    assert without_path(TWO, 0, 1, unused[:2]) == []
    assert without_path(TWO, 0, 1, []) == []
