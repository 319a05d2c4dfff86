"""Escra's CPU rule in worked arithmetic. Quotas in cores; 1 ms per period is 0.01 core."""

import numpy as np
import pytest

from control.allocator.escra import Escra, EscraSettings
from control.allocator.model import Reason
from tests.control.allocator.fleets import LEAST_CORES, MIB, application, join, period
from twinbed import ScenarioError


def started(
    containers: int, cores: float = 10.0, host_cores: float = 8.0, **parameters
) -> tuple[Escra, list[int]]:
    escra = Escra(EscraSettings(**parameters))
    decision = escra.start([application(cores)], join([0] * containers, host_cores))
    return escra, decision.cpu.ids.tolist()


def quotas(decision) -> dict[int, float]:
    return dict(zip(decision.cpu.ids.tolist(), decision.cpu.quota_cores.tolist(), strict=True))


def test_containers_start_with_equal_shares_of_cpu_and_of_the_memory_that_is_not_withheld():
    escra = Escra(EscraSettings())
    decision = escra.start([application(10.0, 1000 * MIB)], join([0] * 4))
    assert decision.cpu.quota_cores.tolist() == [2.5] * 4  # 10 / 4
    assert decision.memory.limit_bytes.tolist() == [200 * MIB] * 4  # 1000 · 0.8 / 4
    assert set(decision.cpu.reason) == set(decision.memory.reason) == {Reason.INITIAL}
    assert escra.memory.pool_bytes.tolist() == [200 * MIB]


def test_an_initial_share_larger_than_the_host_stays_in_the_pool():
    escra, ids = started(2, cores=10.0, host_cores=4.0)
    assert escra.cpu.allocated_cores.tolist() == [4.0, 4.0]
    assert escra.cpu.pool_cores.tolist() == [2.0]
    assert len(ids) == 2


def test_a_throttled_container_gets_its_throttle_rate_times_upsilon_percent_of_the_pool():
    escra, [a, b] = started(2, cores=10.0, host_cores=3.0)  # 3 + 3 of 10: pool 4
    escra.on_period(period([a, b], [3, 3], [0, 0]))
    escra.on_period(period([a, b], [3, 3], [1.5, 0]))  # mean 0.75: 3 − 0.8 · 0.75 = 2.4, pool 4.6
    # mean_3(th) = 1/3; 2.4 + 1/3 · 0.2 · 4.6 = 2.70667
    decision = escra.on_period(period([a, b], [2.4, 3], [0, 0], [True, False]))
    assert quotas(decision) == {a: pytest.approx(2.4 + 4.6 * 0.2 / 3, abs=1e-6)}
    assert decision.cpu.reason.tolist() == [Reason.THROTTLED]


def test_upsilon_is_a_percentage():
    escra, [a, b] = started(2, cores=10.0, host_cores=3.0, upsilon=35.0)
    escra.on_period(period([a, b], [3, 3], [2.0, 0]))  # 3 − 0.8 · 2 = 1.4; pool 5.6
    # mean_2(th) = 1/2: 1.4 + 0.5 · 0.35 · 5.6 = 2.38
    decision = escra.on_period(period([a, b], [1.4, 3], [0, 0], [True, False]))
    assert quotas(decision) == {a: pytest.approx(2.38)}


def test_unused_runtime_above_gamma_is_cut_by_kappa_times_its_mean():
    escra, [a] = started(1, cores=4.0)
    escra.on_period(period([a], [4.0], [0.1]))  # not above 0.2: unchanged
    # mean(0.1, 1.0) = 0.55; 4 − 0.8 · 0.55 = 3.56
    decision = escra.on_period(period([a], [4.0], [1.0]))
    assert quotas(decision) == {a: pytest.approx(3.56)}
    assert decision.cpu.reason.tolist() == [Reason.UNUSED]


def test_unused_runtime_of_exactly_gamma_changes_nothing():
    escra, [a] = started(1, cores=4.0)
    assert escra.on_period(period([a], [4.0], [0.2])).empty


def test_where_throttled_and_unused_conflict_throttled_wins():
    escra, [a, b] = started(2, cores=8.0)
    escra.on_period(period([a, b], [4, 4], [3.0, 0]))  # pool 2.4, a at 1.6
    decision = escra.on_period(period([a], [1.6], [1.0], [True]))
    # mean_2(th) = 1/2: 1.6 + 0.5 · 0.2 · 2.4 = 1.84
    assert quotas(decision) == {a: pytest.approx(1.84)}


@pytest.mark.parametrize(
    ("guard", "then"),
    [
        # As printed: the mean still holds 1.8, which the first cut has already taken:
        # (1.8 + 0.36) / 2 = 1.08; 0.56 − 0.8 · 1.08 < 0, so the kernel's minimum.
        (False, LEAST_CORES),
        # Guarded: at most 0.8 · 0.36; 0.56 − 0.288 = 0.272, still above the 0.2 in use.
        (True, 0.272),
    ],
)
def test_a_step_from_200_to_20_ms_overshoots_to_the_minimum_only_without_the_guard(guard, then):
    escra, [a] = started(1, cores=2.0, stale_mean_guard=guard)
    first = escra.on_period(period([a], [2.0], [1.8]))
    assert quotas(first) == {a: pytest.approx(0.56)}  # 2 − 0.8 · 1.8
    second = escra.on_period(period([a], [0.56], [0.36]))
    assert quotas(second) == {a: pytest.approx(then)}


