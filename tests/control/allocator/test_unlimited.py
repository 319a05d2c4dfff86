import numpy as np

from control.allocator.model import Reason
from control.allocator.static import NO_LIMIT_BYTES, Unlimited, UnlimitedSettings
from tests.control.allocator.fleets import application, join, oom, period, shrunk


def unlimited():
    return Unlimited(UnlimitedSettings())


def test_nobody_has_a_limit_whatever_the_applications_are():
    decision = unlimited().start([application(0.001, 1)], join([0, 0]))
    assert decision.cpu.quota_cores.tolist() == [np.inf, np.inf]
    assert decision.memory.limit_bytes.tolist() == [2**63 - 1] * 2
    assert set(decision.cpu.reason) == set(decision.memory.reason) == {Reason.INITIAL}


def test_nothing_is_decided_afterwards():
    policy = unlimited()
    ids = policy.start([application()], join([0])).cpu.ids
    assert policy.on_period(period(ids, [1.0], [1.0])).empty
    assert policy.on_oom(oom(ids, [1])).empty
    assert policy.on_reclaimed(shrunk([0])).empty
    assert policy.on_leave(ids).empty
    assert not policy.traps_oom
    assert policy.reclaim is None


def test_a_newcomer_in_a_departed_ones_place_has_an_id_of_its_own_and_no_limit():
    policy = unlimited()
    ids = policy.start([application()], join([0, 0])).cpu.ids
    policy.on_leave(ids[:1])
    joined = policy.on_join(join([0]))
    assert joined.cpu.ids[0] not in ids
    assert joined.cpu.quota_cores.tolist() == [np.inf]
    assert joined.memory.limit_bytes.tolist() == [NO_LIMIT_BYTES]
    assert joined.cpu.reason.tolist() == [Reason.JOINED]
