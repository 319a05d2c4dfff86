"""The request-level twin at its limits: overload, tiny quotas, full memory, broken input."""

from dataclasses import replace

import numpy as np
import pytest

from control.allocator.model import Application
from control.services import Draw
from control.services import RequestStatus as Status
from tests.twin.containers.requests.request_world import (
    QUIET,
    Call,
    Driver,
    Handler,
    Service,
    chain,
    graph_of,
    run,
    world,
)
from twin.containers import cfs
from twin.containers.requests.checks import check_graph
from twin.containers.requests.engine import records
from twin.containers.requests.model import Client
from twin.containers.requests.physics import Requests
from twinbed import InvariantError

FIRST = np.array([0])


def test_records_are_whole_cache_lines_and_containers_an_odd_number_of_them():
    assert records.NODE.itemsize == records.CALL.itemsize == 64
    assert records.CONTAINER.itemsize % 128 == 64
    assert [records.CONTAINER.fields[name][1] for name in ("v", "end0_v", "wanted_bytes")] == [0, 64, 128]


def test_demand_above_all_capacity_saturates_and_drops_what_does_not_fit():
    # 2,000 requests/s of 10 ms on two CPUs: a tenth fits, less what workers wait for their callees.
    at_s = np.arange(20_000) / 2000
    load = world(chain([0.01, 0.01], threads=2.0, workers=64, queue=50), at_s, periods=100)
    driver = Driver(load, quota=2.0)
    log = driver.run()
    counts = np.bincount(log.status, minlength=5)
    assert counts.sum() == 20_000
    assert 1500 < counts[Status.OK] <= 2000
    assert counts[Status.DROPPED] == log.dropped[0] > 17_000
    assert counts[Status.PENDING] <= 114
    assert log.in_flight <= 2 * 114
    assert 15.0 < driver.physics.fleet.done_s[0] <= 20.0 + 1e-6
    assert len(driver.physics.tables["nodes"]) < 2000


def test_more_visits_than_the_table_has_room_for_make_it_grow():
    log = run(world(chain([0.0001, 0.0001], workers=4000), np.zeros(3000)))
    assert (log.status == Status.OK).all()
    assert log.visits.tolist() == [3000, 3000]


def test_a_quota_at_the_kernels_minimum_is_used_to_the_full():
    driver = Driver(world(chain([1.0], threads=4.0), [0.0, 0.0], periods=50), quota=0.01)
    driver.run()
    assert driver.series.throttled.all()
    assert driver.series.usage_cores == pytest.approx(np.full((50, 1), 0.01), abs=1e-6)


def test_burst_carries_what_was_not_used_over_to_later_periods():
    # 20 ms per period; idle for three of them, it may use 20 + 30 once, then 20 again.
    driver = Driver(world(chain([1.0]), [0.3], periods=6), quota=0.2, machine=replace(QUIET, burst_s=0.03))
    driver.run()
    assert driver.series.usage_cores[:, 0] == pytest.approx([0, 0, 0, 0.5, 0.2, 0.2], abs=1e-6)


def test_an_arrival_at_a_periods_end_belongs_to_the_next_period():
    driver = Driver(world(chain([0.01]), [0.1, 0.2]))
    log = driver.run()
    assert driver.series.demand_cores[:4, 0] == pytest.approx([0.0, 0.1, 0.1, 0.0])
    assert log.end_s == pytest.approx([0.11, 0.21])


def test_a_quota_that_is_not_above_zero_is_refused():
    driver = Driver(world(chain([0.01]), []))
    assert driver.write(0.0) == -1
    assert driver.write(float("nan")) == -1


def test_a_write_that_a_later_one_overtook_is_dropped():
    driver = Driver(world(chain([0.01]), []))
    driver.order = 10
    driver.write(2.0)
    driver.order = 5
    assert driver.write(1.0) == 0
    assert driver.physics.fleet.quota[0] == 2.0


# --- memory ------------------------------------------------------------------------------------------


