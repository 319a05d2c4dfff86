"""The reconciler's state machine, event by event. test_diff.py checks which rules are right."""

from __future__ import annotations

import numpy as np
import pytest

from control.reconciler.model import NO_RULES, Table
from control.reconciler.ports import (
    ALL_TABLES,
    Add,
    ArmTimer,
    Changed,
    Delete,
    Dump,
    Dumped,
    DumpFailed,
    Installed,
    InstallFailed,
    Overflowed,
    Reason,
    Replace,
    Started,
    Timer,
    TimerFired,
)
from control.reconciler.reconciler import Reconciler, State
from control.reconciler.settings import ReconcilerSettings
from tests.control.reconciler.forwarding_tables import OWNER, REPRESENTORS, mac, rules, tables
from twinbed import InvariantError, ScenarioError

EVPN = frozenset({Table.EVPN_FDB})
SETTINGS = {"owner": OWNER, "timeout_s": 1.0, "dump_interval_s": 0.02, "answer_s": 5.0, "retry_s": 0.05}


def reconciler(**settings) -> Reconciler:
    return Reconciler(REPRESENTORS, ReconcilerSettings(**{**SETTINGS, **settings}))


def asked(instructions, kind):
    """The only instruction of that kind."""
    (only,) = [instruction for instruction in instructions if isinstance(instruction, kind)]
    return only


def timers(instructions) -> dict[Timer, float]:
    return {armed.timer: armed.after_s for armed in instructions if isinstance(armed, ArmTimer)}


def started(entries=(), installed=NO_RULES, **settings) -> tuple[Reconciler, list]:
    """A reconciler that got its first dump at 0 s, and what it then asked for."""
    machine = reconciler(**settings)
    dump = asked(machine.handle(Started(0.0)), Dump)
    return machine, machine.handle(Dumped(0.0, dump.request, tables(entries), installed))


def idle(**settings) -> Reconciler:
    machine, instructions = started(**settings)
    assert instructions == []
    assert machine.state is State.IDLE
    return machine


def test_the_first_thing_is_a_dump_of_everything():
    instructions = reconciler().handle(Started(0.0))

    dump = asked(instructions, Dump)
    assert dump.tables == ALL_TABLES
    assert dump.cause.reason is Reason.STARTED
    assert timers(instructions) == {Timer.PERIODIC: 1.0, Timer.ANSWER: 5.0}


def test_what_cannot_be_is_refused_and_changes_nothing():
    machine = reconciler()
    with pytest.raises(InvariantError, match=r"Changed.* cannot be in state new"):
        machine.handle(Changed(0.0, EVPN))
    assert machine.state is State.NEW

    machine = idle()
    with pytest.raises(InvariantError, match=r"Started.* cannot be in state idle"):
        machine.handle(Started(1.0))
    assert machine.state is State.IDLE


def test_a_message_asks_for_a_dump_at_once():
    instructions = idle().handle(Changed(0.5, EVPN))

    assert asked(instructions, Dump).cause.reason is Reason.CHANGED
    assert not any(isinstance(change, Add) for change in instructions)


def test_many_messages_are_one_more_dump():
    machine = idle()
    dump = asked(machine.handle(Changed(0.5, EVPN)), Dump)
    for number in range(1000):
        assert machine.handle(Changed(0.5 + number * 1e-5, EVPN)) == []

    pause = machine.handle(Dumped(0.511, dump.request, tables(), NO_RULES))

    assert timers(pause) == {Timer.PAUSE: pytest.approx(0.009)}
    assert machine.handle(Changed(0.515, EVPN)) == []
    again = machine.handle(TimerFired(0.52, Timer.PAUSE))
    assert asked(again, Dump).cause.at_s == 0.5
    assert machine.handle(Dumped(0.53, asked(again, Dump).request, tables(), NO_RULES)) == []
    assert machine.state is State.IDLE
    assert machine.status.dumps == 3


def test_lost_messages_are_news_too():
    dump = asked(idle().handle(Overflowed(0.5)), Dump)

    assert dump.cause.reason is Reason.OVERFLOWED


def test_a_dump_is_due_after_the_timeout_without_any_message():
    machine = idle()

    instructions = machine.handle(TimerFired(1.0, Timer.PERIODIC))

    assert asked(instructions, Dump).cause.reason is Reason.PERIODIC
    assert timers(instructions)[Timer.PERIODIC] == 1.0


def test_deletes_come_first_then_replaces_then_adds_each_with_its_cause():
    installed = rules((mac(1), 1), (mac(2), 1), (mac(3), 3))
    machine, instructions = started([(mac(2), 2), (mac(3), 3), (mac(4), 4)], installed)
    seen = []
    for _ in range(3):
        change = asked(instructions, Add | Replace | Delete)
        seen.append((type(change), change.rules.mac.tolist(), change.reasons.tolist()))
        assert change.cause.reason is Reason.STARTED
        assert change.cause.request == 1
        instructions = machine.handle(Installed(0.1, change.request))

    assert seen == [
        (Delete, [mac(1)], [Reason.WITHDRAWN]),
        (Replace, [mac(2)], [Reason.MOVED]),
        (Add, [mac(4)], [Reason.NEW_ENTRY]),
    ]
    assert instructions == []
    status = machine.status
    assert (status.adopted, status.added, status.replaced, status.deleted) == (1, 1, 1, 1)


