"""Escra's memory rule in worked arithmetic: of 1000 MiB four containers get 200 each, 200 are the pool."""

import numpy as np
import pytest

from control.allocator.escra import Escra, EscraSettings
from control.allocator.model import PAGE_BYTES, Reason
from control.allocator.ports import shrink
from tests.control.allocator.fleets import MIB, application, join, oom, shrunk
from twinbed import ScenarioError


def started(containers: int = 4, memory: int = 1000 * MIB, **parameters) -> tuple[Escra, list[int]]:
    escra = Escra(EscraSettings(**parameters))
    decision = escra.start([application(memory_bytes=memory)], join([0] * containers))
    return escra, decision.memory.ids.tolist()


def limits(decision) -> dict[int, int]:
    return dict(zip(decision.memory.ids.tolist(), decision.memory.limit_bytes.tolist(), strict=True))


def drain(escra: Escra, container: int, left: int) -> None:
    """Grants `container` all of the pool but `left` bytes."""
    step = escra.settings.grant_bytes
    escra.on_oom(oom([container], [(int(escra.memory.pool_bytes[0]) - left) // step * step]))
    assert escra.memory.pool_bytes[0] == left


def test_initial_limits_are_whole_pages_and_the_rest_is_in_the_pool():
    escra, _ = started(3, memory=100 * PAGE_BYTES + 123)
    # 100 pages · 0.8 / 3 = 26.7 pages
    assert escra.memory.limit_bytes.tolist() == [26 * PAGE_BYTES] * 3
    assert escra.memory.pool_bytes.tolist() == [22 * PAGE_BYTES + 123]


def test_a_container_alone_begins_with_all_that_is_not_withheld():
    assert started(1)[0].memory.limit_bytes.tolist() == [800 * MIB]


def test_a_held_container_is_granted_one_step():
    escra, ids = started()
    decision = escra.on_oom(oom([ids[1]], [1]))
    assert limits(decision) == {ids[1]: 216 * MIB}
    assert decision.memory.reason.tolist() == [Reason.OOM_GRANT]
    assert escra.memory.pool_bytes.tolist() == [184 * MIB]


def test_the_last_bytes_of_the_pool_are_granted_without_a_reclaim():
    # The four containers get 192 MiB each of 960; the pool keeps 192 MiB, which is twelve steps.
    escra, ids = started(memory=960 * MIB)
    decision = escra.on_oom(oom([ids[0]], [192 * MIB]))
    assert limits(decision) == {ids[0]: 384 * MIB}
    assert decision.reclaim.size == 0


def test_a_larger_need_is_granted_in_whole_steps():
    escra, ids = started()
    assert limits(escra.on_oom(oom([ids[0]], [16 * MIB + 1]))) == {ids[0]: 232 * MIB}


def test_a_short_pool_serves_the_smallest_requests_and_asks_to_reclaim_for_the_rest():
    escra, ids = started()
    drain(escra, ids[3], left=40 * MIB)
    decision = escra.on_oom(oom([ids[0], ids[1], ids[2]], [33 * MIB, 5, 17 * MIB]))
    # Steps: 48, 16, 32. 16 fits in 40; 16 + 32 does not.
    assert limits(decision) == {ids[1]: 216 * MIB}
    assert decision.reclaim.tolist() == [0]
    assert decision.kill.size == 0
    assert escra.memory.waiting.tolist() == [ids[0], ids[2]]


def test_reclaimed_bytes_answer_who_waits():
    escra, ids = started()
    drain(escra, ids[3], left=8 * MIB)
    assert escra.on_oom(oom([ids[0]], [1])).reclaim.tolist() == [0]
    decision = escra.on_reclaimed(shrunk([0], [ids[1], ids[2]], [150 * MIB, 120 * MIB]))
    # 8 + 50 + 80 = 138, less 16
    assert limits(decision) == {ids[0]: 216 * MIB}
    assert decision.kill.size == 0
    assert escra.memory.pool_bytes.tolist() == [122 * MIB]
    assert escra.memory.waiting.size == 0


def test_after_a_fruitless_reclaim_what_is_needed_is_granted_in_pages():
    escra, ids = started()
    drain(escra, ids[3], left=8 * MIB)
    escra.on_oom(oom([ids[0]], [5 * MIB + 1]))
    # A whole step is not there: the need, topped up with all that is left.
    assert limits(escra.on_reclaimed(shrunk([0]))) == {ids[0]: 208 * MIB}
    assert escra.memory.pool_bytes.tolist() == [0]


def test_only_who_cannot_be_served_after_a_reclaim_is_left_to_the_oom_killer():
    escra, ids = started()
    drain(escra, ids[3], left=8 * MIB)
    escra.on_oom(oom(ids[:3], [6 * MIB, 9 * MIB, 1 * MIB]))
    decision = escra.on_reclaimed(shrunk([0]))
    # Needs 1 + 6 fit in 8; the last MiB tops up in proportion to what is lacking, 15 and 10.
    assert set(limits(decision)) == {ids[0], ids[2]}
    assert limits(decision)[ids[2]] == (201 * MIB + int(MIB * 15 / 25) // PAGE_BYTES * PAGE_BYTES)
    assert decision.kill.tolist() == [ids[1]]
    # The container stays a member with its limit until the backend reports that it left.
    assert escra.memory.limit_bytes[ids[1]] == 200 * MIB
    assert escra.roster.member(np.array([ids[1]])).all()


def test_a_container_that_waits_is_not_answered_twice():
    escra, ids = started()
    drain(escra, ids[3], left=8 * MIB)
    escra.on_oom(oom([ids[0]], [1]))
    assert escra.on_oom(oom([ids[0]], [1])).empty
    assert len(limits(escra.on_reclaimed(shrunk([0], [ids[1]], [100 * MIB])))) == 1
    assert escra.on_reclaimed(shrunk([0])).empty


def test_a_reclaim_of_another_application_answers_nobody():
    escra = Escra(EscraSettings())
    ids = escra.start([application(name="a"), application(name="b")], join([0, 1])).memory.ids.tolist()
    assert escra.on_oom(oom([ids[0]], [900 * MIB])).reclaim.tolist() == [0]
    assert escra.on_reclaimed(shrunk([1])).empty
    assert escra.on_reclaimed(shrunk([0])).kill.tolist() == [ids[0]]


def test_requests_of_one_application_do_not_use_up_anothers_pool():
    escra = Escra(EscraSettings())
    # 960 MiB each: 768 are the only container's, 192 the pool.
    pools = [application(name=name, memory_bytes=960 * MIB) for name in "ab"]
    ids = escra.start(pools, join([0, 1])).memory.ids.tolist()
    decision = escra.on_oom(oom(ids, [1, 192 * MIB]))
    assert limits(decision) == {ids[0]: 784 * MIB, ids[1]: 960 * MIB}
    assert decision.reclaim.size == 0


def test_a_departed_container_returns_its_memory_and_is_not_answered():
    escra, ids = started()
    drain(escra, ids[3], left=8 * MIB)
    escra.on_oom(oom([ids[0]], [1]))
    escra.on_leave(np.array([ids[0]]))
    assert escra.memory.pool_bytes.tolist() == [208 * MIB]
    assert escra.on_reclaimed(shrunk([0], [ids[0]], [0])).empty
    assert escra.on_oom(oom([ids[0]], [1])).empty


def test_a_report_that_was_overtaken_frees_nothing():
    escra, ids = started()
    escra.on_reclaimed(shrunk([0], [ids[0]], [100 * MIB]))
    escra.on_reclaimed(shrunk([0], [ids[0]], [150 * MIB]))
    assert escra.memory.limit_bytes[ids[0]] == 100 * MIB
    assert escra.memory.pool_bytes.tolist() == [300 * MIB]


def test_a_newcomer_gets_a_fair_share_of_what_is_not_withheld():
    escra, _ = started()
    decision = escra.on_join(join([0]))
    assert decision.memory.limit_bytes.tolist() == [160 * MIB]  # 1000 · 0.8 / 5
    assert decision.reclaim.size == 0


def test_a_newcomer_starts_with_what_a_short_pool_has_and_a_reclaim_is_asked_for():
    escra, ids = started()
    drain(escra, ids[0], left=8 * MIB)
    decision = escra.on_join(join([0, 0]))
    assert decision.memory.limit_bytes.tolist() == [4 * MIB, 4 * MIB]
    assert decision.reclaim.tolist() == [0]


def test_a_newcomer_asks_for_a_reclaim_of_its_own_application_only():
    escra = Escra(EscraSettings())
    ids = escra.start([application(name="a"), application(name="b")], join([0, 1])).memory.ids.tolist()
    pools = escra.memory.pool_bytes.tolist()
    step = escra.settings.grant_bytes
    escra.on_oom(oom(ids, [pool // step * step for pool in pools]))
    assert escra.on_join(join([1])).reclaim.tolist() == [1]


def test_containers_without_a_page_each_are_refused_by_name():
    with pytest.raises(ScenarioError, match="'shop': 3 containers need at least one page"):
        started(3, memory=2 * PAGE_BYTES + 5)
    assert started(3, memory=3 * PAGE_BYTES)[0].memory.limit_bytes.tolist() == [PAGE_BYTES] * 3


def test_the_agents_sweep_every_five_seconds_and_leave_fifty_mib():
    escra, _ = started()
    assert escra.reclaim.interval_s == 5.0
    assert escra.reclaim.margin_bytes == 50 * MIB
    assert escra.traps_oom


def test_a_sweep_lowers_only_limits_above_usage_plus_margin_to_whole_pages():
    ids, lower = shrink(
        np.array([7, 8, 9]),
        np.array([200 * MIB, 60 * MIB, 100 * MIB]),
        np.array([100 * MIB + 1, 10 * MIB, 80 * MIB]),
        50 * MIB,
    )
    assert ids.tolist() == [7]
    assert lower.tolist() == [150 * MIB + PAGE_BYTES]
