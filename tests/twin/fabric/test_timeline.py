from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ks_2samp

from control.fabric import BfdTimers, Direction, FaultKind, PlannedFault
from twin.fabric.failover import failover
from twin.fabric.journal import NO_CAUSE, Step, Timeline
from twin.fabric.model import Bond, Delay, FastPath, Handling, QueuePair, Reroute, Scheme
from twin.fabric.retransmission import Recorded
from twin.fabric.timeline import timeline, with_queue_pairs
from twin.fabric.topology import dual_tor
from twinbed import ScenarioError

TIMERS = BfdTimers(0.05, 3)
PORT = PlannedFault(FaultKind.PORT, host=0, uplink=0, at_s=1.0, down_s=5.0)
SEED = np.random.SeedSequence(5)


def rows(story):
    return list(zip(story.where, story.step, strict=True))


def test_a_silent_fault_is_detected_withdrawn_and_routed_around_and_rules_stay(thorn):
    story = timeline(dual_tor(2), PORT, thorn, SEED)
    assert (np.diff(story.at_s) >= 0).all()
    host_s, tor_s = story.first_s(Step.DETECTED, "host 0"), story.first_s(Step.DETECTED, "tor 0")
    assert 1.1 <= min(host_s, tor_s) <= max(host_s, tor_s) <= 1.15
    # Hold 50, route 1 ms; far: hold 50, message 3, hold 50, route 1 ms.
    assert story.first_s(Step.INSTALLED, "host 0") == pytest.approx(host_s + 0.051)
    assert story.first_s(Step.WITHDRAWN, "tor 0") == pytest.approx(tor_s + 0.050)
    assert story.first_s(Step.TOLD, "host 1") == pytest.approx(tor_s + 0.053)
    assert story.first_s(Step.INSTALLED, "host 1") == pytest.approx(tor_s + 0.104)
    assert story.first_s(Step.RECONCILED, "host 1") > story.first_s(Step.INSTALLED, "host 1")
    assert story.first_s(Step.USED_AGAIN, "host 0") == pytest.approx(8.0)
    assert 6.0 < story.first_s(Step.SESSION_UP, "host 0") < 7.01
    assert np.isnan(story.first_s(Step.DETECTED, "host 1"))


FAST = FastPath(late_s=Delay(0.002, 0.003), told_s=Delay(0.003, 0.005), route_s=Delay(0.001, 0.002))


def test_the_fast_path_waits_for_no_hold_and_bgp_says_the_same_later(exact):
    fast = FastPath(*(Delay(delay_s, delay_s) for delay_s in (0.002, 0.003, 0.001)))
    story = timeline(dual_tor(3), PORT, Handling(Scheme.THORN, replace(exact, fast=fast), TIMERS), SEED)
    host_s = story.first_s(Step.DETECTED, "host 0")
    assert story.first_s(Step.INSTALLED, "host 0") == pytest.approx(host_s + 0.003)
    for other in ("host 1", "host 2"):
        assert story.first_s(Step.TOLD, other) == pytest.approx(host_s + 0.005)
        assert story.first_s(Step.INSTALLED, other) == pytest.approx(host_s + 0.006)
    assert rows(story).count(("host 1", Step.INSTALLED)) == 2


def test_every_row_has_an_earlier_cause_but_the_plan_s_own(control):
    story = timeline(dual_tor(3), PORT, Handling(Scheme.THORN, control, TIMERS), SEED)
    roots = [step for step, cause in zip(story.step, story.cause, strict=True) if cause == NO_CAUSE]
    assert roots == [Step.BROKEN, Step.REPAIRED]
    assert (story.cause < np.arange(len(story.cause))).all()


def test_two_switches_that_withdraw_together_are_handled_in_one_hold(thorn):
    nic = replace(PORT, kind=FaultKind.NIC)
    story = timeline(dual_tor(2), nic, thorn, SEED)
    assert rows(story).count(("host 1", Step.TOLD)) == 2
    assert rows(story).count(("host 1", Step.SELECTED)) == 1


