"""Hosts under requests that are short of CPUs: who gets how much, once CPU requests are in force."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.twin.containers.requests.request_world import Call, Driver, Handler, Service, world
from twin.containers.sharing import max_min


def busy_services(threads, cores, *, visit_s=50.0, **more):
    """Services whose `threads` CPUs each have a visit of 50 s from the start, on one host."""
    calls = [Call(f"c{k}") for k, wanted in enumerate(threads) for _ in range(wanted)]
    services = [Service({"a": Handler(0.0, [calls])})]
    services += [
        Service({f"c{k}": Handler(visit_s)}, threads=float(wanted)) for k, wanted in enumerate(threads)
    ]
    return world(services, [0.0], cores=(cores,), **more)


def weighed(load, weights, **settings):
    driver = Driver(load, **settings)
    driver.physics.weigh(np.arange(1, len(weights) + 1), np.array(weights, float))
    return driver


def used_cores(driver):
    driver.run()
    load = driver.workload
    return driver.physics.fleet.done_s[1:] / (load.periods * load.period_s)


@given(threads=st.lists(st.integers(1, 5), min_size=2, max_size=6), cores=st.integers(1, 12), data=st.data())
@settings(max_examples=40, deadline=None)
def test_cpus_of_a_short_host_are_shared_max_min_fairly_by_weight(threads, cores, data):
    weights = data.draw(st.lists(st.floats(0.5, 400.0), min_size=len(threads), max_size=len(threads)))
    fair = np.empty(len(threads))
    max_min(np.array(threads, float), np.array(weights), float(cores), fair)
    used = used_cores(weighed(busy_services(threads, float(cores)), weights))
    assert used == pytest.approx(fair, rel=1e-6, abs=1e-9)


def test_weights_in_proportion_to_demand_change_nothing():
    load = busy_services([1, 3], 3.0)
    assert used_cores(weighed(load, [100.0, 300.0])) == pytest.approx(used_cores(Driver(load)))


def test_weights_do_not_count_while_there_are_cpus_to_spare():
    load = busy_services([1, 3], 8.0)
    assert used_cores(weighed(load, [1.0, 10_000.0])) == pytest.approx([1.0, 3.0])


def test_what_one_leaves_is_shared_by_the_others():
    # Of two CPUs, the light one gets 1/2 while the heavy one wants its 1.5, and one of its own after that:
    # 30 ms at 0.5, which the heavy one's 90 ms last 60 ms for, leave nothing; 40 ms at 0.5 leave 10 ms.
    calls = [Call("light"), *[Call("heavy")] * 2]
    services = [
        Service({"a": Handler(0.0, [calls])}),
        Service({"light": Handler(0.04)}),
        Service({"heavy": Handler(0.045)}, threads=2.0),
    ]
    driver = weighed(world(services, [0.0], cores=(2.0,)), [100.0, 300.0])
    assert driver.run().end_s[0] == pytest.approx(0.07)


def test_a_quota_still_ends_what_a_weight_gives():
    # The heavy one may use 0.3 CPUs and does so in the first of each period; the light one has the rest.
    used = used_cores(weighed(busy_services([1, 1], 1.0), [1.0, 99.0], quota=np.array([np.inf, np.inf, 0.3])))
    assert used == pytest.approx([0.7, 0.3], rel=1e-6)


def test_a_new_weight_counts_from_then_on():
    driver = weighed(busy_services([1, 1], 1.0), [100.0, 300.0])
    for at_s, row, group in driver.ends():
        driver.to(at_s)
        driver.physics.end_period(row, group, driver.report)
        if row == 4:
            assert driver.physics.fleet.done_s[1:] == pytest.approx([0.125, 0.375])
            driver.physics.weigh(np.array([1, 2]), np.array([300.0, 100.0]))
    assert driver.physics.fleet.done_s[1:] == pytest.approx([0.5, 0.5])


def test_imbalance_and_stolen_time_cost_all_alike():
    load = busy_services([2, 2], 2.0, visit_s=50.0)
    lossy = {"imbalance": 0.5, "stolen": 0.25}
    even, by_weight = (
        used_cores(driver)
        for driver in (Driver(replace(load, **lossy)), weighed(replace(load, **lossy), [100.0, 300.0]))
    )
    assert by_weight.sum() == pytest.approx(even.sum())
    assert by_weight[1] == pytest.approx(3 * by_weight[0])
