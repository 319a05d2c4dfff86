import numpy as np
import pytest

from twin.fabric import rdma
from twin.fabric.collectives import Collective, time_s
from twin.fabric.interruption import series
from twin.fabric.model import QueuePair
from twinbed import ScenarioError

QP = QueuePair(timeout=12)  # an ACK timeout of 16.8 ms
MIB = 1 << 20
ALPHA_S, RATE_BPS = 5e-6, 100e9
COST = {"alpha_s": ALPHA_S, "rate_bps": RATE_BPS, "qp": QP}


def run(kind, size_bytes, ranks, outages, operations=1, **more):
    plan = {flow: np.array(rows) for flow, rows in outages.items()}
    return series(kind, size_bytes, ranks, operations=operations, outages=plan, **COST, **more)


@pytest.mark.parametrize("kind", Collective)
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_step_by_step_is_the_closed_form_while_no_path_is_lost(kind, ranks):
    # An outage of a flow that nobody uses makes every operation go step by step.
    unused = {(0, 0): [[0.0, np.inf]]}
    for size_bytes in (1, 100_000, 7 * MIB + 5):
        result = run(kind, size_bytes, ranks, unused, operations=2)
        expected_s = float(time_s(kind, size_bytes, ranks, ALPHA_S, RATE_BPS))
        assert result.duration_s == pytest.approx([expected_s] * 2, rel=1e-12)


@pytest.mark.parametrize("kind", Collective)
def test_an_outage_of_one_flow_costs_everybody_its_stall_once(kind):
    ranks, size_bytes = 4, 512 * MIB
    clean_s = float(time_s(kind, size_bytes, ranks, ALPHA_S, RATE_BPS))
    destination = 2 if kind is not Collective.ALL_TO_ALL else 3
    begin_s = 1.3 * clean_s if kind is not Collective.ALL_TO_ALL else 1.5 * clean_s
    gap_s = 2.5 * QP.ack_timeout_s
    result = run(kind, size_bytes, ranks, {(1, destination): [[begin_s, begin_s + gap_s]]}, operations=3)
    stall_s = rdma.stall_s(QP, gap_s)
    assert stall_s == pytest.approx(3 * QP.ack_timeout_s)
    assert result.duration_s == pytest.approx([clean_s, clean_s + stall_s, clean_s], rel=1e-9)


def test_a_message_between_two_ranks_is_what_the_packets_say():
    begin_s, gap_s, rtt_s = 0.010, 0.040, 1e-5
    result = run(Collective.SEND_RECV, 512 * MIB, 2, {(0, 1): [[begin_s, begin_s + gap_s]]}, rtt_s=rtt_s)
    packets = rdma.send_series(
        QP,
        rdma.Link(RATE_BPS, rtt_s, header_bytes=0),
        messages=1,
        message_bytes=512 * MIB,
        outages=np.array([[begin_s, begin_s + gap_s]]),
    )
    assert result.duration_s - ALPHA_S == pytest.approx(packets.latency_s - rtt_s, abs=2e-6)


def test_only_those_who_wait_for_the_stalled_flow_are_late():
    """Two flows of a ring lost at once cost no more than one: their stalls overlap."""
    clean_s = float(time_s(Collective.ALL_REDUCE, 512 * MIB, 4, ALPHA_S, RATE_BPS))
    gap = [[0.01, 0.05]]
    one = run(Collective.ALL_REDUCE, 512 * MIB, 4, {(0, 1): gap}).duration_s[0]
    both = run(Collective.ALL_REDUCE, 512 * MIB, 4, {(0, 1): gap, (2, 3): gap}).duration_s[0]
    assert both == pytest.approx(one)
    assert one > clean_s


def test_flapping_costs_a_stall_each_time():
    rows = [[0.01, 0.02], [0.05, 0.06], [0.1, 0.11]]
    clean_s = float(time_s(Collective.BROADCAST, 2048 * MIB, 4, ALPHA_S, RATE_BPS))
    result = run(Collective.BROADCAST, 2048 * MIB, 4, {(0, 1): rows})
    assert result.duration_s[0] == pytest.approx(clean_s + 3 * QP.ack_timeout_s)


def test_an_outage_beyond_the_retries_ends_the_series():
    clean_s = float(time_s(Collective.ALL_REDUCE, 512 * MIB, 4, ALPHA_S, RATE_BPS))
    result = run(Collective.ALL_REDUCE, 512 * MIB, 4, {(3, 0): [[1.5 * clean_s, np.inf]]}, operations=4)
    assert np.isnan(result.duration_s).tolist() == [False, True, True, True]
    assert result.error_at_s == pytest.approx(1.5 * clean_s + 8 * QP.ack_timeout_s, abs=1e-4)


def test_flows_are_between_ranks():
    with pytest.raises(ScenarioError, match="0 → 4"):
        run(Collective.ALL_REDUCE, MIB, 4, {(0, 4): [[0.0, 1.0]]})


@pytest.mark.parametrize("change", [{"size_bytes": 0}, {"operations": 0}, {"chunk_bytes": 0}])
def test_nothing_to_send_is_refused(change):
    with pytest.raises(ScenarioError, match="above 0"):
        run(Collective.BROADCAST, **{"size_bytes": MIB, "ranks": 4, "outages": {}, **change})