def test_a_long_plan_is_asked_for_in_batches_and_dropped_for_news():
    machine, instructions = started([(mac(number), 1) for number in range(5)], batch_rules=2)
    first = asked(instructions, Add)
    after = machine.handle(Installed(0.1, first.request))
    second = asked(after, Add)
    assert timers(after) == {Timer.ANSWER: 5.0}
    assert first.rules.mac.tolist() == [mac(0), mac(1)]
    assert second.rules.mac.tolist() == [mac(2), mac(3)]

    assert machine.handle(Changed(0.15, EVPN)) == []
    after = machine.handle(Installed(0.2, second.request))

    assert asked(after, Dump).cause.reason is Reason.CHANGED


def test_a_failed_rule_is_tried_again_after_pauses_that_double_to_a_bound():
    entries = [(mac(1), 1), (mac(2), 2)]
    machine, instructions = started(entries, retry_s=0.05, retry_max_s=0.15, timeout_s=100.0)
    at_s, pauses = 0.0, []
    for _ in range(4):
        add = asked(instructions, Add)
        assert mac(1) in add.rules.mac.tolist()
        bad = np.flatnonzero(add.rules.mac == mac(1))
        after = machine.handle(InstallFailed(at_s, add.request, bad, "EINVAL"))
        pauses.append(timers(after)[Timer.RETRY])
        at_s += pauses[-1]
        dump = asked(machine.handle(TimerFired(at_s, Timer.RETRY)), Dump)
        assert dump.cause.reason is Reason.RETRY
        instructions = machine.handle(Dumped(at_s, dump.request, tables(entries), rules((mac(2), 2))))

    assert pauses == pytest.approx([0.05, 0.1, 0.15, 0.15])
    assert machine.status.failing == 1
    assert machine.status.last_failure == "EINVAL"
    assert machine.handle(Installed(at_s, asked(instructions, Add).request)) == []
    assert machine.status.failing == 0


def test_news_do_not_shorten_a_failed_rules_pause_and_hold_up_no_other():
    machine, instructions = started([(mac(1), 1)])
    machine.handle(InstallFailed(0.0, asked(instructions, Add).request, np.array([0]), "EINVAL"))
    dump = asked(machine.handle(Changed(0.03, EVPN)), Dump)

    add = asked(machine.handle(Dumped(0.03, dump.request, tables([(mac(1), 1), (mac(2), 2)]), NO_RULES)), Add)

    assert add.rules.mac.tolist() == [mac(2)]
    # A rule that is no longer wanted is no longer tried.
    dump = asked(machine.handle(Changed(0.2, EVPN)) + machine.handle(Installed(0.2, add.request)), Dump)
    assert machine.handle(Dumped(0.2, dump.request, tables(), NO_RULES)) == []
    assert machine.status.failing == 0


def test_an_unanswered_request_is_followed_by_a_dump_and_more_patience():
    machine = reconciler(answer_s=5.0, timeout_s=1000.0)
    machine.handle(Started(0.0))

    again = machine.handle(TimerFired(5.0, Timer.ANSWER))

    assert asked(again, Dump).cause.reason is Reason.UNANSWERED
    assert timers(again)[Timer.ANSWER] == 10.0
    # The first answer is too late: it may be older than what was done since.
    assert machine.handle(Dumped(6.0, 1, tables([(mac(1), 1)]), NO_RULES)) == []
    assert machine.state is State.DUMPING


def test_a_late_answer_to_a_rule_change_asks_for_a_dump():
    machine, instructions = started([(mac(1), 1)], timeout_s=1000.0)
    late = asked(instructions, Add)
    dump = asked(machine.handle(TimerFired(5.0, Timer.ANSWER)), Dump)
    assert machine.handle(Dumped(5.1, dump.request, tables(), NO_RULES)) == []

    assert asked(machine.handle(Installed(6.0, late.request)), Dump).cause.reason is Reason.LATE_ANSWER


def test_what_is_left_of_a_plan_is_dropped_when_its_request_is_not_answered():
    machine, _ = started([(mac(number), 1) for number in range(5)], batch_rules=2, timeout_s=1000.0)
    dump = asked(machine.handle(TimerFired(5.0, Timer.ANSWER)), Dump)

    assert machine.handle(Dumped(5.1, dump.request, tables(), NO_RULES)) == []
    assert machine.state is State.IDLE


