"""The request engine's rules, each with its arithmetic."""

import numpy as np
import pytest

from control.services import RequestStatus as Status
from tests.twin.containers.requests.request_world import (
    PERIOD_S,
    Call,
    Driver,
    Handler,
    Service,
    chain,
    run,
    world,
)
from twin.containers.requests.model import Client

OK, TIMED_OUT, DROPPED, FAILED = (Status.OK, Status.TIMED_OUT, Status.DROPPED, Status.FAILED)


def ends(log):
    return pytest.approx(log.end_s.tolist(), abs=1e-9)


def test_a_request_takes_its_demand_when_alone():
    log = run(world(chain([0.02]), [0.1]))
    assert ends(log) == [0.12]
    assert log.status.tolist() == [OK]


def test_runnable_visits_share_the_cpus_evenly():
    # Alone until 0.01 (half done), then two at half speed: the first needs 0.02 more, the second's rest 0.01.
    log = run(world(chain([0.02]), [0.0, 0.01]))
    assert ends(log) == [0.03, 0.04]


def test_visits_that_have_a_cpu_each_do_not_slow_each_other():
    log = run(world(chain([0.02], threads=2.0), [0.0, 0.01]))
    assert ends(log) == [0.02, 0.03]


def test_a_visit_works_before_between_and_after_its_stages():
    # a: 10 ms before and 10 ms after; b: 5 ms; the network takes 1 ms.
    log = run(world(chain([0.02, 0.005], call={"network_s": 0.001}), [0.0]))
    assert ends(log) == [0.026]
    assert log.visits.tolist() == [1, 1]


def test_parallel_calls_take_as_long_as_the_slowest():
    services = [
        Service({"a": Handler(0.0, [[Call("b"), Call("c")], [Call("b")]])}),
        Service({"b": Handler(0.01)}),
        Service({"c": Handler(0.03)}),
    ]
    log = run(world(services, [0.0]))
    assert ends(log) == [0.04]
    assert log.visits.tolist() == [1, 2, 1]


def test_threads_burn_the_pool_together_and_wait_for_the_periods_end():
    # 4 visits of 40 ms on 4 CPUs, 80 ms per period: all stop at 20 ms, go on at 100 ms for 20 ms.
    driver = Driver(world(chain([0.04], threads=4.0), [0.0] * 4), quota=0.8)
    log = driver.run()
    assert ends(log) == [0.12] * 4
    assert driver.series.throttled[:3, 0].tolist() == [True, False, False]
    assert driver.series.throttled_s[0, 0] == pytest.approx(4 * 0.08)
    assert driver.series.usage_cores[:3, 0] == pytest.approx([0.8, 0.8, 0.0])


def test_a_pool_that_lasts_to_the_periods_end_is_not_exhausted():
    driver = Driver(world(chain([0.5]), [0.0]), quota=1.0)
    driver.run()
    assert not driver.series.throttled.any()


def test_periods_end_at_their_own_phase():
    # The first period lasts 30 ms; of 20 ms per period, 20 are used at once, then 20 from 30 ms on, …
    driver = Driver(world(chain([0.05], phase_s=0.07), [0.0]), quota=0.2)
    log = driver.run()
    assert ends(log) == [0.14]


def test_a_quota_write_refills_the_pool_even_when_unchanged():
    driver = Driver(world(chain([0.05]), [0.0]), quota=0.2)
    driver.to(0.03)
    assert driver.write(0.2) == 0
    driver.to(0.06)
    assert driver.write(0.3) == 1
    log = driver.run()
    assert ends(log) == [0.07]
    assert driver.series.throttled_s[0, 0] == pytest.approx(0.02)


def test_a_millisecond_that_a_cpu_kept_is_there_beside_the_next_quota():
    # 20 ms per period. Of the first, 3 are used, and the CPU keeps one; the second's 21 leave nothing.
    service = Service({"short": Handler(0.003), "long": Handler(1.0)})
    load = world([service], [0.0, 0.1], ["short", "long"], np.array([0, 1]), periods=3)
    driver = Driver(load, quota=0.2)
    driver.run()
    assert driver.series.usage_cores[:, 0] == pytest.approx([0.03, 0.21, 0.2], abs=1e-6)


def test_work_uses_what_its_cpu_kept_before_it_takes_more():
    # After 0.4 ms the CPU keeps one; 0.4 of that are used in the second period, so 0.6 are left to the third.
    service = Service({"short": Handler(0.0004), "long": Handler(1.0)})
    load = world([service], [0.0, 0.1, 0.2], ["short", "long"], np.array([0, 0, 1]), periods=4)
    driver = Driver(load, quota=0.2)
    driver.run()
    assert driver.series.usage_cores[:, 0] == pytest.approx([0.004, 0.004, 0.206, 0.2], abs=1e-6)


def test_a_cpu_keeps_no_more_than_its_slice_has_left():
    # A slice of 5 ms has 0.2 left when the work of 4.8 has ended.
    service = Service({"short": Handler(0.0048), "long": Handler(1.0)})
    load = world([service], [0.0, 0.1], ["short", "long"], np.array([0, 1]), periods=3)
    driver = Driver(load, quota=0.2)
    driver.run()
    assert driver.series.usage_cores[:, 0] == pytest.approx([0.048, 0.202, 0.2], abs=1e-6)


