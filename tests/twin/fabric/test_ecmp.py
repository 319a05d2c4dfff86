import numpy as np
import pytest

from twin.fabric.ecmp import NO_SPINE_USED, flow_hash, paths
from twin.fabric.topology import dual_tor


def test_hosts_at_the_same_switches_meet_there_and_others_by_every_spine():
    fabric = dual_tor(4, tors=4, spines=3)
    assert paths(fabric, 0, 1).tolist() == [[0, NO_SPINE_USED, 0], [1, NO_SPINE_USED, 1]]
    across = paths(fabric, 0, 3)
    assert len(across) == len(set(map(tuple, across.tolist()))) == 2 * 3 * 2
    assert len(paths(dual_tor(2, tors=8, uplinks=8, nics=4), 0, 1)) == 8
    assert len(paths(dual_tor(4, tors=4), 0, 3)) == 0


@pytest.mark.parametrize("count", [2, 3, 12])
def test_flows_spread_evenly_and_each_keeps_its_path(count):
    flows = np.stack([np.full(60_000, 1), np.full(60_000, 2), np.arange(60_000)], axis=1)
    taken = flow_hash(flows, count, 7)
    assert taken.min() == 0
    assert taken.max() == count - 1
    share = np.bincount(taken) / len(flows)
    assert share == pytest.approx(1 / count, abs=5 * np.sqrt(1 / count / len(flows)))
    assert (flow_hash(flows[::-1], count, 7)[::-1] == taken).all()
    # Another switch's seed sends about 1 / count of them the same way.
    assert (flow_hash(flows, count, 8) == taken).mean() == pytest.approx(1 / count, abs=0.02)
