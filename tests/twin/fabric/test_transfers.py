import numpy as np
import pytest

from control.fabric import BfdTimers, FaultKind, PlannedFault
from twin.fabric.journal import Step
from twin.fabric.model import QueuePair, Scheme
from twin.fabric.timeline import timeline
from twin.fabric.topology import dual_tor
from twin.fabric.transfers import with_queue_pairs

PORT = PlannedFault(FaultKind.PORT, host=0, uplink=0, at_s=1.0, down_s=5.0)


@pytest.fixture
def story(exact):
    return timeline(dual_tor(2), PORT, Scheme.THORN, exact, BfdTimers(0.05, 3), np.random.SeedSequence(5))


def sends(found, pair):
    rows = zip(found.at_s, found.where, found.step, strict=True)
    return [(at_s - PORT.at_s, step) for at_s, where, step in rows if where == pair]


def test_each_direction_sends_anew_every_timeout_until_its_own_sender_forwards_anew(story):
    qp = QueuePair(timeout=14)  # 67.1 ms
    found = with_queue_pairs(story, PORT, qp, rate_bps=100e9)
    for pair, sender in (("host 0 → host 1", "host 0"), ("host 1 → host 0", "host 1")):
        gap_s = story.first_s(Step.INSTALLED, sender) - PORT.at_s
        assert [step for _, step in sends(found, pair)][-1] is Step.RESUMED
        at_s = [at_s for at_s, _ in sends(found, pair)]
        assert at_s == pytest.approx(qp.ack_timeout_s * np.arange(1, len(at_s) + 1))
        assert at_s[-2] < gap_s <= at_s[-1]


def test_a_queue_pair_without_enough_retries_fails(story):
    found = with_queue_pairs(story, PORT, QueuePair(timeout=12, retry_count=2), rate_bps=100e9)
    assert [step for _, step in sends(found, "host 0 → host 1")] == [
        Step.RETRANSMITTED,
        Step.RETRANSMITTED,
        Step.FAILED,
    ]


def test_rows_stay_in_the_order_of_time_and_keep_their_causes(story):
    found = with_queue_pairs(story, PORT, QueuePair(timeout=14), rate_bps=100e9)
    assert (np.diff(found.at_s) >= 0).all()
    assert (found.cause < np.arange(len(found.cause))).all()
    of = {step: found.what[found.cause[row]] for row, step in enumerate(found.step) if step is Step.RESUMED}
    assert "forwards without" in of[Step.RESUMED]
