"""A container that idled begins with cold caches: what its next part costs more, each with its arithmetic."""

from dataclasses import replace
from math import exp, inf

import numpy as np
import pytest

from tests.twin.containers.requests.request_world import Call, Driver, Handler, Service, chain, world
from twin.containers.requests.checks import check_graph
from twinbed import InvariantError

WAKE_S, TAU_S = 0.01, 0.05
FIRST = np.array([0])


def cold(load, wake_s=WAKE_S, tau_s=TAU_S):
    return replace(load, graph=replace(load.graph, wake_s=wake_s, wake_tau_s=tau_s))


def woken_s(idle_s):
    return WAKE_S * (1.0 - exp(-idle_s / TAU_S))


def test_a_container_in_which_nothing_ran_yet_is_cold_and_then_the_colder_the_longer_it_idles():
    driver = Driver(cold(world(chain([0.02]), [0.1, 0.18, 0.5])))
    log = driver.run()
    # 20 + 10 ms, so idle from 0.13 to 0.18; then from the second's end to 0.5.
    second = 0.18 + 0.02 + woken_s(0.05)
    third = 0.5 + 0.02 + woken_s(0.5 - second)
    assert log.end_s == pytest.approx([0.13, second, third], abs=1e-12)
    assert driver.physics.fleet.done_s[0] == pytest.approx((log.end_s - log.at_s).sum())


def test_whoever_comes_while_another_is_runnable_wakes_nobody():
    # The first needs 30 ms; both share the CPU from 0.01: 20 ms each are left, until 0.05.
    log = Driver(cold(world(chain([0.02]), [0.0, 0.01]))).run()
    assert log.end_s == pytest.approx([0.05, 0.05], abs=1e-9)


def test_a_part_after_calls_wakes_its_container_from_where_the_part_before_ended():
    # a: 10 + 10 ms; b: 5 + 10 ms, in which a idles; the second time b idled for a's part and the gap.
    log = Driver(cold(world(chain([0.02, 0.005]), [0.0, 0.1]))).run()
    first = 0.01 + 0.01 + 0.015 + 0.01 + woken_s(0.015)
    asleep = 0.1 - first
    called = 0.1 + 0.01 + woken_s(asleep)
    answered = called + 0.005 + woken_s(called - 0.035)
    assert log.end_s == pytest.approx([first, answered + 0.01 + woken_s(answered - called)], abs=1e-9)


def test_an_answer_before_the_last_of_its_stage_wakes_its_caller_too():
    # a: 10 + 10 ms; b and c begin cold: 5 + 10 and 30 + 10 ms. a idles for 15 ms, then for 25.
    services = [
        Service({"a": Handler(0.02, [[Call("b"), Call("c")]])}),
        Service({"b": Handler(0.005)}),
        Service({"c": Handler(0.03)}),
    ]
    log = Driver(cold(world(services, [0.0]))).run()
    assert log.end_s == pytest.approx([0.02 + 0.04 + 0.01 + woken_s(0.015) + woken_s(0.025)], abs=1e-9)


def test_a_throttled_container_is_awake():
    # 10 ms per period: 20 + 10 ms need three of them, and the second one's 20 ms two more.
    driver = Driver(cold(world(chain([0.02]), [0.0, 0.15])), quota=0.1)
    driver.run()
    assert driver.physics.fleet.done_s[0] == pytest.approx(0.05)


def test_a_killed_container_begins_cold():
    driver = Driver(cold(world(chain([0.02]), [0.0, 0.05])))
    driver.to(0.04)
    driver.physics.take_down(FIRST)
    driver.physics.release(FIRST)
    assert driver.run().end_s == pytest.approx([0.03, 0.08], abs=1e-9)


def test_a_container_that_was_held_wakes_when_it_runs_again():
    driver = Driver(cold(world(chain([0.02]), [0.0, 0.08])))
    driver.to(0.04)
    driver.physics.hold(FIRST)
    driver.to(0.13)
    driver.physics.release(FIRST)
    assert driver.run().end_s == pytest.approx([0.03, 0.15 + woken_s(0.1)], abs=1e-9)


@pytest.mark.parametrize("wake", [(-1e-6, 1.0), (inf, 1.0), (np.nan, 1.0), (0.0, 0.0), (0.0, np.nan)])
def test_a_wake_that_cannot_be_is_our_bug(wake):
    with pytest.raises(InvariantError, match="wake_s"):
        check_graph(cold(world(chain([0.02]), []), *wake).graph)


def moving(handlers, at_s, kinds, moves=1.0, quota=0.01, threads=1.0, writes=()):
    """Run one container on a host of two CPUs, with next to no cost of waking up. Return (log, driver)."""
    load = world(
        [Service(handlers, threads=threads)], at_s, list(handlers), np.array(kinds), cores=(2.0,), periods=4
    )
    load = replace(load, moves=moves, graph=replace(load.graph, wake_s=1e-12, wake_tau_s=1.0))
    driver = Driver(load, quota=quota)
    for time_s in writes:
        driver.to(time_s)
        driver.write(quota)
    return driver.run(), driver


def test_a_container_that_moves_leaves_behind_what_its_cpu_keeps():
    # The first CPU takes the whole millisecond and keeps 0.7 of it, so nothing is left on the second.
    handlers = {"short": Handler(0.0003)}
    assert moving(handlers, [0.0, 0.01], [0, 0], moves=0.0)[0].end_s == pytest.approx([0.0003, 0.0103])
    log, driver = moving(handlers, [0.0, 0.01], [0, 0])
    assert log.end_s == pytest.approx([0.0003, 0.1003])
    assert driver.series.throttled[:2, 0].tolist() == [True, False]


def test_a_container_that_moves_back_finds_what_its_cpu_kept():
    # 0.7 ms wait on the first CPU, across the period's end, while the second one's part is done at 0.1003 s.
    log, _ = moving({"short": Handler(0.0003), "long": Handler(0.0015)}, [0.0, 0.01, 0.11], [0, 0, 1])
    # The second CPU keeps 0.7 ms of the second quota, too: 0.7 of 1.5 ms are there, and 1 in the next period.
    assert log.end_s[2] == pytest.approx(0.2008)


def test_a_quota_write_takes_back_what_all_cpus_kept():
    # The second part is throttled until the write. The first CPU has lost its 0.7 ms by then.
    handlers = {"short": Handler(0.0003), "long": Handler(0.0015)}
    log, _ = moving(handlers, [0.0, 0.01, 0.11], [0, 0, 1], writes=[0.05])
    assert log.end_s[1:] == pytest.approx([0.0503, 0.2005])


def test_two_parts_at_once_use_what_both_cpus_kept():
    # Of 2 ms, two parts of 0.2 leave 1 on the CPU that sleeps first and 0.6 on the other one.
    handlers = {"short": Handler(0.0002), "long": Handler(0.0007)}
    alone, _ = moving(handlers, [0.0, 0.0, 0.01], [0, 0, 1], moves=1e-12, quota=0.02, threads=2.0)
    assert alone.end_s[2] == pytest.approx(0.1001)
    both, _ = moving(handlers, [0.0, 0.0, 0.01, 0.01], [0, 0, 1, 1], moves=1e-12, quota=0.02, threads=2.0)
    assert both.end_s[2:] == pytest.approx([0.0107, 0.0107])