def test_memory_is_what_is_idle_and_cached_and_held():
    load = world(
        chain([0.02], base_bytes=100, request_bytes=10, cache_bytes=5, cache_request_bytes=2),
        [0.0, 0.005, 0.2, 0.3],
    )
    driver = Driver(load)
    seen = []
    for at_s in (0.001, 0.006, 0.1, 0.25, 0.4):
        driver.to(at_s)
        seen.append(int(driver.physics.fleet.wanted_bytes[0]))
    assert seen == [110, 120, 104, 105, 105]


def test_who_is_held_lets_newcomers_wait_and_turns_the_rest_away():
    driver = Driver(world(chain([0.01], queue=2), [0.01, 0.02, 0.03, 0.04]))
    driver.to(0.001)
    driver.physics.hold(FIRST)
    driver.to(0.05)
    driver.physics.release(FIRST)
    log = driver.run()
    assert log.status.tolist() == [Status.OK, Status.OK, Status.DROPPED, Status.DROPPED]
    assert log.end_s[:2] == pytest.approx([0.07, 0.07])


def test_who_is_held_gives_no_answer():
    driver = Driver(world(chain([0.0, 1.0], call={"timeout_s": 0.01}), [0.0]))
    driver.to(0.005)
    driver.physics.hold(FIRST)
    driver.to(0.05)
    assert driver.physics.finish().status[0] == Status.PENDING
    driver.physics.release(FIRST)
    log = driver.run()
    assert log.status.tolist() == [Status.FAILED]
    assert log.end_s == pytest.approx([0.05])


def test_who_was_killed_holds_nothing_and_begins_without_caches():
    load = world(
        chain([0.02], base_bytes=100, request_bytes=10, cache_bytes=50, cache_request_bytes=50), [0.0, 0.05]
    )
    driver = Driver(load)
    driver.to(0.06)
    fleet = driver.physics.fleet
    assert fleet.wanted_bytes[0] == 160
    driver.physics.take_down(FIRST)
    assert fleet.wanted_bytes[0] == 0
    driver.to(0.08)
    driver.physics.release(FIRST)
    assert fleet.wanted_bytes[0] == 100
    log = driver.run()
    assert log.status.tolist() == [Status.OK, Status.FAILED]
    assert log.lost_s == pytest.approx([0.01])


def test_a_container_too_small_for_its_idle_process_says_so_at_once():
    driver = Driver(world(chain([0.02], base_bytes=100), []), limit=99)
    assert driver.physics.run_until(0.1) == 0.0
    assert driver.physics.signalled
    assert driver.physics.take_over().tolist() == [0]
    assert driver.physics.run_until(0.1) == 0.1
    assert driver.physics.end_period(0, 0, driver.report).tolist() == [0]


def test_a_limit_that_was_raised_in_time_is_no_reason_to_stop():
    driver = Driver(world(chain([0.02], base_bytes=100), []), limit=99)
    driver.physics.fleet.limit_bytes[0] = 100
    assert driver.physics.run_until(0.1) == 0.1


def test_who_left_is_gone_and_comes_back_new():
    driver = Driver(world(chain([0.02], base_bytes=100), [0.0, 0.05, 0.15]), quota=1.0)
    driver.to(0.01)
    physics = driver.physics
    physics.dismiss(FIRST)
    fleet = physics.fleet
    assert (fleet.status[0], fleet.quota[0], fleet.limit_bytes[0], fleet.wanted_bytes[0]) == (
        cfs.ABSENT,
        0,
        0,
        0,
    )
    driver.to(0.1)
    physics.end_period(0, 0, driver.report)
    physics.admit(FIRST, np.array([1.0]), np.array([1000]))
    driver.write(1.0)
    driver.to(0.2)
    log = physics.finish()
    assert log.status.tolist() == [Status.FAILED, Status.FAILED, Status.OK]
    assert log.refused.tolist() == [1]


# --- retries and replicas ----------------------------------------------------------------------------


def test_a_call_that_failed_is_made_again_and_may_succeed():
    driver = Driver(world(chain([0.0, 0.005], call={"retries": 2, "backoff_s": 0.01}), [0.0]))
    driver.physics.take_down(np.array([1]))
    driver.to(0.015)
    driver.physics.release(np.array([1]))
    log = driver.run()
    assert log.status.tolist() == [Status.OK]
    assert log.end_s == pytest.approx([0.025])
    assert log.refused.tolist() == [0, 2]