def test_without_offload_there_are_no_rules_to_reconcile(exact):
    story = timeline(dual_tor(2), PORT, Handling(Scheme.THORN_SOFTWARE, exact, TIMERS), SEED)
    assert Step.RECONCILED not in story.step


def test_a_fault_shorter_than_detection_is_noticed_by_nobody(thorn):
    story = timeline(dual_tor(2), replace(PORT, down_s=0.05), thorn, SEED)
    assert story.step == (Step.BROKEN, Step.REPAIRED)
    flicker = replace(PORT, down_s=0.001, silent=False)
    assert timeline(dual_tor(2), flicker, thorn, SEED).step == story.step


def test_the_other_schemes_do_what_they_do(exact):
    fabric, lasting = dual_tor(2), replace(PORT, down_s=np.inf)
    alone = timeline(fabric, PORT, Handling(Scheme.NONE, exact, TIMERS), SEED)
    assert rows(alone) == [("port host 0 – tor 0", Step.BROKEN), ("port host 0 – tor 0", Step.REPAIRED)]
    bond = timeline(fabric, lasting, Handling(Scheme.BOND, exact, TIMERS, bond=Bond(lacp_s=1.0)), SEED)
    assert 3.0 < bond.first_s(Step.INSTALLED, "host 0") < 4.01
    assert bond.first_s(Step.INSTALLED, "tor 0") == pytest.approx(
        bond.first_s(Step.DETECTED, "tor 0") + 0.001
    )
    job = timeline(
        fabric, lasting, Handling(Scheme.REROUTE, exact, TIMERS, reroute=Reroute(30.0, 10.0)), SEED
    )
    assert job.first_s(Step.INSTALLED, "job") == pytest.approx(41.0)
    back = timeline(fabric, PORT, Handling(Scheme.REROUTE, exact, TIMERS), SEED)
    assert Step.DETECTED not in back.step


def test_bad_timers_and_faults_are_refused_here_too(exact, thorn):
    with pytest.raises(ScenarioError, match="interval_s"):
        timeline(dual_tor(2), PORT, Handling(Scheme.THORN, exact, BfdTimers(0.0, 3)), SEED)
    with pytest.raises(ScenarioError, match="host: 7"):
        timeline(dual_tor(2), replace(PORT, host=7), thorn, SEED)
    with pytest.raises(ScenarioError, match="needs two"):
        timeline(dual_tor(2, tors=1, uplinks=1), PORT, thorn, SEED)


PAIR, SPINES, RACKS = dual_tor(2), dual_tor(2, spines=1), dual_tor(2, tors=4, spines=2)
CASES = {
    "silent": (Scheme.THORN, PAIR, PORT, "host 1"),
    "carrier": (Scheme.THORN, PAIR, replace(PORT, silent=False), "host 1"),
    "one way": (Scheme.THORN, PAIR, replace(PORT, one_way=Direction.OUT), None),
    "spines": (Scheme.THORN, SPINES, PORT, "host 1"),
    "racks": (Scheme.THORN, RACKS, PORT, "spine 1"),
    "switch": (Scheme.THORN, PAIR, PlannedFault(FaultKind.TOR, tor=0, at_s=1.0, down_s=5.0), None),
    "bond": (Scheme.BOND, PAIR, PORT, "tor 0"),
    "fast path": (Scheme.THORN, PAIR, PORT, "host 1"),
    "fast path, racks": (Scheme.THORN, RACKS, PORT, "spine 1"),
    "fast path, carrier": (Scheme.THORN, PAIR, replace(PORT, silent=False), "host 1"),
}
RUNS = 250


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_events_and_arrays_come_to_the_same_distributions(control, case):
    scheme, fabric, fault, far = CASES[case]
    control = replace(control, fast=FAST if case.startswith("fast path") else None)
    fault = replace(fault, down_s=np.inf)
    seeds = np.random.SeedSequence(11).spawn(RUNS)
    phases = np.random.default_rng(12).uniform(4.0, 5.0, RUNS) * (TIMERS.interval_s * 2)
    if scheme is Scheme.BOND:
        phases += 1.0
    stories = [
        timeline(fabric, replace(fault, at_s=at_s), Handling(scheme, control, TIMERS), seed)
        for at_s, seed in zip(phases.tolist(), seeds, strict=True)
    ]
    plan = [replace(fault, at_s=1e3 * turn, down_s=20.0) for turn in range(4000)]
    outages = failover(fabric, plan, Handling(scheme, control, TIMERS), np.random.SeedSequence(13))
    for way, where in ((Direction.OUT, "host 0"), (Direction.IN, far)):
        if where is None:
            continue
        met = [story.first_s(Step.INSTALLED, where) for story in stories] - phases
        drawn = outages.gap_s[(outages.direction == way) & ((outages.source == 0) == (way == Direction.OUT))]
        assert ks_2samp(met, drawn).pvalue > 0.01


