"""The reconciler and the naive subscriber on the same story of moving addresses."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from control.reconciler.model import Representors
from control.reconciler.naive import NaiveSubscriber
from control.reconciler.reconciler import Reconciler
from control.reconciler.settings import ReconcilerSettings
from twin.fabric.churn import Agreement, Churn, agreement
from twin.fabric.forwarding import Netlink

pytestmark = pytest.mark.slow

REPRESENTORS = Representors(np.array([10]), np.array([100]))
SETTINGS = ReconcilerSettings(timeout_s=0.5)
CHURN = Churn(entries=300, hosts=10, moves_per_s=200.0, moving_s=1.0, settle_s=0.7, sample_s=0.05)
LOSSLESS = Netlink(
    message_s=50e-6, read_s=20e-6, buffer_messages=400, dump_s=1e-3, dump_entry_s=4e-6, rule_s=360e-6
)


def outcome(kind, churn=CHURN, settings=SETTINGS, **trouble) -> Agreement:
    controller, link = kind(REPRESENTORS, settings), replace(LOSSLESS, **trouble)
    return agreement(controller, REPRESENTORS, settings, churn, link, np.random.SeedSequence(4))


def test_while_no_message_is_lost_both_agree_with_the_tables():
    for kind in (Reconciler, NaiveSubscriber):
        quiet = outcome(kind)
        assert quiet.messages_lost == 0
        assert quiet.wrong[-1] == 0


@pytest.mark.parametrize(
    "trouble",
    [
        {"loss": 0.05},
        {"reordering": 0.05, "overtaken_s": 0.02},
        {"buffer_messages": 1, "read_s": 5e-3},
        {"rule_failure": 0.05},
    ],
    ids=["loss", "reordering", "overflow", "failing rules"],
)
def test_in_trouble_only_the_reconciler_ends_up_right(trouble):
    ours, naive = outcome(Reconciler, **trouble), outcome(NaiveSubscriber, **trouble)

    assert ours.moves == naive.moves > 100
    assert ours.wrong[-1] == 0
    assert naive.wrong[-1] > 0


def test_the_same_seed_tells_the_same_story():
    first, second = (asdict(outcome(Reconciler, loss=0.2)) for _ in range(2))
    assert first.pop("wrong").tolist() == second.pop("wrong").tolist()
    assert first.pop("at_s").tolist() == second.pop("at_s").tolist()
    assert first == second


def test_lost_answers_delay_but_do_not_stop_it():
    patient = ReconcilerSettings(timeout_s=0.5, answer_s=0.05)
    long = replace(CHURN, settle_s=6.0, sample_s=0.5)
    ended = outcome(Reconciler, long, patient, answer_loss=0.2)
    assert ended.wrong[-1] == 0


def test_tables_that_never_rest_do_not_keep_entries_from_their_rules():
    restless = replace(CHURN, moves_per_s=500.0, settle_s=0.0)
    ended = outcome(Reconciler, restless, dump_entry_s=1e-4)
    # A dump takes the time of a dozen moves, so that hardly one is whole. What moved last is wrong meanwhile.
    assert ended.wrong[0] > CHURN.entries / 2
    assert ended.wrong[8:].max() < CHURN.entries / 2
