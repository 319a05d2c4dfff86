"""The memory that containers hold for visits, also for visits that ended. Each case shows its arithmetic."""

from dataclasses import replace

import numpy as np
import pytest

from tests.twin.containers.requests.request_world import Driver, chain, world
from twin.containers.requests.checks import check_graph
from twinbed import InvariantError

BASE, REQUEST = 100, 7


def held_bytes(at_s, keep_s, periods=30, **settings):
    """Bytes of one container at the end of each period. A visit takes 50 ms of CPU on one of ten CPUs."""
    services = chain([0.05], base_bytes=BASE, request_bytes=REQUEST, threads=10.0)
    load = world(services, at_s, periods=periods, cores=(10.0,))
    driver = Driver(replace(load, graph=replace(load.graph, keep_s=keep_s)), **settings)
    driver.run()
    return driver.series.memory_bytes[:, 0].tolist()


def test_memory_of_a_visit_is_given_back_at_its_end_where_nothing_is_kept():
    assert held_bytes([0.01, 0.09], 0.0)[:3] == [BASE + REQUEST, BASE, BASE]


def test_memory_of_the_most_visits_at_once_is_kept_and_then_given_back():
    # Three visits at once until 0.06. At 1.1, the first period's end a second later, all three were needed;
    # at 2.1 none was, so all are given back.
    held = held_bytes([0.01, 0.01, 0.01], 1.0)
    assert held[:20] == [BASE + 3 * REQUEST] * 20
    assert held[20:] == [BASE] * 10


def test_kept_memory_serves_later_visits_and_only_the_rest_is_given_back():
    # After the first second one visit at a time needs one of the two memories.
    held = held_bytes([0.01, 0.01, 1.31, 1.51, 1.71], 1.0)
    assert held[:20] == [BASE + 2 * REQUEST] * 20
    assert set(held[20:]) == {BASE + REQUEST}


def test_a_visit_that_finds_kept_memory_meets_no_limit():
    driver_limit = BASE + REQUEST
    held = held_bytes([0.01, 0.21], 1.0, limit=driver_limit)
    assert max(held) == driver_limit


def test_a_killed_container_keeps_nothing():
    load = world(chain([0.05], base_bytes=BASE, request_bytes=REQUEST), [0.01])
    driver = Driver(replace(load, graph=replace(load.graph, keep_s=1.0)))
    driver.to(0.2)
    assert driver.physics.fleet.wanted_bytes[0] == BASE + REQUEST
    driver.physics.take_down(np.array([0]))
    driver.physics.release(np.array([0]))
    assert driver.physics.fleet.wanted_bytes[0] == BASE


def test_memory_cannot_be_kept_for_a_negative_time():
    graph = world(chain([0.05]), [0.01]).graph
    with pytest.raises(InvariantError, match="keep_s"):
        check_graph(replace(graph, keep_s=-1.0))
