"""Failed rule changes and their pauses."""

from __future__ import annotations

import numpy as np
import pytest

from control.reconciler.backoff import Backoff, marks
from control.reconciler.ports import Add, Delete, Replace
from tests.control.reconciler.forwarding_tables import mac, rules

CHANGES = marks(Add, rules((mac(1), 1), (mac(2), 1), (mac(3), 1)))


def test_pauses_double_to_the_longest_each_change_by_itself():
    backoff = Backoff(0.1, 0.35)
    ends = []
    for at_s in (0.0, 1.0, 2.0, 3.0):
        backoff.failed(CHANGES[:1], at_s)
        ends.append(backoff.next_at_s - at_s)
    backoff.failed(CHANGES[1:2], 3.0)

    assert ends == pytest.approx([0.1, 0.2, 0.35, 0.35])
    assert backoff.next_at_s == pytest.approx(3.1)
    assert backoff.may_try(CHANGES, 3.2).tolist() == [False, True, True]
    assert backoff.may_try(CHANGES, 3.35).all()


def test_what_succeeded_or_is_no_longer_wanted_begins_anew():
    backoff = Backoff(0.1, 10.0)
    backoff.failed(CHANGES, 0.0)
    backoff.forget(CHANGES[:1])
    backoff.keep_only(CHANGES[:2])

    assert len(backoff) == 1
    assert backoff.may_try(CHANGES, 0.0).tolist() == [True, False, True]
    backoff.forget(CHANGES)
    assert backoff.next_at_s == np.inf


def test_another_target_or_operation_is_another_change():
    rule = rules((mac(1), 1))
    others = rules((mac(1), 2), (mac(2), 1), (mac(1), 1, {"device": 11}))
    distinct = {int(marks(operation, rule)[0]) for operation in (Add, Replace, Delete)}
    distinct |= {int(marks(Add, others.take([row]))[0]) for row in range(3)}

    assert len(distinct) == 6


def test_a_hundred_thousand_changes_have_as_many_marks():
    many = rules((mac(0), 1)).take(np.zeros(100_000, np.int64))
    many.mac[:] = mac(0) + np.arange(100_000)

    assert len(np.unique(marks(Add, many))) == 100_000