def test_raises_that_exceed_the_pool_share_it_in_proportion():
    escra, ids = started(10, cores=10.0, host_cores=8.0, upsilon=50.0)
    escra.on_period(period(ids, [1.0] * 10, [0.5] * 5 + [0.0] * 5))  # 5 · 0.8 · 0.5: pool 2
    # Seven throttled at mean_2(th) = 1/2 ask 0.5 · 0.5 · 2 = 0.5 each: 3.5 of 2, so 2/7 each.
    now = escra.cpu.allocated_cores.tolist()
    decision = escra.on_period(period(ids[:7], now[:7], [0.0] * 7, [True] * 7))
    assert quotas(decision) == {i: pytest.approx(now[i] + 2 / 7, abs=2e-6) for i in range(7)}
    assert 0.0 <= escra.cpu.pool_cores[0] < 1e-5


def test_what_this_step_cuts_is_given_out_in_the_next():
    escra, [a, b] = started(2, cores=4.0)
    assert quotas(escra.on_period(period([a, b], [2, 2], [0, 1.0], [True, False]))) == {b: pytest.approx(1.2)}
    # pool 0.8; mean_2(th) = 1: 2 + 0.2 · 0.8 = 2.16
    assert quotas(escra.on_period(period([a], [2], [0], [True]))) == {a: pytest.approx(2.16)}


def test_a_raise_stops_at_the_host_and_a_cut_at_the_kernels_minimum():
    escra, [a, b] = started(2, cores=20.0, host_cores=4.0)
    assert escra.on_period(period([a], [4], [0], [True])).empty
    decision = escra.on_period(period([b], [4], [4.0]))  # 4 − 3.2 = 0.8
    decision = escra.on_period(period([b], [0.8], [0.8]))
    decision = escra.on_period(period([b], [0.16], [0.9]))  # a report that cannot be: still not below
    assert quotas(decision) == {b: LEAST_CORES}


def test_a_cut_starts_from_the_reported_quota_not_from_the_last_decided_one():
    escra, [a] = started(1, cores=4.0)
    assert quotas(escra.on_period(period([a], [4.0], [3.0]))) == {a: pytest.approx(1.6)}
    # Late telemetry, still of quota 4, but of a busier period: 4 − 0.8 · min(2, 1) = 3.2.
    late = escra.on_period(period([a], [4.0], [1.0]))
    assert quotas(late) == {a: pytest.approx(3.2)}
    assert escra.cpu.pool_cores.tolist() == [pytest.approx(0.8)]


def test_late_telemetry_does_not_raise_a_throttled_container_twice():
    escra, [a, b] = started(2, cores=10.0, host_cores=8.0)
    escra.on_period(period([b], [5], [5]))  # b at 1, pool 4
    assert quotas(escra.on_period(period([a], [5], [0], [True]))) == {a: pytest.approx(5.8)}  # + 0.2 · 4
    assert escra.on_period(period([a], [5], [0], [True])).empty  # 5 + 0.2 · 3.2 is below 5.8


def test_late_telemetry_never_lowers_a_throttled_container():
    escra, [a, b] = started(2, cores=10.0, host_cores=8.0)
    escra.on_period(period([b], [5], [5]))
    escra.on_period(period([a], [5], [0], [True]))
    assert escra.on_period(period([a], [1], [0], [True])).empty
    assert escra.cpu.allocated_cores[0] == pytest.approx(5.8)


def test_a_change_smaller_than_the_stated_share_of_the_quota_is_not_made():
    escra, [a, b] = started(2, cores=10.0, min_change=0.05)
    escra.on_period(period([b], [5], [1.0]))  # pool 0.8
    # 0.2 · 0.8 = 0.16 is 3.2 % of 5 cores
    assert escra.on_period(period([a], [5], [0], [True])).empty
    assert escra.cpu.pool_cores.tolist() == [pytest.approx(0.8)]


def test_applications_do_not_touch_each_others_pools():
    escra = Escra(EscraSettings())
    first = escra.start([application(4.0, name="a"), application(6.0, name="b")], join([0, 1, 1], 8.0))
    assert first.cpu.quota_cores.tolist() == [4.0, 3.0, 3.0]
    decision = escra.on_period(period([0, 1, 2], [4, 3, 3], [2.0, 0, 0], [False, True, True]))
    assert quotas(decision) == {0: pytest.approx(2.4)}
    assert escra.on_period(period([1], [3], [0], [True])).empty
    assert escra.cpu.pool_cores.tolist() == [pytest.approx(1.6), 0.0]