@pytest.fixture
def story(thorn):
    return timeline(dual_tor(2), PORT, thorn, SEED)


def sends(story, pair):
    rows = zip(story.at_s, story.where, story.step, strict=True)
    return [(at_s - PORT.at_s, step) for at_s, where, step in rows if where == pair]


def test_each_direction_sends_anew_every_timeout_until_its_own_sender_forwards_anew(story):
    qp = QueuePair(timeout=14)  # 67.1 ms
    sent = with_queue_pairs(story, PORT, qp, rate_bps=100e9)
    for pair, sender in (("host 0 → host 1", "host 0"), ("host 1 → host 0", "host 1")):
        gap_s = story.first_s(Step.INSTALLED, sender) - PORT.at_s
        assert [step for _, step in sends(sent, pair)][-1] is Step.RESUMED
        at_s = [at_s for at_s, _ in sends(sent, pair)]
        assert at_s == pytest.approx(qp.ack_timeout_s * np.arange(1, len(at_s) + 1))
        assert at_s[-2] < gap_s <= at_s[-1]


def test_a_queue_pair_without_enough_retries_fails(story):
    sent = with_queue_pairs(story, PORT, QueuePair(timeout=12, retry_count=2), rate_bps=100e9)
    steps = [step for _, step in sends(sent, "host 0 → host 1")]
    assert steps == [Step.RETRANSMITTED, Step.RETRANSMITTED, Step.FAILED]


def test_rows_stay_in_the_order_of_time_and_keep_their_causes(story):
    sent = with_queue_pairs(story, PORT, QueuePair(timeout=14), rate_bps=100e9)
    assert (np.diff(sent.at_s) >= 0).all()
    assert (sent.cause < np.arange(len(sent.cause))).all()
    of = {step: sent.what[sent.cause[row]] for row, step in enumerate(sent.step) if step is Step.RESUMED}
    assert "forwards without" in of[Step.RESUMED]


def test_each_of_a_long_series_of_retransmissions_has_its_number(story):
    profile = Recorded(tuple(k / 1000 for k in range(1, 31)), 0.1, 7, 31)
    endless = replace(PORT, down_s=np.inf)
    alone = Timeline(*(getattr(story, name)[:1] for name in ("at_s", "where", "step", "what", "cause")))
    sent = with_queue_pairs(alone, endless, QueuePair(retry_profile=profile), rate_bps=100e9)
    said = [what for what, where in zip(sent.what, sent.where, strict=True) if where == "host 0 → host 1"]
    assert said == [*(f"retry {number}" for number in range(1, 31)), "queue pair in error after 30 retries"]
    assert (
        "queue pair in error after 1 retry"
        in with_queue_pairs(alone, endless, QueuePair(retry_count=1), rate_bps=100e9).what
    )
