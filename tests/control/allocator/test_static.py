import numpy as np
import pytest

from control.allocator.model import PAGE_BYTES, Reason
from control.allocator.static import NO_LIMIT_BYTES, Static, StaticSettings, Unlimited, UnlimitedSettings
from tests.control.allocator.fleets import MIB, application, join, oom, period, shrunk
from twinbed import ScenarioError


def profiled(cores, memory, apps=None, host_cores=8.0):
    return join(apps or [0] * len(cores), host_cores, peak_cores=cores, peak_bytes=memory)


def test_limits_are_the_factor_times_the_peak_in_whole_pages():
    decision = Static(StaticSettings(factor=1.5)).start(
        [application(10.0)], profiled([1.0, 2.0], [100 * MIB, PAGE_BYTES + 1])
    )
    assert decision.cpu.quota_cores.tolist() == [1.5, 3.0]
    # 1.5 · 4097 = 6145.5: two pages
    assert decision.memory.limit_bytes.tolist() == [150 * MIB, 2 * PAGE_BYTES]
    assert set(decision.cpu.reason) == set(decision.memory.reason) == {Reason.INITIAL}


def test_quotas_stay_between_the_kernels_minimum_and_the_host():
    decision = Static(StaticSettings()).start(
        [application(10.0)], profiled([0.0, 4.0], [0, 0], host_cores=4.0)
    )
    assert decision.cpu.quota_cores.tolist() == [0.01, 4.0]
    assert decision.memory.limit_bytes.tolist() == [PAGE_BYTES] * 2


@pytest.mark.parametrize("policy", [Static(StaticSettings()), Unlimited(UnlimitedSettings())])
def test_nothing_is_decided_afterwards(policy):
    ids = policy.start([application()], profiled([1.0], [MIB])).cpu.ids
    assert policy.on_period(period(ids, [1.5], [1.4])).empty
    assert policy.on_oom(oom(ids, [1])).empty
    assert policy.on_reclaimed(shrunk([0])).empty
    assert policy.on_leave(ids).empty
    assert not policy.traps_oom
    assert policy.reclaim is None


@pytest.mark.parametrize(
    ("fleet", "missing"),
    [(join([0]), "CPU"), (join([0], peak_cores=[1.0]), "memory"), (join([0], peak_bytes=[1]), "CPU")],
)
def test_containers_that_nobody_profiled_are_refused(fleet, missing):
    with pytest.raises(ScenarioError, match=f"static: the containers have no {missing} profile"):
        Static(StaticSettings()).start([application()], fleet)


@pytest.mark.parametrize(
    ("limits", "peaks", "problem"),
    [
        ((4.0,), [1.0, 2.0], r"'shop': 1\.5 × the profiled peaks sum to 4\.5 cores.* limit of 4"),
        ((4.0, 2 * MIB), [1.0, 1.0], "sum to 3145728 bytes of memory"),
    ],
)
def test_a_plan_above_a_limit_is_refused_with_its_sum(limits, peaks, problem):
    with pytest.raises(ScenarioError, match=problem):
        Static(StaticSettings()).start([application(*limits)], profiled(peaks, [MIB, MIB]))


def test_a_plan_that_uses_the_limit_up_fits_whatever_the_order_of_adding():
    peaks = [0.1] * 10 + [0.2, 0.7]
    omega = 1.5 * float(np.sum(peaks[::-1]))
    Static(StaticSettings()).start([application(omega)], profiled(peaks, [MIB] * 12))


def test_a_newcomer_needs_the_place_that_the_departed_left():
    static = Static(StaticSettings())
    first = static.start([application(4.0)], profiled([1.0, 1.0], [MIB, MIB]))
    newcomer = profiled([1.5], [MIB])
    with pytest.raises(ScenarioError, match=r"5\.25 cores"):
        static.on_join(newcomer)
    static.on_leave(first.cpu.ids[:1])
    decision = static.on_join(newcomer)
    assert decision.cpu.quota_cores.tolist() == [2.25]
    assert decision.cpu.reason.tolist() == [Reason.JOINED]
    assert decision.cpu.ids[0] not in first.cpu.ids


def test_unlimited_gives_no_limits_whatever_the_applications_are():
    decision = Unlimited(UnlimitedSettings()).start([application(0.001, 1)], join([0, 0]))
    assert decision.cpu.quota_cores.tolist() == [np.inf, np.inf]
    assert decision.memory.limit_bytes.tolist() == [2**63 - 1] * 2
    assert set(decision.cpu.reason) == set(decision.memory.reason) == {Reason.INITIAL}


def test_an_unlimited_newcomer_in_a_departed_ones_place_has_an_id_of_its_own():
    policy = Unlimited(UnlimitedSettings())
    ids = policy.start([application()], join([0, 0])).cpu.ids
    policy.on_leave(ids[:1])
    joined = policy.on_join(join([0]))
    assert joined.cpu.ids[0] not in ids
    assert joined.cpu.quota_cores.tolist() == [np.inf]
    assert joined.memory.limit_bytes.tolist() == [NO_LIMIT_BYTES]
    assert joined.cpu.reason.tolist() == [Reason.JOINED]


def test_with_overcommit_limits_may_add_up_to_more_than_omega():
    policy = Static(StaticSettings(factor=1.5, overcommit=True))
    first = policy.start([application(4.0)], profiled([2.0, 4.0], [MIB, MIB], host_cores=20.0))
    assert list(first.cpu.quota_cores) == [3.0, 6.0]
