"""NCCL's own failover: the specification's times, RCCL's twelve cases, and two forms that must agree."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.fabric import Direction
from tests.twin.fabric import port_tables as tables
from tests.twin.fabric.port_events import RECEIVES, SENDS, Event, Exchange, PortLoss, exchange
from tests.twin.fabric.port_tables import DEVICE, Context, Device, Request, step
from twin.fabric.model import QueuePair
from twin.fabric.port_failover import PortFailover, PortOutage, Story, story
from twin.fabric.rdma import stall_s
from twin.fabric.retransmission import PLAIN, Adaptive, ladder
from twin.fabric.transports import Rdma
from twinbed import InvariantError, ScenarioError

FAILOVER = PortFailover()
RECOVERY = PortFailover(recovery=True)
QUICK = QueuePair(timeout=8, retry_count=7)
"""Its ladder ends after 8.4 ms."""
LADDER = QUICK.ladder
CX6 = Adaptive(
    (0.0209, 0.0377, 0.0714, 0.1384, 0.239, 0.4404, 0.9772, 1.7825, 3.9303, 8.2251), 0.0209, 16, 5e-4
)
PART_S = 1e-5


def walk(library: PortFailover, *losses: PortLoss, messages: int = 20, **given: object) -> Exchange:
    return exchange(library, LADDER, messages=messages, part_s=PART_S, losses=losses, **given)  # type: ignore[arg-type]


def dead(port: int = 0, begin_s: float = 0.0, end_s: float = inf, way: Direction | None = None) -> PortLoss:
    return PortLoss(port, begin_s, end_s, way)


def one(library: PortFailover, *spans: tuple[int, float, float], qp: QueuePair = QUICK) -> Story:
    """The closed form of one flow between hosts 0 and 1."""
    outages = [PortOutage(0, 1, port, begin_s, end_s) for port, begin_s, end_s in spans]
    gaps = np.array([end_s - begin_s for _, begin_s, end_s in spans])
    return story(library, outages, stall_s(qp, gaps), qp.ladder.error_s)


# --- the specification's times ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("up_s", "lag_s", "again_s"),
    [
        (-1.0, 0.0, 5.2), (0.2, 0.0, 5.2), (0.3, 0.0, 10.2), (5.2, 0.0, 10.2), (5.3, 0.0, 15.2),
        (10.2, 0.0, 15.2), (10.3, 0.0, inf), (60.0, 0.0, inf),
        (0.0, 0.2, 5.2), (0.0, 1.0, 10.2), (0.0, 5.0, 10.2), (0.0, 10.0, 15.2), (0.0, 12.0, 20.2),
        (0.0, 15.1, 20.2), (0.0, 15.3, inf), (0.0, inf, inf),
    ],
)  # fmt: skip
def test_a_port_comes_back_at_the_specification_s_times(up_s: float, lag_s: float, again_s: float) -> None:
    assert RECOVERY.recovered_s(up_s, lag_s) == pytest.approx(again_s)


@pytest.mark.parametrize(
    ("timeout", "retries", "profile", "error_s"),
    [(20, 7, PLAIN, 34.36), (20, 7, CX6, 59.765), (16, 1, CX6, 0.4404)],
)
def test_failover_takes_the_error_the_probe_and_the_resend(
    timeout: int, retries: int, profile: object, error_s: float
) -> None:
    qp = QueuePair(timeout, retries, retry_profile=profile)  # type: ignore[arg-type]
    library = replace(FAILOVER, probe_rtt_s=1e-4, resend_s=2e-4)
    stall = Rdma(qp, timeout_s=inf, library=library).stall_s(np.array([1e4]))[0]
    assert stall == pytest.approx(qp.ladder.error_s + 0.0103)
    assert qp.ladder.error_s == pytest.approx(error_s, rel=1e-3)
    assert ladder(qp.retry_profile, timeout, retries).error_s == qp.ladder.error_s


def test_under_faults_of_20_s_the_default_timeout_never_triggers_it() -> None:
    slow = QueuePair(timeout=20, retry_profile=CX6)
    told = one(FAILOVER, (0, 0.0, 20.0), (1, 40.0, 60.0), qp=slow)
    assert told.died_s == inf
    assert not len(told.degraded)
    assert told.stalls[0, 1] == pytest.approx(25.4, abs=0.02)


# --- RCCL's twelve cases ------------------------------------------------------------------------------------


def test_1_statuses_outside_the_list_are_fatal() -> None:
    for status in ("access error", "length error", "remote error"):
        died = walk(RECOVERY, events=[Event(1e-5, 0, status)])
        assert (died.died_s, died.reason) == (1e-5, "other status")
    assert walk(RECOVERY, events=[Event(1e-5, 0, "flushed")]).died_s == inf


def test_2_a_completion_error_is_recovered_from() -> None:
    told = walk(FAILOVER, dead())
    assert told.died_s == inf
    assert np.isfinite(told.done_s).all()
    assert told.done_s[0] == pytest.approx(LADDER.error_s + 0.01, abs=1e-4)


def test_3_a_single_port_is_fatal_and_no_hang() -> None:
    told = walk(replace(RECOVERY, ports=1), dead())
    assert told.died_s == pytest.approx(LADDER.error_s, rel=1e-6)
    assert told.reason == "error, no other port"


def test_4_all_ports_failed_is_fatal_and_no_hang() -> None:
    for ports in (2, 3, 4):
        told = walk(replace(RECOVERY, ports=ports), *(dead(port) for port in range(ports)))
        assert LADDER.error_s <= told.died_s < LADDER.error_s + 0.03
        assert np.isnan(told.done_s).all()


def test_5_the_payload_arrives_intact() -> None:
    told = walk(FAILOVER, dead(begin_s=1.5e-5), messages=1)
    assert told.arrived.tolist() == [[1, 1]]


def test_6_one_of_several_ports() -> None:
    told = walk(replace(FAILOVER, ports=4), dead(2))
    assert (told.arrived == 1).all()
    assert [port for (end, port), state in told.devices.items() if state is Device.ERROR] == [2, 2]


def test_7_four_requests_in_flight() -> None:
    told = walk(FAILOVER, dead(begin_s=5e-5), in_flight=4)
    assert (told.arrived == 1).all()
    resent = {machine for _, machine, _, event, _ in told.walk if event == "parts missing"}
    assert 1 < len(resent) <= 4


def test_8_the_recovery_runs_only_if_it_is_enabled() -> None:
    contexts = [
        {machine for _, machine, state, *_ in walk(library, dead()).walk if isinstance(state, Context)}
        for library in (FAILOVER, RECOVERY)
    ]
    assert contexts == [set(), {"sender's context 0", "receiver's context 0"}]


def test_9_a_recovered_port_carries_the_next_20_messages() -> None:
    told = walk(RECOVERY, dead(end_s=0.1), messages=30, every_s=0.5)
    assert told.devices[SENDS, 0] is told.devices[RECEIVES, 0] is Device.OK
    (back_s,) = [
        at_s for at_s, machine, state, *_ in told.walk if (machine, state) == (f"{SENDS} 0", "recovered")
    ]
    assert back_s == pytest.approx(LADDER.error_s + 5.2)
    after = np.diff(np.flatnonzero(told.done_s > back_s)) if back_s < told.done_s[-1] else []
    assert len(after) >= 18
    assert (told.arrived == 1).all()


def test_10_if_one_end_alone_errs_data_flow_and_it_stays_recovering_until_attempts_run_out() -> None:
    told = walk(RECOVERY, dead(end_s=0.1), both_ends=False)
    assert (told.arrived == 1).all()
    assert told.devices[SENDS, 0] is Device.DEAD
    (failed_s,) = [at_s for at_s, *_, event, _ in told.walk if event == "last timeout"]
    assert failed_s == pytest.approx(LADDER.error_s + 25.2)


def test_11_one_of_several_ports_recovers() -> None:
    told = walk(replace(RECOVERY, ports=3), dead(1, end_s=0.05))
    assert set(told.devices.values()) == {Device.OK}


def test_12_alive_messages_that_never_arrive_end_in_a_dead_port() -> None:
    told = walk(RECOVERY, dead())
    assert told.devices[SENDS, 0] is told.devices[RECEIVES, 0] is Device.DEAD
    ends = {
        machine: at_s - LADDER.error_s for at_s, machine, *_, event, _ in told.walk if event == "last timeout"
    }
    # The receiver's first look and four silences of 4 s; the sender's five acknowledgements of 5 s.
    assert ends["receiver's context 0"] == pytest.approx(16.2)
    assert ends["sender's context 0"] == pytest.approx(25.2)


# --- the tables ---------------------------------------------------------------------------------------------


def test_what_no_table_lists_is_refused() -> None:
    with pytest.raises(InvariantError, match="not in the table"):
        step(DEVICE, Device.DEAD, "recovery enabled")
    with pytest.raises(InvariantError, match="Request done"):
        step(tables.REQUEST, Request.DONE, "probe delay")


def test_link_events_are_logged_and_asynchronous_errors_are_fatal() -> None:
    logged = walk(FAILOVER, events=[Event(1e-5, 0, "port error"), Event(2e-5, 0, "port active")])
    assert set(logged.devices.values()) == {Device.OK}
    assert walk(FAILOVER, events=[Event(1e-5, 1, "asynchronous error")]).died_s == 1e-5


def test_an_acknowledgement_that_is_lost_sends_nothing_again() -> None:
    told = walk(FAILOVER, dead(way=Direction.IN), messages=3)
    assert (told.arrived == 1).all()
    assert any(event == "all parts arrived" for *_, event, _ in told.walk)
    assert not any(event == "parts missing" for *_, event, _ in told.walk)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    ports=st.integers(2, 4),
    losses=st.lists(
        st.tuples(
            st.integers(0, 3), st.floats(0, 0.02), st.floats(1e-6, 0.03), st.sampled_from([None, *Direction])
        ),
        max_size=4,
    ),
    in_flight=st.integers(1, 4),
    recovery=st.booleans(),
)
def test_no_part_is_lost_or_delivered_twice_at_any_instant(
    ports: int, losses: list[tuple[int, float, float, Direction | None]], in_flight: int, *, recovery: bool
) -> None:
    library = PortFailover(ports=ports, recovery=recovery)
    hurt = [dead(port % ports, at_s, at_s + long_s, way) for port, at_s, long_s, way in losses]
    told = walk(library, *hurt, in_flight=in_flight, every_s=1e-3)
    assert told.arrived.max() <= 1
    finished = np.isfinite(told.done_s)
    assert (told.arrived[finished] == 1).all()
    assert finished.all() or told.died_s < inf  # Fatal means fatal and never a hang.
    if not any(event.startswith("error") for *_, event, _ in told.walk):
        assert told.died_s == inf


# --- two forms, one answer ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spans",
    {
        "shorter than the first rung": [(0, 0.0, 5e-4)],
        "between rungs": [(0, 0.0, 3.5e-3)],
        "past the error": [(0, 0.0, 1.0)],
        "two ports at once": [(0, 0.0, 1.0), (1, 0.0, 1.0)],
        "two ports after one another": [(0, 0.0, 1.0), (1, 0.5, 1.0)],
        "a second port, briefly": [(0, 0.0, 1.0), (1, 0.5, 0.503)],
        "flapping faster than 5 s": [(0, 0.0, 1.0), (0, 1.5, 2.5), (0, 3.0, 4.0)],
    }.values(),
    ids=str,
)
@pytest.mark.parametrize("library", [FAILOVER, RECOVERY], ids=["failover", "recovery"])
def test_events_and_closed_form_agree(library: PortFailover, spans: list[tuple[int, float, float]]) -> None:
    closed = one(library, *spans)
    told = walk(library, *(dead(*span) for span in spans), messages=5000, every_s=1e-3, in_flight=1)
    assert (
        told.died_s == pytest.approx(closed.died_s, abs=0.03) if closed.died_s < inf else told.died_s == inf
    )
    gaps = np.diff(np.concatenate([[0.0], told.done_s[np.isfinite(told.done_s)]]))
    stalled = gaps[gaps > 1.5e-3].sum() if told.died_s == inf else 0.0
    whole = (closed.stalls[:, 1] - closed.stalls[:, 0]).sum() if told.died_s == inf else 0.0
    assert stalled == pytest.approx(whole, abs=4e-3)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(up=st.floats(0.01, 14.0), lag=st.floats(0.0, 17.0))
def test_recovery_in_events_is_the_closed_form(up: float, lag: float) -> None:
    library = replace(RECOVERY, receiver_lag_s=lag)
    # A batch that leaves while the port or the receiver comes back is a tie that rounding decides.
    if any(abs(x - 0.2 - 5 * j) < 1e-6 for x in (up, lag) for j in range(5)):
        return
    told = walk(library, dead(end_s=LADDER.error_s + up), messages=2)
    expected = library.recovered_s(up)
    assert (told.devices[SENDS, 0] is Device.OK) == (expected < inf)
    came = [at_s for at_s, machine, _, event, _ in told.walk if event == "acknowledged" and SENDS in machine]
    if came:
        assert came[0] - LADDER.error_s == pytest.approx(expected, abs=1e-6)


def test_a_recovery_that_is_refused_is_failover() -> None:
    spans = [(0, 0.0, 30.0), (0, 100.0, 130.0)]
    refused = one(replace(RECOVERY, receiver_lag_s=inf), *spans)
    alone = one(FAILOVER, *spans)
    np.testing.assert_array_equal(refused.stalls, alone.stalls)
    np.testing.assert_array_equal(refused.degraded, alone.degraded)


def test_both_are_identical_before_the_first_error() -> None:
    short = dead(end_s=4e-3)
    first, second = walk(FAILOVER, short), walk(RECOVERY, short)
    np.testing.assert_array_equal(first.done_s, second.done_s)


def test_one_port_left_has_its_share_of_the_rate() -> None:
    told = walk(FAILOVER, dead(), messages=200, in_flight=4)
    taken = np.diff(told.done_s[50:])
    assert taken.mean() == pytest.approx(2 * PART_S, rel=0.02)
    assert FAILOVER.degraded == 0.5
    whole = walk(FAILOVER, messages=200, in_flight=4)
    assert np.diff(whole.done_s[50:]).mean() == pytest.approx(PART_S, rel=0.02)


def test_values_without_meaning_are_refused() -> None:
    for changes in ({"ports": 5}, {"tries": 0}, {"alive_s": 0.0}, {"probe_delay_s": -1.0}):
        with pytest.raises(ScenarioError, match="nccl"):
            PortFailover(**changes)  # type: ignore[arg-type]