def test_a_quota_write_takes_back_what_a_cpu_kept():
    driver = Driver(world(chain([0.003]), [0.0]), quota=0.2)
    driver.to(PERIOD_S)
    driver.physics.end_period(0, 0, driver.report)
    assert driver.physics.fleet.pool[0] == pytest.approx(0.021)
    driver.write(0.2)
    assert driver.physics.fleet.pool[0] == pytest.approx(0.02)


def test_a_quota_of_which_no_cpu_took_any_is_not_kept():
    driver = Driver(world(chain([1.0]), [0.1], periods=2), quota=0.2)
    driver.run()
    assert driver.series.usage_cores[:, 0] == pytest.approx([0.0, 0.2], abs=1e-6)


def test_a_host_that_is_wanted_too_much_runs_all_slower():
    # 3 CPUs wanted of 2: two thirds of the speed while all three run.
    services = [Service({"a": Handler(0.0, [[Call("b"), Call("c"), Call("d")]])}, host=1)]
    services += [Service({name: Handler(0.02)}) for name in "bc"] + [Service({"d": Handler(0.04)})]
    log = run(world(services, [0.0], cores=(2.0, 1.0)))
    assert ends(log) == [0.03 + 0.02]


def test_a_full_queue_turns_visits_away():
    log = run(world(chain([0.01], workers=1, queue=1), [0.0, 0.001, 0.002, 0.0111]))
    assert log.status.tolist() == [OK, OK, DROPPED, OK]
    assert log.dropped.tolist() == [1]


def test_the_client_waits_for_its_connections():
    client = Client(connections=1, queue=1)
    log = run(world(chain([0.01]), [0.0, 0.001, 0.002], client=client))
    assert log.status.tolist() == [OK, OK, DROPPED]
    assert log.end_s[:2] == pytest.approx([0.01, 0.02])


def test_the_client_gives_up_and_the_request_goes_on_for_nobody():
    client = Client(connections=1, timeout_s=0.015)
    log = run(world(chain([0.02]), [0.0, 0.001, 0.002], client=client))
    # The first frees its connection at 15 ms; the second then shares the CPU with its orphan until 16 ms.
    assert log.status.tolist() == [TIMED_OUT] * 3
    assert ends(log) == [0.015, 0.016, 0.017]
    assert log.orphans == 3
    assert log.visits.tolist() == [3]


def test_zero_arrivals_are_a_quiet_run():
    log = run(world(chain([0.01]), []))
    assert log.hops == log.in_flight == 0
    assert len(log.at_s) == 0


def test_calls_time_out_and_are_tried_again():
    # b takes 20 ms; a gives each attempt 5 ms, twice, 1 ms apart.
    call = {"timeout_s": 0.005, "retries": 1, "backoff_s": 0.001}
    log = run(world(chain([0.0, 0.02], call=call, threads=2.0), [0.0]))
    assert log.status.tolist() == [FAILED]
    assert ends(log) == [0.011]
    assert log.orphans == 2
    assert log.visits.tolist() == [1, 2]


def test_a_timed_out_call_in_line_for_a_connection_is_withdrawn():
    services = [
        Service({"a": Handler(0.0, [[Call("b", pool=0), Call("b", timeout_s=0.005, pool=0)]])}),
        Service({"b": Handler(0.02)}),
    ]
    log = run(world(services, [0.0], pools=[1]))
    assert log.status.tolist() == [FAILED]
    assert ends(log) == [0.02]
    assert log.orphans == 0
    assert log.visits.tolist() == [1, 1]


def test_containers_that_are_down_are_left_out_of_the_turns():
    driver = Driver(world(chain([0.001], replicas=3), np.arange(6) / 100))
    driver.physics.take_down(np.array([1]))
    log = driver.run()
    assert log.visits.tolist() == [3, 0, 3]
    assert log.refused.tolist() == [0, 0, 0]


def test_a_kill_fails_all_visits_and_their_calls_go_on_for_nobody():
    driver = Driver(world(chain([0.02, 0.02]), [0.0, 0.05]))
    driver.to(0.015)
    driver.physics.take_down(np.array([0]))
    log = driver.run()
    assert log.status.tolist() == [FAILED, FAILED]
    assert ends(log) == [0.015, 0.05]
    assert log.refused.tolist() == [1, 0]
    assert log.orphans == 1
    assert log.visits.tolist() == [0, 1]


def test_memory_above_the_limit_stops_the_engine_at_that_instant():
    load = world(chain([0.02], base_bytes=100, request_bytes=10), [0.0, 0.005, 0.006])
    driver = Driver(load, limit=115)
    assert driver.physics.run_until(0.1) == pytest.approx(0.005)
    assert driver.physics.signalled
    assert driver.physics.take_over().tolist() == [0]
    driver.physics.hold(np.array([0]))
    assert driver.physics.run_until(0.05) == 0.05
    assert not driver.physics.signalled
    assert driver.physics.fleet.wanted_bytes[0] == 120
    driver.physics.fleet.limit_bytes[0] = 1000
    driver.physics.release(np.array([0]))
    log = driver.run()
    # 5 ms done of the first at 50 ms; three share: 15 ms of the first last 45 ms, then 5, 5 of two …
    assert ends(log) == [0.095, 0.105, 0.105]
