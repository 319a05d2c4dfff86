"""The smallest change from the installed rules to those that the tables call for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.reconciler.diff import Plan, plan
from control.reconciler.model import NO_RULES, ForwardingState, Representors, Routes, Rules
from control.reconciler.ports import Reason
from tests.control.reconciler.forwarding_tables import (
    BRIDGE,
    OWNER,
    REPRESENTORS,
    TUNNEL,
    VNI,
    called_for,
    mac,
    random_tables,
    rules,
    tables,
    vtep,
)
from twinbed import InvariantError, ScenarioError

FIRST_ACTION = 1 << 16


def planned(state, installed=NO_RULES, *, representors=REPRESENTORS, max_rules=10**6) -> Plan:
    return plan(state, installed, representors, owner=OWNER, max_rules=max_rules, first_action=FIRST_ACTION)


def carried_out(result: Plan, installed: Rules) -> Rules:
    """Return the rules that are installed after the plan. New rules get handles that no rule has."""
    gone = set(result.delete.rules.handle.tolist()) | set(result.replace.rules.handle.tolist())
    stay = installed.take(np.array([handle not in gone for handle in installed.handle.tolist()], np.bool_))
    parts = (stay, result.replace.rules, result.add.rules)
    after = Rules(*(np.concatenate([getattr(part, name) for part in parts]) for name in Rules.__slots__))
    fresh = int(installed.handle.max(initial=0)) + 1 + np.arange(len(result.add.reasons))
    after.handle[after.handle == 0] = fresh
    return after


def led_to(installed: Rules, cookie: int = OWNER) -> dict[tuple[int, int], int]:
    """(device, mac) → VTEP of the owner's rules; there must be one rule for each."""
    own = installed.take(installed.cookie == cookie)
    pairs = list(zip(own.device.tolist(), own.mac.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return dict(zip(pairs, own.remote.tolist(), strict=True))


def nothing(result: Plan) -> bool:
    return not any(len(change.reasons) for change in (result.delete, result.replace, result.add))


def test_every_reachable_entry_gets_a_rule_on_every_representor_of_its_tenant():
    representors = Representors(np.array([10, 11, 12]), np.array([VNI, 200, VNI]))
    state = tables([(mac(1), 1), (mac(2), 2, 200), (mac(3), 3, 999)])

    result = planned(state, representors=representors)

    assert led_to(result.add.rules) == {(10, mac(1)): vtep(1), (12, mac(1)): vtep(1), (11, mac(2)): vtep(2)}
    assert set(result.add.reasons.tolist()) == {Reason.NEW_ENTRY}


def test_rules_to_one_host_in_one_tenant_share_one_action():
    result = planned(
        tables([(mac(1), 1), (mac(2), 1), (mac(3), 2)]), rules((mac(9), 7, {"action": FIRST_ACTION}))
    )

    one, same, other = result.add.rules.action.tolist()
    assert one == same != other
    # The action of a rule that is still there cannot be given another meaning.
    assert FIRST_ACTION not in (one, other)


def test_an_action_that_is_there_is_used():
    result = planned(tables([(mac(1), 1), (mac(2), 1)]), rules((mac(1), 1, {"action": 77})))

    assert result.add.rules.action.tolist() == [77]


def test_an_entry_that_moved_is_replaced_in_place():
    result = planned(tables([(mac(1), 2)]), rules((mac(1), 1, {"handle": 5})))

    assert result.replace.rules.handle.tolist() == [5]
    assert result.replace.rules.remote.tolist() == [vtep(2)]
    assert result.replace.reasons.tolist() == [Reason.MOVED]
    assert not result.add.reasons.size
    assert not result.delete.reasons.size


def test_a_failover_changes_no_rule():
    installed = rules((mac(1), 1), (mac(2), 2))
    entries = [(mac(1), 1), (mac(2), 2)]

    assert nothing(planned(tables(entries, dead=[2]), installed))
    without_route = planned(tables(entries, routed=[1]), installed)
    assert nothing(without_route)
    assert without_route.unreachable == 1


def test_no_rule_is_made_for_a_vtep_without_a_route_or_a_living_next_hop():
    assert nothing(planned(tables([(mac(1), 1)], routed=[])))
    assert nothing(planned(tables([(mac(1), 1)], dead=[2, 3])))


def test_an_entry_that_moved_out_of_reach_loses_the_rule_to_its_old_place():
    result = planned(tables([(mac(1), 2)], routed=[1]), rules((mac(1), 1)))

    assert result.delete.reasons.tolist() == [Reason.MOVED_OUT_OF_REACH]


def test_the_longest_prefix_decides_even_if_its_next_hop_is_dead():
    state = tables([(mac(1), 1)], dead=[2])
    default_and_host = Routes(
        np.array([0, vtep(1)]), np.array([0, 32]), np.array([0, (192 << 24) | 2]), np.array([3, 2])
    )
    dead = ForwardingState(state.bridge, state.evpn, default_and_host, state.neighbours)
    default = ForwardingState(
        state.bridge, state.evpn, Routes(*(np.array([value]) for value in (0, 0, 0, 3))), state.neighbours
    )

    assert nothing(planned(dead))
    assert len(planned(default).add.reasons) == 1


@pytest.mark.parametrize("local", [(mac(1), 10, 0), (mac(1), TUNNEL, 1), (mac(1), BRIDGE, 1)])
def test_an_address_on_this_host_has_no_rule(local):
    result = planned(tables([(mac(1), 1)], local=[local]), rules((mac(1), 1)))

    assert result.delete.reasons.tolist() == [Reason.ON_THIS_HOST]
    assert not result.add.reasons.size


def test_an_address_at_another_tenants_representor_is_not_here():
    representors = Representors(np.array([10, 11]), np.array([VNI, 200]))

    result = planned(tables([(mac(1), 1)], local=[(mac(1), 11, 0)]), representors=representors)

    assert led_to(result.add.rules) == {(10, mac(1)): vtep(1)}


def test_flooding_and_group_entries_are_no_rules():
    assert nothing(planned(tables([(0, 1), (0xFFFF_FFFF_FFFF, 1), (0x0100_5E00_0001, 1)])))


def test_of_a_duplicated_address_the_installed_place_stays_else_the_lowest():
    entries = [(mac(1), 3), (mac(1), 2), (mac(1), 2)]

    fresh = planned(tables(entries))
    assert fresh.add.rules.remote.tolist() == [vtep(2)]
    assert fresh.duplicated == 1
    assert nothing(planned(tables(entries), rules((mac(1), 3))))


def test_one_vni_on_two_vxlan_devices_is_one_tenant():
    state = tables([(mac(1), 1), (mac(1), 1)])
    state.evpn.ifindex[1] += 1

    result = planned(state)

    assert led_to(result.add.rules) == {(10, mac(1)): vtep(1)}
    assert result.duplicated == 0


def test_of_a_duplicated_address_a_reachable_place_is_taken():
    result = planned(tables([(mac(1), 2), (mac(1), 3)], routed=[3]), rules((mac(1), 2)))

    assert result.replace.rules.remote.tolist() == [vtep(3)]


def test_a_predecessors_rules_are_adopted_and_its_second_ones_removed():
    installed = rules((mac(1), 1), (mac(1), 1), (mac(2), 2), (mac(3), 3, {"device": 99}))

    result = planned(tables([(mac(1), 1)]), installed)

    deleted = dict(zip(result.delete.rules.handle.tolist(), result.delete.reasons.tolist(), strict=True))
    assert deleted == {2: Reason.DUPLICATE, 3: Reason.WITHDRAWN, 4: Reason.WITHDRAWN}
    assert not result.add.reasons.size


def test_beside_a_single_rule_a_higher_address_gets_its_own():
    result = planned(tables([(mac(1), 1), (mac(2), 1)]), rules((mac(1), 1)))

    assert result.add.rules.mac.tolist() == [mac(2)]
    assert not result.delete.reasons.size


def test_a_rules_handle_is_that_of_its_device_and_address():
    installed = rules((mac(1), 1, {"handle": 5}), (mac(1), 1, {"device": 11, "handle": 6}))
    asked = rules((mac(1), 2, {"device": 11}), (mac(2), 1), (mac(1), 1))

    assert installed.handles_for(asked).tolist() == [6, 0, 5]


def test_of_two_rules_for_an_address_the_older_one_stays():
    installed = rules((mac(1), 1, {"handle": 9}), (mac(1), 1, {"handle": 4}))

    assert planned(tables([(mac(1), 1)]), installed).delete.rules.handle.tolist() == [9]


def test_a_moved_rule_for_which_there_is_no_room_is_deleted_for_that_reason():
    installed = rules(*((mac(number), 1) for number in range(3)))

    result = planned(tables([(mac(number), 2) for number in range(3)]), installed, max_rules=2)

    assert result.delete.reasons.tolist() == [Reason.NO_ROOM]


def test_foreign_rules_are_neither_touched_nor_used():
    foreign = rules((mac(1), 9, {"cookie": 1, "action": FIRST_ACTION}), (mac(5), 5, {"cookie": 2}))

    result = planned(tables([(mac(1), 1)]), foreign)

    assert not result.delete.reasons.size
    assert not result.replace.reasons.size
    assert led_to(result.add.rules) == {(10, mac(1)): vtep(1)}
    assert result.add.rules.action.tolist() == [FIRST_ACTION + 1]


def test_more_rules_than_the_kernel_takes_are_refused_and_counted():
    entries = [(mac(number), 1) for number in range(5)]
    installed = rules((mac(4), 1), (mac(9), 9, {"cookie": 1}))

    result = planned(tables(entries), installed, max_rules=4)

    # Room for three besides the foreign one: the installed one stays, then the lowest.
    assert result.add.rules.mac.tolist() == [mac(0), mac(1)]
    assert result.refused == 2
    assert not result.delete.reasons.size
    assert nothing(planned(tables(entries), carried_out(result, installed), max_rules=4))
    smaller = planned(tables(entries), carried_out(result, installed), max_rules=2)
    assert smaller.delete.reasons.tolist() == [Reason.NO_ROOM] * 2


@pytest.mark.parametrize(
    ("device", "vni", "message"),
    [
        ([10, 10], [1, 2], "device 10 is given twice"),
        ([10], [0], "VNI 0 is outside"),
        ([10], [1 << 24], "VNI 16777216 is outside"),
    ],
)
def test_representors_that_contradict_themselves_are_refused(device, vni, message):
    with pytest.raises(ScenarioError, match=message):
        Representors(np.array(device), np.array(vni))


def test_columns_of_different_lengths_are_a_bug():
    with pytest.raises(InvariantError, match="Routes: columns of different lengths"):
        Routes(np.zeros(1, int), np.zeros(2, int), np.zeros(1, int), np.zeros(1, int))


def test_many_entries_of_several_tenants_are_what_plain_python_says():
    representors = Representors(np.array([10, 11, 12]), np.array([VNI, 200, VNI]))
    state = random_tables(500, 20, vnis=(VNI, 200, 300))

    result = planned(state, representors=representors)

    wanted = called_for(state, representors)
    assert {key: {remote} for key, remote in led_to(result.add.rules).items()} == wanted


addresses = st.integers(0, 5).map(mac) | st.just(0) | st.just(0x0100_5E00_0001)
hosts = st.integers(1, 3)
vnis = st.sampled_from([VNI, 200, 300])
some_tables = st.builds(
    tables,
    st.lists(st.tuples(addresses, hosts, vnis), max_size=8),
    local=st.lists(
        st.tuples(addresses, st.sampled_from([10, 11, BRIDGE, TUNNEL]), st.integers(0, 1)), max_size=2
    ),
    routed=st.sets(hosts),
    dead=st.sets(st.sampled_from([2, 3])),
)
some_rules = st.lists(
    st.tuples(
        addresses,
        hosts,
        st.fixed_dictionaries(
            {
                "device": st.sampled_from([10, 11, 99]),
                "vni": vnis,
                "cookie": st.sampled_from([OWNER, OWNER, 1]),
            }
        ),
    ),
    max_size=8,
).map(lambda rows: rules(*rows))


# A busy machine is slow and that is no finding.
@pytest.mark.slow
@given(some_tables, some_rules, st.integers(0, 12))
def test_any_plan_is_right_least_and_final(state, installed, max_rules):
    representors = Representors(np.array([10, 11]), np.array([VNI, 200]))
    result = planned(state, installed, representors=representors, max_rules=max_rules)
    after = carried_out(result, installed)

    wanted, has = called_for(state, representors), led_to(after)
    every_route = ForwardingState(state.bridge, state.evpn, _everywhere(), state.neighbours)
    known = called_for(every_route, representors)
    # Nothing wrong is there, and nothing right is missing but for want of room.
    assert all(remote in wanted[key] for key, remote in has.items() if key in wanted)
    assert all(remote in known.get(key, ()) for key, remote in has.items())
    missing = set(wanted) - set(has)
    assert len(missing) <= result.refused
    assert not missing or len(after.mac) >= max_rules
    # Foreign rules are as they were, and right ones of ours were left alone.
    foreign = installed.take(installed.cookie != OWNER)
    assert set(foreign.handle.tolist()) <= set(after.take(after.cookie != OWNER).handle.tolist())
    replaced_rightly = set(result.replace.rules.handle.tolist())
    assert all(
        remote not in wanted.get((device, address), ()) or len(wanted[device, address]) > 1 or vni_wrong
        for device, address, remote, handle, vni_wrong in zip(
            installed.device.tolist(),
            installed.mac.tolist(),
            installed.remote.tolist(),
            installed.handle.tolist(),
            (installed.vni != np.where(installed.device == 10, VNI, 200)).tolist(),
            strict=True,
        )
        if handle in replaced_rightly
    )
    assert nothing(planned(state, after, representors=representors, max_rules=max_rules))


def _everywhere() -> Routes:
    """A default route that needs no gateway."""
    return Routes(*(np.array([value]) for value in (0, 0, 0, 2)))