def test_retries_of_a_full_callee_at_once_come_to_an_end():
    services = [
        Service({"a": Handler(0.0, [[Call("b", retries=1000)]])}),
        Service({"b": Handler(2.0)}, workers=1, queue=0),
    ]
    log = run(world(services, [0.0, 0.01]))
    assert log.status.tolist() == [Status.PENDING, Status.FAILED]
    assert log.dropped.tolist() == [0, 1001]


def test_a_call_is_made_with_its_probability():
    log = run(world(chain([0.0, 0.0], call={"probability": 0.3}), np.linspace(0.0, 0.9, 20_000)))
    assert log.visits[1] == pytest.approx(6000, abs=4 * np.sqrt(20_000 * 0.3 * 0.7))


def test_demands_have_the_mean_and_the_spread_that_were_asked_for():
    services = [Service({"a": Handler(0.002, draw=Draw.LOGNORMAL, cv=1.5)}, threads=1000.0, workers=20_000)]
    latency_s = run(world(services, np.linspace(0.0, 0.9, 20_000), periods=100)).latency_s
    assert latency_s.mean() == pytest.approx(0.002, rel=0.05)
    assert latency_s.std() / latency_s.mean() == pytest.approx(1.5, rel=0.1)


# --- requests put in one by one ----------------------------------------------------------------------


def test_watched_requests_stop_time_when_they_end():
    driver = Driver(world(chain([0.02], replicas=2), []), watch=True)
    physics = driver.physics
    assert [physics.inject(0, 1), physics.inject(0, 0)] == [0, 1]
    physics.run_until(0.01)
    assert physics.inject(0, 1) == 2
    assert physics.run_until(0.1) == pytest.approx(0.02)
    assert physics.signalled
    assert physics.take_finished().tolist() == [1]
    assert physics.run_until(0.1) == pytest.approx(0.03)
    assert physics.take_finished().tolist() == [0]
    assert physics.run_until(0.1) == pytest.approx(0.04)
    assert physics.run_until(0.1) == 0.1
    assert not physics.signalled
    assert physics.take_finished().tolist() == [2]
    assert physics.finish().visits.tolist() == [1, 2]


def test_a_request_put_into_a_container_that_is_down_fails_at_once():
    driver = Driver(world(chain([0.02]), []), watch=True)
    driver.physics.take_down(FIRST)
    driver.physics.inject(0, 0)
    assert driver.physics.run_until(0.1) == 0.0
    assert driver.physics.signalled
    assert driver.physics.finish().status.tolist() == [Status.FAILED]


def test_the_log_grows_with_the_requests_that_are_put_in():
    driver = Driver(world(chain([0.001], workers=10_000), [], client=Client(timeout_s=0.5)))
    for _ in range(5000):
        driver.physics.inject(0, 0)
    driver.to(1.0)
    log = driver.physics.finish()
    assert (log.status == Status.TIMED_OUT).all()
    assert log.orphans == 5000
    with pytest.raises(InvariantError, match="injected into container 3"):
        driver.physics.inject(0, 3)


def test_requests_are_put_in_only_where_none_arrive():
    driver = Driver(world(chain([0.001]), [0.0]))
    with pytest.raises(InvariantError, match="1 arrivals"):
        driver.physics.inject(0, 0)


# --- what clients see --------------------------------------------------------------------------------


def test_the_service_level_is_of_each_application_since_last_asked():
    services = [Service({"a": Handler(0.01)}), Service({"b": Handler(0.03)})]
    load = world(services, [0.0, 0.1, 0.2], ["a", "b"], np.array([0, 1, 0]))
    two = tuple(Application(name, 1e6, 1 << 60) for name in "ab")
    driver = Driver(replace(load, applications=two, app=np.array([0, 1])))
    driver.to(0.15)
    level = driver.physics.service_level(0.0)
    assert level.rate_rps == pytest.approx([1 / 0.15, 1 / 0.15])
    assert level.latency_p99_s == pytest.approx([0.01, 0.03])
    assert level.failed.tolist() == [0.0, 0.0]
    assert level.spans is level.mix is None
    driver.to(0.25)
    level = driver.physics.service_level(0.0)
    assert level.rate_rps == pytest.approx([10.0, 0.0])
    assert level.latency_p99_s == pytest.approx([0.01, np.nan], nan_ok=True)