def test_a_late_answer_during_another_rule_change_is_news_and_no_answer():
    entries = [(mac(1), 1)]
    machine, instructions = started(entries, timeout_s=1000.0)
    late = asked(instructions, Add)
    dump = asked(machine.handle(TimerFired(5.0, Timer.ANSWER)), Dump)
    again = asked(machine.handle(Dumped(5.1, dump.request, tables(entries), NO_RULES)), Add)

    assert machine.handle(Installed(6.0, late.request)) == []
    assert (machine.state, machine.status.added) == (State.INSTALLING, 0)

    after = machine.handle(Installed(6.1, again.request))
    assert asked(after, Dump).cause.reason is Reason.LATE_ANSWER
    assert machine.status.added == 1


def test_a_dump_that_failed_is_tried_again_after_pauses_that_double():
    machine = reconciler()
    dump = asked(machine.handle(Started(0.0)), Dump)
    at_s, pauses = 0.0, []
    for _ in range(3):
        pause = timers(machine.handle(DumpFailed(at_s, dump.request, "EBUSY")))
        pauses.append(pause[Timer.PAUSE])
        at_s += pauses[-1]
        dump = asked(machine.handle(TimerFired(at_s, Timer.PAUSE)), Dump)

    assert pauses == pytest.approx([0.05, 0.1, 0.2])
    assert machine.status.last_failure == "EBUSY"


def test_an_interrupted_dump_adds_and_deletes_nothing_and_is_repeated():
    machine = reconciler()
    dump = asked(machine.handle(Started(0.0)), Dump)
    installed = rules((mac(1), 1))

    instructions = machine.handle(
        Dumped(0.01, dump.request, tables([(mac(2), 2)]), installed, incomplete=EVPN)
    )

    add = asked(instructions, Add)
    assert add.rules.mac.tolist() == [mac(2)]
    again = machine.handle(Installed(0.02, add.request))
    assert asked(again, Dump).cause.reason is Reason.INTERRUPTED


def test_from_an_interrupted_list_of_rules_nothing_is_concluded():
    machine = reconciler()
    dump = asked(machine.handle(Started(0.0)), Dump)

    instructions = machine.handle(
        Dumped(0.1, dump.request, tables([(mac(2), 2)]), NO_RULES, incomplete=frozenset({Table.RULES}))
    )

    assert asked(instructions, Dump).cause.reason is Reason.INTERRUPTED


def test_a_timer_that_was_not_armed_or_fires_too_early_does_nothing_but_wait():
    machine = idle()

    assert machine.handle(TimerFired(0.5, Timer.RETRY)) == []
    early = machine.handle(TimerFired(0.7, Timer.PERIODIC))
    assert timers(early) == {Timer.PERIODIC: pytest.approx(0.3)}
    assert asked(machine.handle(TimerFired(1.0, Timer.PERIODIC)), Dump)


def test_more_rules_than_there_is_room_for_show_in_the_status():
    machine, instructions = started([(mac(number), 1) for number in range(5)], max_rules=2)

    assert len(asked(instructions, Add).reasons) == 2
    assert (machine.status.wanted, machine.status.refused) == (5, 3)


def test_how_many_rules_the_kernel_takes_is_learned_and_forgotten_when_it_takes_more():
    entries = [(mac(number), 1) for number in range(6)]
    machine, instructions = started(entries, batch_rules=4)
    first = asked(instructions, Add)
    after = machine.handle(InstallFailed(0.1, first.request, np.array([2, 3]), "ENOSPC", full=True))
    # The second batch is not asked for.
    assert [type(change) for change in after] == [ArmTimer]

    dump = asked(machine.handle(Changed(1.0, EVPN)), Dump)
    installed = rules((mac(0), 1), (mac(1), 1))
    probe = asked(machine.handle(Dumped(1.0, dump.request, tables(entries), installed)), Add)
    assert probe.rules.mac.tolist() == [mac(2)]
    assert machine.status.refused == 3
    machine.handle(Installed(1.1, probe.request))

    dump = asked(machine.handle(Changed(2.0, EVPN)), Dump)
    installed = rules((mac(0), 1), (mac(1), 1), (mac(2), 1))
    rest = asked(machine.handle(Dumped(2.0, dump.request, tables(entries), installed)), Add)
    assert len(rest.reasons) == 3


def test_others_rules_above_what_the_kernel_took_do_not_cost_us_ours():
    machine, instructions = started([(mac(1), 1), (mac(2), 1)])
    machine.handle(InstallFailed(0.1, asked(instructions, Add).request, np.array([1]), "ENOSPC", full=True))
    dump = asked(machine.handle(Changed(1.0, EVPN)), Dump)
    theirs = {"cookie": 1}
    installed = rules((mac(1), 1), (mac(7), 1, theirs), (mac(8), 1, theirs))

    change = asked(
        machine.handle(Dumped(1.0, dump.request, tables([(mac(1), 1), (mac(2), 1)]), installed)), Add | Delete
    )

    assert isinstance(change, Add)


def test_a_setting_out_of_its_range_is_named():
    with pytest.raises(ScenarioError, match=r"reconciler\.timeout_s: 0\.0 seconds is outside"):
        ReconcilerSettings(timeout_s=0.0)


def test_every_reason_has_its_words():
    assert all(reason.describe() for reason in Reason)
