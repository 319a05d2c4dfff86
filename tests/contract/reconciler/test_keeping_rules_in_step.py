"""What a reconciler and any backend do together.

A change is followed well before the timeout if its message arrived, and within the timeout otherwise. SOON_S
is the time that a kernel and an agent may take for a dump and some rules.
"""

from __future__ import annotations

from collections.abc import Callable

from control.reconciler.reconciler import Reconciler
from tests.contract.reconciler.reconciler_backends import Backend

SOON_S, TIMEOUT_S = 0.3, 1.0

Make = Callable[..., Reconciler]


def learned(kernel: Backend, addresses: int, hosts: int = 3) -> dict[int, int]:
    """Make entries for this number of addresses, behind hosts that have routes."""
    places = {address: 1 + address % hosts for address in range(1, addresses + 1)}
    for host in range(1, hosts + 1):
        kernel.route(host)
    for address, host in places.items():
        kernel.learn(address, host)
    return places


def followed(kernel: Backend, reconciler: Reconciler, addresses: int) -> dict[int, int]:
    """Start the reconciler over entries for this number of addresses, and wait until it is in step."""
    places = learned(kernel, addresses)
    kernel.start(reconciler)
    kernel.until(in_step(kernel, places), SOON_S)
    return places


def in_step(kernel: Backend, places: dict[int, int]) -> Callable[[], bool]:
    return lambda: kernel.rules() == places


def test_what_is_there_at_the_start_gets_its_rules(kernel: Backend, reconciler: Make) -> None:
    followed(kernel, reconciler(), 20)


def test_changes_are_followed_long_before_the_timeout(kernel: Backend, reconciler: Make) -> None:
    places = followed(kernel, reconciler(timeout_s=100.0), 3)

    kernel.learn(4, 1)
    kernel.until(in_step(kernel, places | {4: 1}), SOON_S)
    kernel.learn(4, 2)
    kernel.until(in_step(kernel, places | {4: 2}), SOON_S)
    kernel.withdraw(4, 2)
    kernel.until(in_step(kernel, places), SOON_S)


def test_a_change_of_which_every_message_was_lost_is_missed_for_the_timeout_at_most(
    kernel: Backend, reconciler: Make
) -> None:
    places = followed(kernel, reconciler(timeout_s=TIMEOUT_S), 3)

    kernel.lose_messages(True)
    kernel.learn(1, 3)
    kernel.withdraw(2, places[2])

    kernel.until(in_step(kernel, {1: 3, 3: places[3]}), TIMEOUT_S + SOON_S)


def test_a_failover_changes_no_rule(kernel: Backend, reconciler: Make) -> None:
    followed(kernel, reconciler(), 3)
    before, changes = kernel.handles(), kernel.rule_changes

    kernel.uplink(2, alive=False)
    kernel.pass_time(SOON_S)
    kernel.route(1, present=False)
    kernel.pass_time(2 * TIMEOUT_S)
    kernel.route(1)
    kernel.uplink(2, alive=True)
    kernel.pass_time(SOON_S)

    assert (kernel.handles(), kernel.rule_changes) == (before, changes)


def test_an_entry_waits_for_its_route(kernel: Backend, reconciler: Make) -> None:
    kernel.start(reconciler())
    kernel.learn(1, 1)
    kernel.pass_time(SOON_S)
    assert kernel.rules() == {}

    kernel.route(1)

    kernel.until(in_step(kernel, {1: 1}), SOON_S)


def test_an_address_that_comes_to_this_host_loses_its_rule(kernel: Backend, reconciler: Make) -> None:
    places = followed(kernel, reconciler(), 2)

    kernel.local(1)

    kernel.until(in_step(kernel, {2: places[2]}), SOON_S)


def test_rules_of_others_are_never_touched(kernel: Backend, reconciler: Make) -> None:
    for address, host in ((1, 3), (7, 1)):
        kernel.strangers_rule(address, host)
    theirs = kernel.strangers()
    places = followed(kernel, reconciler(), 3)
    kernel.withdraw(1, places[1])
    kernel.until(lambda: 1 not in kernel.rules(), SOON_S)

    assert kernel.strangers() == theirs


def test_a_successor_adopts_what_is_right_and_removes_the_rest(kernel: Backend, reconciler: Make) -> None:
    places = followed(kernel, reconciler(), 4)
    kernel.crash()
    before = kernel.handles()
    kernel.learn(1, 1 + places[1] % 3)
    kernel.withdraw(2, places[2])
    kernel.learn(9, 1)
    kernel.pass_time(SOON_S)
    assert kernel.rules() == places

    successor = reconciler()
    kernel.start(successor)

    kernel.until(lambda: 2 not in kernel.rules() and 9 in kernel.rules(), SOON_S)
    after = kernel.handles()
    assert {3: after[3], 4: after[4]} == {3: before[3], 4: before[4]}
    assert kernel.rules()[1] != places[1]
    assert successor.status.adopted == 2


def test_a_rule_that_somebody_removed_comes_back(kernel: Backend, reconciler: Make) -> None:
    places = followed(kernel, reconciler(), 2)

    kernel.lose_our_rule(1)
    assert 1 not in kernel.rules()

    kernel.until(in_step(kernel, places), TIMEOUT_S + SOON_S)


def test_a_burst_is_answered_by_a_few_dumps(kernel: Backend, reconciler: Make) -> None:
    kernel.start(reconciler(timeout_s=100.0))
    kernel.pass_time(SOON_S)
    before = kernel.dumps

    places = learned(kernel, 300)

    kernel.until(in_step(kernel, places), 10 * SOON_S)
    kernel.pass_time(SOON_S)
    assert 1 <= kernel.dumps - before <= 20


def test_in_step_it_dumps_once_per_timeout_and_changes_nothing(kernel: Backend, reconciler: Make) -> None:
    followed(kernel, reconciler(timeout_s=TIMEOUT_S), 5)
    kernel.pass_time(SOON_S)
    dumps, changes = kernel.dumps, kernel.rule_changes

    kernel.pass_time(5 * TIMEOUT_S)

    assert 4 <= kernel.dumps - dumps <= 6
    assert kernel.rule_changes == changes


def test_a_set_larger_than_the_kernel_takes_is_limited_and_said(kernel: Backend, reconciler: Make) -> None:
    learned(kernel, 10)
    limited = reconciler(max_rules=6)

    kernel.start(limited)

    kernel.until(lambda: len(kernel.rules()) == 6, SOON_S)
    kernel.pass_time(2 * TIMEOUT_S)
    assert len(kernel.rules()) == 6
    assert (limited.status.wanted, limited.status.refused) == (10, 4)


def test_a_kernel_that_takes_fewer_is_asked_for_one_more_at_a_time(kernel: Backend, reconciler: Make) -> None:
    places = learned(kernel, 40)
    kernel.take_only(25)
    unaware = reconciler()
    kernel.start(unaware)
    kernel.until(lambda: len(kernel.rules()) == 25, SOON_S)
    kernel.pass_time(TIMEOUT_S)
    changes = kernel.rule_changes

    kernel.pass_time(10 * TIMEOUT_S)

    assert kernel.rule_changes - changes <= 30
    assert unaware.status.wanted == 40
    assert unaware.status.refused == 14
    kernel.withdraw(1, places.pop(1))
    kernel.until(lambda: 1 not in kernel.rules() and len(kernel.rules()) == 25, SOON_S + TIMEOUT_S)
    kernel.take_only(100)
    kernel.until(in_step(kernel, places), 3 * TIMEOUT_S)
