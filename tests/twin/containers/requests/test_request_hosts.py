"""Hosts that run what stands on them slower than CPUs of its own would, and a client that is some way off."""

from dataclasses import replace

import numpy as np
import pytest

from control.services import RequestStatus as Status
from tests.twin.containers.requests.request_world import Call, Driver, Handler, Service, chain, world
from twin.containers.requests.checks import check
from twin.containers.requests.model import Client
from twinbed import InvariantError


def side_by_side(*parts_s, cores=2.0):
    """Return as many containers as parts. All of their work begins at 0."""
    calls = [Call(f"c{k}") for k in range(len(parts_s))]
    services = [Service({"a": Handler(0.0, [calls])})]
    services += [Service({f"c{k}": Handler(part_s)}) for k, part_s in enumerate(parts_s)]
    return world(services, [0.0], cores=(cores,))


@pytest.mark.parametrize(
    ("parts_s", "cores", "lost", "expected_s"),
    [
        # Who is alone loses only what is stolen.
        ((0.03,), 2.0, {"imbalance": 1.0}, 0.03),
        ((0.03,), 2.0, {"stolen": 0.25}, 0.04),
        # 2 · (1 − (1/2)²) = 1.5 CPUs for both while both run; the longer one's last 10 ms are alone.
        ((0.03, 0.03), 2.0, {"imbalance": 1.0}, 0.04),
        ((0.03, 0.04), 2.0, {"imbalance": 1.0}, 0.05),
        # Half an imbalance costs half of it: 1.75 CPUs for two, so 30 ms need 30 / 0.875.
        ((0.03, 0.03), 2.0, {"imbalance": 0.5}, 0.03 / 0.875),
        # 1.75 CPUs for three, where balanced ones would be 2; a host of one CPU has nothing to balance.
        ((0.02, 0.02, 0.02), 2.0, {"imbalance": 1.0}, 0.06 / 1.75),
        ((0.02, 0.02), 1.0, {"imbalance": 1.0}, 0.04),
    ],
)
def test_a_host_loses_what_is_stolen_and_what_is_not_balanced(parts_s, cores, lost, expected_s):
    load = replace(side_by_side(*parts_s, cores=cores), **lost)
    assert Driver(load).run().end_s[0] == pytest.approx(expected_s)


def test_what_is_lost_is_nobodys_cpu_time():
    driver = Driver(replace(side_by_side(0.03, 0.03), imbalance=1.0, stolen=0.2))
    log = driver.run()
    assert log.end_s[0] == pytest.approx(0.03 / (0.75 * 0.8))
    assert driver.physics.fleet.done_s.sum() == pytest.approx(0.06)


def test_a_quota_lasts_the_longer_for_it():
    # 10 ms of CPU per period last 20 ms; the other 5 ms are done in 10 ms of the next one.
    driver = Driver(replace(world(chain([0.015]), [0.0], cores=(2.0,)), stolen=0.5), quota=0.1)
    assert driver.run().end_s == pytest.approx([0.11])
    assert driver.series.throttled_s[0, 0] == pytest.approx(0.08)


def test_a_client_some_way_off_sees_that_much_more():
    load = world(chain([0.01]), [0.0, 0.002], client=Client(connections=1, way_s=0.001))
    # The second waits for the only connection, and then has its own way to go.
    assert Driver(load).run().end_s == pytest.approx([0.011, 0.022])


def test_a_client_that_gives_up_on_the_way_is_answered_for_nobody():
    load = world(chain([0.01]), [0.0], client=Client(timeout_s=0.001, way_s=0.005))
    driver = Driver(load)
    log = driver.run()
    assert log.status.tolist() == [Status.TIMED_OUT]
    assert log.orphans == 1
    assert driver.physics.fleet.done_s.sum() == pytest.approx(0.01)


@pytest.mark.parametrize(
    "wrong", [{"stolen": 1.0}, {"stolen": -0.1}, {"imbalance": 1.1}, {"imbalance": np.nan}, {"moves": 1.1}]
)
def test_losses_that_cannot_be_are_our_bug(wrong):
    with pytest.raises(InvariantError, match="stolen"):
        check(replace(world(chain([0.01]), []), **wrong))


def test_a_way_that_has_no_end_is_our_bug():
    with pytest.raises(InvariantError, match="way_s"):
        check(world(chain([0.01]), [], client=Client(way_s=np.inf)))
