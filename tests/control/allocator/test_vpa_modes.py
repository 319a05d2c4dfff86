"""The VPA's update modes: who is resized, who waits, who is evicted, and what replicas inherit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.allocator.histogram import exponential
from control.allocator.vpa import Vpa, admitted
from control.allocator.vpa_resize import fitting
from control.allocator.vpa_settings import VpaSettings
from lab.check.driven_fleet import DrivenFleet
from tests.control.allocator.fleets import MIB, bucket_end
from tests.control.allocator.test_vpa import SHOP

CPU = exponential(0.01, 1.05, 1000.0)
TARGET = bucket_end(CPU, 2.0) * 1.15
"""What is requested for a use of two cores, which is more than they had."""


def crowded(mode, host_cores=4.0, cores=(2.0, 1.9), **settings):
    """Two replicas on one host, of which the first uses all that it may."""
    allocator = Vpa(VpaSettings(limit_ratio=1.0, update_mode=mode, **settings))
    peaks = (list(cores), [400 * MIB] * len(cores))
    apps = [0] * len(cores)
    fleet = DrivenFleet(
        allocator, [SHOP], apps, host_cores=host_cores, peaks=peaks, period_s=1.0, replicas=True
    )
    return fleet, fleet.ids[0]


def busy(fleet, seconds):
    """The first container uses two cores; the others a core, which keeps them within their bounds."""
    for _ in range(seconds):
        fleet.period({id_: (2.0 if id_ == fleet.ids[0] else 1.0, 300 * MIB) for id_ in fleet.ids})


@pytest.mark.parametrize("mode", ["off", "initial"])
def test_these_modes_leave_running_containers_alone(mode):
    fleet, first = crowded(mode, host_cores=8.0)
    busy(fleet, 1800)
    assert (fleet.cores[first], fleet.restarts) == (2.0, [])


@pytest.mark.parametrize(
    ("mode", "restarts"), [("recreate", 1), ("in_place_or_recreate", 0), ("in_place", 0)]
)
def test_with_room_on_the_node_the_modes_differ_in_the_restart_alone(mode, restarts):
    fleet, first = crowded(mode, host_cores=8.0)
    busy(fleet, 1800)
    assert fleet.cores[first] == pytest.approx(TARGET)
    assert len(fleet.restarts) == restarts


def test_a_resize_without_room_is_deferred_and_made_when_there_is_room():
    fleet, first = crowded("in_place")
    busy(fleet, 3600)
    assert (fleet.cores[first], fleet.restarts) == (2.0, [])
    fleet.leave([fleet.ids[1]])
    busy(fleet, 61)
    assert fleet.cores[first] == pytest.approx(TARGET)
    assert fleet.restarts == []


def test_a_deferred_resize_becomes_an_eviction_after_five_minutes_where_that_is_allowed():
    roomy, _ = crowded("recreate", host_cores=8.0)
    fleet, first = crowded("in_place_or_recreate")
    for each in (roomy, fleet):
        busy(each, 1800)
    ((wanted_s, _),) = roomy.restarts
    # The updater looks every minute, and first after more than 300 s.
    assert fleet.restarts == [(wanted_s + 360, first)]
    assert fleet.cores[first] == pytest.approx(TARGET)


@pytest.mark.parametrize(
    ("mode", "cores", "restarts"), [("in_place", 2.0, 0), ("in_place_or_recreate", 2.1, 1)]
)
def test_a_request_beyond_the_node_is_infeasible(mode, cores, restarts):
    # The target of 2.4 cores is more than the node's 2.1.
    fleet, first = crowded(mode, host_cores=2.1, cores=(2.0,))
    busy(fleet, 1500)
    assert fleet.cores[first] == pytest.approx(cores)
    assert len(fleet.restarts) == restarts


def test_what_was_infeasible_is_tried_again_when_less_is_recommended():
    fleet, first = crowded("in_place", host_cores=2.1, cores=(2.0,), cpu_half_life_s=600.0, min_age_s=0.0)
    busy(fleet, 1500)
    assert fleet.cores[first] == 2.0
    for _ in range(7200):
        fleet.period({first: (0.5, 300 * MIB)})
    assert fleet.cores[first] < 1.0
    assert fleet.restarts == []


def test_a_replica_that_joins_gets_what_its_workload_is_recommended():
    for mode, cores in (("off", 4.0), ("initial", TARGET), ("recreate", TARGET)):
        fleet, _ = crowded(mode, host_cores=8.0, cores=(2.0,))
        busy(fleet, 600)
        (new,) = fleet.join([0], ([4.0], [400 * MIB]))
        assert fleet.cores[new] == pytest.approx(cores)


def test_requests_are_told_whenever_they_change():
    fleet, first = crowded("in_place", host_cores=8.0)
    busy(fleet, 1800)
    told = [decision.requests for _, decision in fleet.decisions if decision.requests.ids.size]
    assert told[0].cores.tolist() == [2.0, 1.9]
    assert dict(zip(told[-1].ids.tolist(), told[-1].cores.tolist(), strict=True)) == {
        first: pytest.approx(TARGET)
    }


@pytest.mark.parametrize(
    ("when", "through"),
    [("any", [1, 1, 1, 1]), ("higher", [1, 0, 1, 0]), ("lower", [0, 1, 1, 0]), ("oom", [1, 1, 1, 1])],
)
def test_eviction_requirements_ask_one_resource_for_a_direction(when, through):
    requests = np.ones((2, 4))
    targets = np.array([[2.0, 0.5, 2.0, 1.0], [1.0, 1.0, 0.5, 1.0]])
    assert admitted(requests, targets, when).tolist() == through


def test_evicting_only_after_an_oom_kill_waits_for_one():
    fleet, first = crowded("recreate", host_cores=8.0, evict_when="oom")
    busy(fleet, 1800)
    assert fleet.restarts == []
    fleet.leave([fleet.ids[1]])
    (new,) = fleet.join([0], ([2.0], [400 * MIB]))
    fleet.oom([new])
    busy(fleet, 61)
    assert [id_ for _, id_ in fleet.restarts] == [new]
    assert fleet.cores[first] == 2.0


@given(
    st.lists(st.tuples(st.integers(-1, 3), st.floats(-2, 2)), max_size=12),
    st.lists(st.floats(0, 3), min_size=5),
)
def test_what_fits_never_exceeds_a_node(asked, rooms):
    host = np.array([host for host, _ in asked], np.int64)
    more = np.array([more for _, more in asked], np.float64)
    room = np.array([rooms[each] for each in host])
    fits = fitting(host, room, more)
    assert fits[more <= 0].all()
    for node in set(host.tolist()):
        grown = np.maximum(more[(host == node) & fits], 0).sum()
        assert grown <= rooms[node] + 1e-6


def test_what_fills_a_node_exactly_fits() -> None:
    asked = np.array([40.1, 23.9, 0.1])
    assert fitting(np.zeros(3, np.int64), np.full(3, 64.0), asked).tolist() == [True, True, False]


@pytest.mark.parametrize("seed", range(5))
def test_resizes_never_promise_more_than_the_host_has(seed):
    random = np.random.default_rng(seed)
    fleet, _ = crowded("in_place", host_cores=6.0, cores=(1.0, 1.5, 1.0, 0.5), min_age_s=60.0)
    requests = dict.fromkeys(fleet.ids, 0.0)
    for _ in range(2400):
        fleet.period({id_: (random.gamma(1.0, 2.0), 300 * MIB) for id_ in fleet.ids})
    for _, decision in fleet.decisions:
        told = dict(zip(decision.requests.ids.tolist(), decision.requests.cores.tolist(), strict=True))
        grows = any(cores > requests[id_] for id_, cores in told.items())
        requests |= told
        assert not grows or sum(requests.values()) <= 6.0 + 1e-6
