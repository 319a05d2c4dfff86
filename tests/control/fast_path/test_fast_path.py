"""The fast path's decisions, event by event, and the invariants that hold for any sequence of events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.fabric import BfdState, BfdTimers
from control.fast_path.bfd import Control
from control.fast_path.fast_path import FastPath
from control.fast_path.message import Report
from control.fast_path.ports import (
    ArmTimer,
    CarrierLost,
    Heard,
    ReadRoutes,
    Reason,
    Release,
    Routes,
    RoutesChanged,
    Silent,
    Started,
    Steer,
    Tell,
    TimerFired,
    Told,
)
from control.fast_path.settings import FastPathSettings
from twinbed import InvariantError, ScenarioError

HERE, THERE, FAR = 1, 2, 3
TORS = (10, 11)
BOTH = frozenset({0, 1})
MAIN = {THERE: BOTH, FAR: BOTH}
SETTINGS = FastPathSettings(least_interval_s=0.05)


def control(state=BfdState.UP, interval_s=0.05) -> Control:
    return Control(0, state, BfdTimers(interval_s, 5))


def of(instructions, kind) -> list:
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


def steered(instructions) -> dict[int, set[int]]:
    return {instruction.host: set(instruction.uplinks) for instruction in of(instructions, Steer)}


def at_work(main=MAIN) -> FastPath:
    """Return a fast path that heard both uplinks at 0 s; their detection time ends at 0.25 s."""
    fast_path = FastPath(HERE, TORS, (THERE, FAR), SETTINGS)
    fast_path.handle(Started(0.0))
    fast_path.handle(Routes(0.0, main, {}))
    for uplink in (0, 1):
        fast_path.handle(Heard(0.0, uplink, control()))
    return fast_path


def test_it_reads_the_routes_first() -> None:
    fast_path = FastPath(HERE, TORS, (THERE, FAR), SETTINGS)
    assert of(fast_path.handle(Started(0.0)), ReadRoutes) == [ReadRoutes(Reason.STARTED)]


def test_silence_that_the_data_plane_reports_counts_at_once_and_once() -> None:
    fast_path = at_work()
    instructions = fast_path.handle(Silent(0.1, 0))
    assert steered(instructions) == {THERE: {1}, FAR: {1}}
    assert {tell.report.tors for tell in of(instructions, Tell)} == {frozenset({10})}
    # The data plane repeats itself.
    assert of(fast_path.handle(Silent(0.11, 0)), Steer | Release) == []


def test_silence_for_the_detection_time_takes_the_uplink_out_and_is_told() -> None:
    fast_path = at_work()
    fast_path.handle(Heard(0.2, 1, control()))
    (timer,) = of(fast_path.handle(TimerFired(0.2)), ArmTimer)
    # The last packet of uplink 0 came at 0 s: 5 × 50 ms.
    assert timer.at_s == pytest.approx(0.25)
    out = fast_path.handle(TimerFired(0.25))
    assert steered(out) == {THERE: {1}, FAR: {1}}
    (tell,) = of(out, Tell)
    assert tell.report == Report(HERE, frozenset({10}), SETTINGS.lifetime_s)
    assert tell.reason is Reason.SILENT
    # The report is sent after the routes were changed, over the uplinks that are left.
    assert out.index(tell) > out.index(of(out, Steer)[-1])


def test_a_packet_that_arrived_before_the_timer_counts() -> None:
    fast_path = at_work()
    fast_path.handle(Heard(0.249, 0, control()))
    fast_path.handle(Heard(0.249, 1, control()))
    assert not of(fast_path.handle(TimerFired(0.26)), Steer)


def test_the_slower_end_sets_the_detection_time() -> None:
    fast_path = at_work()
    fast_path.handle(Heard(0.1, 0, control(interval_s=1.0)))
    fast_path.handle(Heard(0.1, 1, control(interval_s=0.001)))
    fast_path.handle(TimerFired(0.34))
    assert fast_path.dead == set()
    fast_path.handle(TimerFired(0.36))
    # 5 × our own least interval, not 5 × 1 ms.
    assert fast_path.dead == {1}


@pytest.mark.parametrize("state", [BfdState.DOWN, BfdState.INIT])
def test_a_far_end_that_does_not_hear_us_says_so(state) -> None:
    out = at_work().handle(Heard(0.1, 0, control(state)))
    assert steered(out) == {THERE: {1}, FAR: {1}}
    assert of(out, Tell)[0].reason is Reason.TOLD_DOWN


def test_an_end_that_is_shut_on_purpose_is_no_fault() -> None:
    fast_path = at_work()
    assert not of(fast_path.handle(Heard(0.1, 0, control(BfdState.ADMIN_DOWN))), Steer)
    fast_path.handle(Heard(0.2, 1, control()))
    assert not of(fast_path.handle(TimerFired(0.3)), Steer)


def test_a_session_that_never_was_up_cannot_fail() -> None:
    fast_path = FastPath(HERE, TORS, (THERE,), SETTINGS)
    fast_path.handle(Started(0.0))
    fast_path.handle(Routes(0.0, {THERE: BOTH}, {}))
    fast_path.handle(Heard(0.0, 0, control(BfdState.DOWN)))
    assert not of(fast_path.handle(TimerFired(1.0)), Steer)


def test_a_lost_carrier_counts_at_once() -> None:
    out = at_work().handle(CarrierLost(0.01, 1))
    assert steered(out) == {THERE: {0}, FAR: {0}}
    assert of(out, Tell)[0].report.tors == {11}


def test_a_report_turns_the_routes_to_its_sender_only() -> None:
    out = at_work().handle(Told(0.1, Report(THERE, frozenset({11}), 3.0)))
    assert steered(out) == {THERE: {0}}


def test_an_empty_report_takes_the_one_before_back() -> None:
    fast_path = at_work()
    fast_path.handle(Told(0.1, Report(THERE, frozenset({11}), 3.0)))
    out = fast_path.handle(Told(0.2, Report(THERE, frozenset(), 3.0)))
    assert of(out, Release) == [Release(THERE, Reason.REPORTED)]
    assert fast_path.steered == {}


def test_the_last_next_hop_is_never_taken() -> None:
    fast_path = at_work()
    fast_path.handle(CarrierLost(0.01, 0))
    out = fast_path.handle(CarrierLost(0.02, 1))
    assert steered(out) == {}
    assert {instruction.host for instruction in of(out, Release)} == {THERE, FAR}
    assert not of(at_work({THERE: frozenset({0})}).handle(CarrierLost(0.01, 0)), Steer)


def test_two_faults_leave_what_neither_hit_or_nothing() -> None:
    fast_path = at_work()
    fast_path.handle(CarrierLost(0.01, 0))
    # THERE cannot be reached over ToR 11, and we do not reach ToR 10, so BGP's routes are used.
    out = fast_path.handle(Told(0.02, Report(THERE, frozenset({11}), 3.0)))
    assert [instruction.host for instruction in of(out, Release)] == [THERE]


def test_it_is_over_when_bgp_does_without_the_dead_next_hop() -> None:
    fast_path = at_work()
    fast_path.handle(CarrierLost(0.01, 0))
    out = fast_path.handle(Routes(0.1, {THERE: frozenset({1}), FAR: BOTH}, fast_path.steered))
    assert of(out, Release) == [Release(THERE, Reason.CONFIRMED)]
    assert fast_path.steered == {FAR: {1}}


def test_an_uplink_is_believed_when_its_session_has_been_up_for_a_while() -> None:
    fast_path = at_work()
    fast_path.handle(CarrierLost(0.01, 0))
    assert not of(fast_path.handle(Heard(1.0, 0, control())), Release)
    out = fast_path.handle(Heard(1.0 + SETTINGS.steady_s, 0, control()))
    assert {instruction.reason for instruction in of(out, Release)} == {Reason.UP_AGAIN}
    assert of(out, Tell)[0].report.tors == set()


def test_nothing_is_for_good() -> None:
    fast_path = at_work()
    fast_path.handle(CarrierLost(0.0, 0))
    fast_path.handle(Heard(9.9, 1, control()))
    out = fast_path.handle(TimerFired(SETTINGS.most_s))
    assert {instruction.reason for instruction in of(out, Release)} == {Reason.OVER}
    assert not of(fast_path.handle(TimerFired(SETTINGS.most_s + 0.1)), Steer)


def test_a_report_that_is_not_repeated_ends() -> None:
    fast_path = at_work()
    fast_path.handle(Told(0.1, Report(THERE, frozenset({11}), 3600.0)))
    for uplink in (0, 1):
        fast_path.handle(Heard(3.0, uplink, control()))
    # No longer than our own lifetime, whatever the sender says.
    out = fast_path.handle(TimerFired(0.1 + SETTINGS.lifetime_s))
    assert of(out, Release) == [Release(THERE, Reason.EXPIRED)]


def test_a_report_is_told_three_times_and_then_as_long_as_it_holds() -> None:
    fast_path = FastPath(HERE, TORS, (THERE, FAR), SETTINGS)
    fast_path.handle(Started(0.0))
    at_s, times = 0.0, []
    out = fast_path.handle(CarrierLost(at_s, 0))
    while at_s < 2.1:
        times += [at_s] * len(of(out, Tell))
        (armed,) = of(out, ArmTimer)
        at_s = armed.at_s
        out = fast_path.handle(TimerFired(at_s))
    assert times == pytest.approx([0.0, 0.005, 0.02, 1.02, 2.02])


def test_a_predecessors_routes_go_and_a_lost_one_is_made_anew() -> None:
    fast_path = FastPath(HERE, TORS, (THERE, FAR), SETTINGS)
    fast_path.handle(Started(0.0))
    out = fast_path.handle(Routes(0.0, MAIN, {THERE: frozenset({0}), 99: frozenset({1})}))
    assert {instruction.host for instruction in of(out, Release)} == {THERE, 99}
    fast_path.handle(CarrierLost(0.1, 0))
    assert steered(fast_path.handle(Routes(0.2, MAIN, {FAR: frozenset({1})}))) == {THERE: {1}}


def test_a_burst_of_changes_is_read_once() -> None:
    fast_path = at_work()
    assert of(fast_path.handle(RoutesChanged(0.1)), ReadRoutes)
    out = fast_path.handle(RoutesChanged(0.101))
    assert not of(out, ReadRoutes)
    (timer,) = of(out, ArmTimer)
    assert timer.at_s == pytest.approx(0.12)
    assert of(fast_path.handle(TimerFired(timer.at_s)), ReadRoutes)


def test_what_cannot_be_changes_nothing() -> None:
    fast_path = FastPath(HERE, TORS, (THERE,), SETTINGS)
    for wrong in (TimerFired(0.0), CarrierLost(0.0, 0)):
        with pytest.raises(InvariantError):
            fast_path.handle(wrong)
    fast_path.handle(Started(0.0))
    fast_path.handle(Routes(0.0, {THERE: BOTH}, {}))
    with pytest.raises(InvariantError, match="no uplink 2"):
        fast_path.handle(CarrierLost(0.0, 2))
    assert fast_path.dead == set()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"most_s": 0.05}, r"fast_path.most_s: 0.05 seconds is outside \[0.1, any\]"),
        ({"repeats_s": (0.0, -0.1)}, r"fast_path.repeats_s: -0.1 seconds after a change is outside"),
        ({"lifetime_s": 1.0}, "fast_path.lifetime_s: a report expires after 1 s, before the next one"),
    ],
)
def test_a_setting_out_of_its_range_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        FastPathSettings(**changed)


HOSTS = st.sampled_from([THERE, FAR, 99])
HOPS = st.dictionaries(HOSTS, st.frozensets(st.sampled_from([0, 1, 2])), max_size=3)
EVENTS = st.one_of(
    st.builds(
        lambda uplink, state: ("heard", uplink, state), st.sampled_from([0, 1, 2]), st.sampled_from(BfdState)
    ),
    st.builds(
        lambda what, uplink: (what, uplink),
        st.sampled_from(["carrier", "silent"]),
        st.sampled_from([0, 1, 2]),
    ),
    st.builds(
        lambda sender, tors: ("told", sender, tors), HOSTS, st.frozensets(st.sampled_from([10, 11, 12]))
    ),
    st.builds(lambda main: ("routes", main), HOPS),
    st.just(("timer",)),
    st.just(("changed",)),
)


@given(st.lists(st.tuples(st.floats(0.0, 2.0), EVENTS), max_size=25), HOPS)
@settings(max_examples=150, deadline=None)
def test_whatever_happens_only_dead_next_hops_are_taken_and_never_the_last(story, left) -> None:
    fast_path = FastPath(HERE, (10, 11, 12), (THERE, FAR), SETTINGS)
    instructions = fast_path.handle(Started(0.0))
    at_s, main, table = 0.0, {}, dict(left)
    instructions += fast_path.handle(Routes(0.0, main, table))
    for after_s, event in story:
        for instruction in of(instructions, Steer):
            table[instruction.host] = instruction.uplinks
        for instruction in of(instructions, Release):
            table.pop(instruction.host, None)
        assert table == fast_path.steered
        for host, hops in table.items():
            assert hops
            assert hops < main[host]
            assert not hops & fast_path.dead
        at_s += after_s
        match event:
            case "heard", uplink, state:
                instructions = fast_path.handle(Heard(at_s, uplink, control(state)))
            case "carrier", uplink:
                instructions = fast_path.handle(CarrierLost(at_s, uplink))
            case "silent", uplink:
                instructions = fast_path.handle(Silent(at_s, uplink))
            case "told", sender, tors:
                instructions = fast_path.handle(Told(at_s, Report(sender, tors, 3.0)))
            case "routes", read:
                main = {host: hops for host, hops in read.items() if host in (THERE, FAR)}
                instructions = fast_path.handle(Routes(at_s, read, dict(table)))
            case ("timer",):
                instructions = fast_path.handle(TimerFired(at_s))
            case ("changed",):
                instructions = fast_path.handle(RoutesChanged(at_s))
    # Without further events everything is handed back to BGP.
    end_s = at_s + SETTINGS.most_s + SETTINGS.lifetime_s + 1.0
    fast_path.handle(TimerFired(end_s))
    fast_path.handle(TimerFired(end_s + SETTINGS.most_s + 0.1))
    assert fast_path.steered == {}
