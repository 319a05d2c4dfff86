"""Requests from a profile: requests-only and krr, by hand-made profiles."""

from dataclasses import replace

import numpy as np
import pytest

from control.allocator import make
from control.allocator.model import PAGE_BYTES, History
from control.allocator.profiled import cpu_samples, memory_samples
from control.allocator.static import NO_LIMIT_BYTES
from tests.control.allocator.fleets import MIB, application, join, period
from twinbed import ScenarioError


def profiled(usage, memory=None, period_s=1.0, host_cores=8.0):
    """usage: one list of cores per container, by periods."""
    cores = np.array(usage, np.float64).T
    used = np.full(cores.shape, 200 * MIB) if memory is None else np.array(memory, np.int64).T
    joining = join([0] * cores.shape[1], host_cores, np.nanmax(cores, axis=0, initial=0.0), used.max(axis=0))
    return replace(joining, profile=History(cores, used, period_s))


def test_samples_are_means_of_cpu_and_peaks_of_memory_over_whole_intervals():
    gone = np.nan
    profile = profiled(
        [[0, 2, 4, 6, 9], [gone, gone, gone, 1, 1]], [[1, 2, 3, 4, 5], [0, 0, 0, 7, 7]], 0.5
    ).profile
    assert [cores.tolist() for cores in cpu_samples(profile, 1.0)] == [[1.0, 5.0], [1.0]]
    # The last period belongs to no whole interval of CPU; memory that was seen there counts.
    assert [sizes.tolist() for sizes in memory_samples(profile, 1.0)] == [[2.0, 5.0], [7.0]]
    assert cpu_samples(profile, 60.0)[0].tolist() == [4.2]


def test_the_request_is_a_percentile_and_nothing_limits_cpu():
    policy = make("requests-only", {"cpu_percentile": 50, "sample_interval_s": 1})
    decision = policy.start([application(0.1)], profiled([[0.1, 0.3, 0.5], [0, 0, 0], [9, 9, 9]]))
    assert decision.requests.cores.tolist() == [0.3, 0.01, 8.0]  # at least 10 millicores, at most the host
    assert decision.requests.ids is decision.cpu.ids
    assert np.isinf(decision.cpu.quota_cores).all()
    # 1.15 × 200 MiB is 230 MiB, in whole pages.
    assert decision.memory.limit_bytes.tolist() == [230 * MIB] * 3
    assert policy.on_period(period(decision.cpu.ids, [1.0] * 3, [0.0] * 3)).empty


def test_a_container_that_never_ran_requests_the_minimum_and_a_page():
    idle = profiled([[np.nan] * 20], [[0] * 20])
    decision = make("requests-only", {}).start([application()], idle)
    assert decision.requests.cores.tolist() == [0.01]
    assert decision.memory.limit_bytes.tolist() == [PAGE_BYTES]


def test_a_container_that_joins_gets_its_own_request():
    policy = make("requests-only", {"memory_factor": 0})
    policy.start([application()], profiled([[0.5]]))
    decision = policy.on_join(profiled([[0.25], [0.125]]))
    assert decision.requests.cores.tolist() == [0.25, 0.125]
    assert decision.memory.limit_bytes.tolist() == [NO_LIMIT_BYTES] * 2


def test_krr_puts_its_advice_in_force_as_it_shows_it():
    ramp = np.arange(101) / 128
    fleet = profiled([ramp], [[300 * MIB + 1] * 101])
    decision = make("krr", {"sample_interval_s": 1}).start([application()], fleet)
    assert decision.requests.cores.tolist() == [0.743]  # 95 / 128, in whole millicores
    assert np.isinf(decision.cpu.quota_cores).all()
    # 15 % more than the peak, in whole MiB.
    assert decision.memory.limit_bytes.tolist() == [346 * MIB]
    assert decision.memory.limit_bytes[0] % PAGE_BYTES == 0
    limited = make("krr", {"sample_interval_s": 1, "cpu_limits": True}).start([application()], fleet)
    assert (limited.requests.cores.tolist(), limited.cpu.quota_cores.tolist()) == ([0.516], [0.75])


def test_krr_without_an_opinion_says_what_would_give_it_one():
    with pytest.raises(
        ScenarioError, match=r"krr: has no opinion from 2 samples of 75 s, below points_required"
    ):
        make("krr", {}).start([application()], profiled([[0.5] * 150]))
    # The container with the fewest samples decides.
    nowhere = [np.nan] * 3
    few = profiled([[0.5] * 5, [*nowhere, 0.5, 0.5]])
    with pytest.raises(ScenarioError, match="krr: has no opinion from 2 samples of 1 s"):
        make("krr", {"sample_interval_s": 1, "points_required": 3}).start([application()], few)
    krr = make("krr", {"sample_interval_s": 1, "points_required": 2})
    assert krr.start([application()], few).requests.cores.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("policy", ["requests-only", "krr"])
def test_containers_without_a_profile_are_refused(policy):
    with pytest.raises(ScenarioError, match=f"{policy}: the containers have no profile"):
        make(policy, {}).start([application()], join([0], 8.0, [1.0], [MIB]))


@pytest.mark.parametrize(
    ("policy", "peaks", "profile", "history"),
    [
        ("escra", False, False, False),
        ("unlimited", False, False, False),
        ("static", True, False, False),
        ("vpa", True, False, True),
        ("autopilot", True, False, True),
        ("krr", True, True, False),
        ("requests-only", True, True, False),
    ],
)
def test_every_policy_says_what_it_is_given(policy, peaks, profile, history):
    given = make(policy, {}).given
    assert (given.peaks, given.profile, given.history, given.more) == (peaks, profile, history, "")


def test_autothrottle_says_whether_it_has_a_tower():
    assert make("autothrottle", {"slo_p99_s": 0.2}).given.more == "an untrained Tower, SLO 0.2 s"
    assert make("autothrottle", {"slo_p99_s": 0}).given.more == "no Tower"
