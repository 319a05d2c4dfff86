"""The loops over arrays of Escra's memory rule book what the rule itself books."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.allocator.escra import Escra, EscraSettings
from control.allocator.escra_memory_settle import credit, grant
from control.allocator.model import NOTHING
from tests.control.allocator.fleets import MIB, application, join, oom, shrunk

APPS = [0, 1, 0, 1, 0]


def started() -> Escra:
    escra = Escra(EscraSettings())
    escra.start([application(name="a"), application(name="b", memory_bytes=500 * MIB)], join(APPS))
    return escra


@given(
    rows=st.lists(st.sampled_from(range(5)), unique=True, min_size=1),
    needed=st.lists(st.integers(1, 150 * MIB), min_size=5, max_size=5),
    lowered=st.lists(st.integers(1, 400 * MIB), min_size=5, max_size=5),
)
def test_grants_and_credits_are_those_of_the_rule(rows, needed, lowered):
    plain, fast = started(), started()
    books = fast.memory_books()
    ids = plain.roster.ids
    plain.on_reclaimed(shrunk([0, 1], ids, lowered))
    for slot, limit in enumerate(lowered):
        credit(books, slot, limit)
    before, limits = books.limit.copy(), np.zeros(len(rows), np.int64)
    decision = plain.on_oom(oom(ids[rows], [needed[row] for row in rows]))
    fits = grant(books, np.array(rows), np.array([needed[row] for row in rows]), limits)
    assert fits == (decision.reclaim.size == 0)
    if fits:
        assert decision.memory.limit_bytes.tolist() == limits.tolist()
        assert fast.memory.limit_bytes.tolist() == plain.memory.limit_bytes.tolist()
        assert fast.memory.pool_bytes.tolist() == plain.memory.pool_bytes.tolist()
    else:
        np.testing.assert_array_equal(books.limit, before)


def test_there_are_no_books_while_a_container_waits():
    escra = started()
    escra.on_oom(oom(escra.roster.ids[:1], [2000 * MIB]))
    assert escra.memory_books() is None


@pytest.mark.parametrize("rule", ["on_oom", "on_reclaimed"])
def test_there_are_no_books_for_a_class_with_a_rule_of_its_own(rule):
    own = type("Own", (Escra,), {rule: lambda self, event: NOTHING})(EscraSettings())
    own.start([application(memory_bytes=500 * MIB)], join([0]))
    assert own.memory_books() is None
    assert started().memory_books() is not None