def test_containers_of_one_phase_report_together_in_the_order_of_their_ends():
    phases = {"a": 0.0, "b": 0.04, "c": 0.0}
    services = [Service({name: Handler(0.0)}, phase_s=phase) for name, phase in phases.items()]
    physics = Driver(world(services, [])).physics
    assert physics.ends_s == pytest.approx([0.06, 0.1])
    assert physics.group.tolist() == [1, 0, 1]
    assert physics.first().tolist() == [0, 1, 2]
    assert physics.changes(1) is None


def test_only_those_who_are_to_be_there_at_the_start_are():
    load = world(chain([0.02], replicas=3), [])
    physics = Requests(load, QUIET, np.random.SeedSequence(0), starting=np.array([1]))
    assert physics.first().tolist() == [1]
    assert (physics.fleet.status == cfs.ABSENT).all()


# --- broken input ------------------------------------------------------------------------------------

GRAPH = graph_of(chain([0.01, 0.01, 0.01]), ["a0"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"call_handler": np.array([1, 0])}, "a0 → a1 → a0"),
        ({"call_handler": np.array([1, 1])}, "a1 → a1"),
        ({"call_handler": np.array([1, 9])}, "call_handler points outside"),
        ({"workers": np.array([1, 0, 1])}, "workers must be finite and at least 1"),
        ({"queue": np.array([1, 1])}, "queue has not 3 entries"),
        ({"mean_s": np.array([1.0, -1.0, 1.0])}, "mean_s"),
        ({"mean_s": np.array([1.0, np.nan, 1.0])}, "mean_s"),
        ({"timeout_s": np.array([0.0, 1.0])}, "timeouts above 0"),
        ({"probability": np.array([0.0, 1.0])}, "probabilities"),
        ({"pool": np.array([0, -1])}, "pool points outside"),
        ({"first_stage": np.array([0, 1, 2, 1])}, "first_stage does not divide"),
        ({"first_container": np.array([0, 0, 1, 3])}, "first_container does not divide"),
    ],
)
def test_a_broken_graph_is_our_bug_and_named(change, message):
    with pytest.raises(InvariantError, match=message):
        check_graph(replace(GRAPH, **change))


def test_more_calls_than_are_counted_are_refused():
    caller, callee = Handler(0.01, [[Call("h1")] * 33_000]), Handler(0.01)
    with pytest.raises(InvariantError, match="33000 calls at once, at most 32767"):
        check_graph(graph_of([Service({"h0": caller}), Service({"h1": callee})], ["h0"]))


def test_more_delays_than_are_numbered_are_refused():
    calls = [[Call("h1", timeout_s=1.0 + k)] for k in range(33_000)]
    with pytest.raises(InvariantError, match="different delays, at most 32767"):
        check_graph(graph_of([Service({"h0": Handler(0.01, calls)}), Service({"h1": Handler(0.01)})], ["h0"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phase_s": np.array([0.1])}, "phase_s"),
        ({"threads": np.array([0.0])}, "threads"),
        ({"host_cores": np.array([1.0])}, "host_cores"),
        ({"host": np.array([3])}, "host points outside"),
        ({"period_s": 0.0}, "periods of 0.0 s"),
        ({"client": Client(timeout_s=0.0)}, "timeout_s=0.0"),
    ],
)
def test_a_broken_workload_is_our_bug_and_named(change, message):
    load = world(chain([0.01]), [0.0, 0.1])
    with pytest.raises(InvariantError, match=message):
        Requests(replace(load, **change), QUIET, np.random.SeedSequence(0))


@pytest.mark.parametrize("at_s", [[0.1, 0.0], [-0.1], [np.nan], [np.inf]])
def test_arrivals_ascend_from_zero(at_s):
    with pytest.raises(InvariantError, match="arrivals"):
        Requests(world(chain([0.01]), at_s), QUIET, np.random.SeedSequence(0))
