"""Asynchronous training in cgroups and networks of its own."""

import time

import pytest

from testbed.cloud.asynchronous import Asynchronous, Machine
from testbed.containers import network
from testbed.containers.cgroup.drivers import detect
from twinbed import ScenarioError

pytestmark = [pytest.mark.root, pytest.mark.slow]

SMALL, LARGE = Machine("small", 0.1, 1024), Machine("large", 0.5, 1024)


def test_unequal_workers_train_at_their_own_pace_and_the_others_outlive_one_that_is_killed() -> None:
    with Asynchronous(2, 12.0, 8.0) as cluster:
        measured = cluster.measure_cluster({1: SMALL, 2: LARGE}, 16)
        assert measured.pushes == 16
        assert measured.iteration_s[1] > measured.iteration_s[2]
        assert all(measured.moved_s[rank] > 2 * 0.8 * measured.push_mb / 8.0 for rank in (1, 2))
        assert 0.95 < measured.push_mb < 1.2  # 247,511 numbers of 4 bytes and headers
        cluster.kill(2)
        begun = cluster.pushes().at_s.size
        cluster.settle(30)
        assert set(cluster.pushes().rank[begun + 1 :]) == {1}  # one push may have been on its way
        cluster.start_again(2, SMALL)
        cluster.settle(60)
        pushes = cluster.pushes()
        assert {1, 2} <= set(pushes.rank[begun + 1 :])
        assert pushes.loss[-5:].mean() < pushes.loss[:5].mean()
        cluster._containers[1].process.kill()
        with pytest.raises(ScenarioError, match="rank 1 ended before it could train on"):
            cluster.watch(5)
    assert detect().sweep() == network.sweep() == []


def test_a_rank_that_is_not_ordered_to_train_waits() -> None:
    with Asynchronous(2, 12.0, 8.0) as cluster:
        cluster.train({1: LARGE})
        cluster.settle(60)
        time.sleep(0.2)
        assert set(cluster.pushes().rank) == {1}