def test_a_newcomer_takes_its_fair_share_from_the_pool_if_it_is_there():
    escra, [a] = started(1, cores=4.0)
    escra.on_period(period([a], [4], [3.0]))  # 1.6; pool 2.4
    decision = escra.on_join(join([0]))
    assert decision.cpu.quota_cores.tolist() == [2.0]  # 4 / 2
    assert decision.cpu.reason.tolist() == [Reason.JOINED]
    assert escra.cpu.pool_cores.tolist() == [pytest.approx(0.4)]


def test_for_a_newcomer_those_above_the_fair_share_make_room_in_proportion():
    escra, [a, b] = started(2, cores=6.0)
    escra.on_period(period([a], [3], [1.0]))  # a 2.2, pool 0.8
    escra.on_period(period([b], [3], [0], [True]))  # b 3 + 0.2 · 0.8 = 3.16, pool 0.64
    decision = escra.on_join(join([0]))
    # Fair is 2, the pool lacks 1.36. a holds 0.2 above, b 1.16: exactly that.
    assert decision.cpu.ids.tolist()[:2] == [a, b]
    np.testing.assert_allclose(decision.cpu.quota_cores, [2.0, 2.0, 2.0], atol=2e-6)
    assert decision.cpu.reason.tolist() == [Reason.MADE_ROOM, Reason.MADE_ROOM, Reason.JOINED]


def test_newcomers_come_last_in_the_order_given():
    escra, [a] = started(1, cores=4.0)
    decision = escra.on_join(join([0, 0], host_cores=[8.0, 0.5]))
    # Fair 4/3, the second host has 0.5: a gives up 4/3 + 0.5 of its 4.
    assert decision.cpu.ids.tolist()[0] == a
    np.testing.assert_allclose(decision.cpu.quota_cores, [4 - 4 / 3 - 0.5, 4 / 3, 0.5], atol=2e-6)
    assert len(decision.memory.ids) == 2
    assert decision.cpu.ids.tolist()[1:] == decision.memory.ids.tolist()


def test_a_newcomer_for_whom_the_kernels_minimum_does_not_fit_is_refused_and_nothing_changes():
    escra, ids = started(10, cores=0.1)  # ten times 1 ms per period: full
    assert escra.cpu.allocated_cores.tolist() == [LEAST_CORES] * 10
    with pytest.raises(ScenarioError, match=r"'shop': 11 containers need at least 0\.11 cores"):
        escra.on_join(join([0]))
    assert escra.roster.living().tolist() == ids
    assert escra.cpu.pool_cores.tolist() == [0.0]


def test_too_many_containers_at_deployment_are_refused():
    with pytest.raises(ScenarioError, match="'shop': 11 containers"):
        started(11, cores=0.1)


def test_leaving_returns_everything_and_late_telemetry_of_the_departed_is_ignored():
    escra, [a, b] = started(2, cores=4.0)
    assert escra.on_leave(np.array([a])).empty
    assert escra.cpu.pool_cores.tolist() == [2.0]
    assert escra.on_period(period([a], [2], [1.5])).empty
    [c] = escra.on_join(join([0])).cpu.ids.tolist()
    assert escra.on_period(period([a], [2], [1.5])).empty  # its slot is c's now
    assert c != a
    # c's window starts empty: mean over its one report, 2 − 0.8 · 1 = 1.2
    assert quotas(escra.on_period(period([b, c], [2, 2], [0, 1]))) == {c: pytest.approx(1.2)}


def test_who_leaves_returns_its_own_quota_and_no_more():
    escra, [a, _, c] = started(3, cores=9.0)
    escra.on_period(period([a], [3], [2.5]))  # 3 − 0.8 · 2.5 = 1: pool 2
    escra.on_leave(np.array([c]))
    assert escra.cpu.pool_cores.tolist() == [5.0]
    escra.on_leave(np.array([a]))
    assert escra.cpu.pool_cores.tolist() == [6.0]
    assert escra.cpu.allocated_cores.tolist() == [0.0, 3.0, 0.0]


def test_another_period_length_is_another_minimum():
    escra, [a] = started(1, cores=1.0)
    decision = escra.on_period(period([a], [1.0], [0.99], period_s=0.05))
    decision = escra.on_period(period([a], [0.02], [0.9], period_s=0.05))
    assert quotas(decision) == {a: 0.02}  # 1 ms of 50


def test_a_shorter_period_divides_an_application_anew_whose_members_fall_below_its_minimum():
    escra, ids = started(4, cores=0.1)  # 0.025 each
    quota = dict.fromkeys(ids, 0.025)
    quota |= quotas(escra.on_period(period([ids[0]], [0.025], [0.24])))
    assert quota[ids[0]] == LEAST_CORES
    decision = escra.on_period(period(ids, list(quota.values()), [0] * 4, period_s=0.05))
    assert quotas(decision) == dict.fromkeys(ids, 0.025)
    with pytest.raises(ScenarioError, match=r"4 containers need at least 0\.4 cores"):
        escra.on_period(period(ids, [0.025] * 4, [0] * 4, period_s=0.01))


def test_starting_again_forgets_the_earlier_fleet():
    escra, _ = started(3)
    assert escra.start([application(5.0)], join([0])).cpu.quota_cores.tolist() == [5.0]
    assert escra.roster.size == 1
