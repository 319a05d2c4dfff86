"""The controller's books, without a network: whatever agents say, nothing raises and Σ holds."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator import make
from testbed.containers.ports import Records
from testbed.containers.remote.books import GATHER_S, ControllerBooks
from testbed.containers.remote.datagrams import Batch
from testbed.containers.remote.messages_pb2 import Hello, Joined, Order, Report
from testbed.containers.remote.refusals import Refusals
from tests.testbed.containers.remote.cluster import deployment

LOG = logging.getLogger("tests.books")
LOG.propagate = False
NAMES = ["a0-c0", "a0-c1", "a1-c0", "x", ""]
INT64 = st.integers(-(2**63), 2**63 - 1)
IDS = st.one_of(st.integers(0, 5), INT64)
FLOATS = st.floats(width=64)


def started(agents: int = 2, each: int = 2) -> ControllerBooks:
    books = ControllerBooks(deployment(agents, each), make("escra", {}), Refusals(LOG), 0.0)
    for agent in range(agents):
        books.register(Hello(version=1, name=f"a{agent}", instance=1, host_cores=4), agent, 0.0)
        joined = Joined(complete=True)
        for index in range(each):
            joined.containers.add(name=f"a{agent}-c{index}", incarnation=7)
        books.reported(f"a{agent}", Report(joined=joined), 0.1)
    return books


def applied(books: ControllerBooks) -> dict[str, list[Order]]:
    """Hosts carry out everything at once, until nothing more comes."""
    done: dict[str, list[Order]] = {name: [] for name in books.agents}
    while orders := books.take_orders():
        for name, order in orders:
            done[name].append(order)
            books.reported(name, Report(applied=order.number), 1.0)
    return done


def records(ids: list[int], end_ns: int, throttled: bool = False, quota_cores: float = 1.0) -> Records:
    ones = np.ones(len(ids))
    return Records(
        ids=np.array(ids, np.int64),
        end_ns=np.full(len(ids), end_ns, np.int64),
        quota_cores=ones * quota_cores,
        unused_cores=ones * (0 if throttled else quota_cores),
        throttled=np.full(len(ids), throttled),
        usage_cores=ones * (quota_cores if throttled else 0),
        memory_bytes=np.full(len(ids), 1 << 20, np.int64),
        throttled_s=ones * 0,
        idle=np.full(len(ids), False),
    )


@st.composite
def reports(draw: Any) -> Report:
    report = Report(applied=draw(st.integers(0, 2**64 - 1)), actual_ids=draw(st.lists(IDS, max_size=3)))
    report.actual_bytes.extend(draw(st.lists(INT64, max_size=3)))
    what = draw(st.sampled_from(["nothing", "joined", "left", "held", "shrunk", "hello"]))
    if what == "joined":
        report.joined.complete = draw(st.booleans())
        for _ in range(draw(st.integers(0, 3))):
            report.joined.containers.add(
                name=draw(st.sampled_from(NAMES)),
                watch=draw(st.integers(0, 2)),
                incarnation=draw(st.integers(6, 8)),
                running=draw(st.booleans()),
                quota_cores=draw(FLOATS),
                limit_bytes=draw(INT64),
            )
    elif what == "left":
        report.left.ids.extend(draw(st.lists(IDS, max_size=4)))
    elif what == "held":
        report.held.ids.extend(draw(st.lists(IDS, max_size=4)))
        report.held.needed_bytes.extend(draw(st.lists(INT64, max_size=4)))
    elif what == "shrunk":
        report.shrunk.request = draw(st.integers(0, 3))
        report.shrunk.ids.extend(draw(st.lists(IDS, max_size=4)))
        report.shrunk.limit_bytes.extend(draw(st.lists(INT64, max_size=4)))
    elif what == "hello":
        report.hello.name = "a1"
    return report


@pytest.mark.slow
@given(said=st.lists(st.tuples(st.sampled_from(["a0", "a1"]), reports()), max_size=12))
@settings(max_examples=100, deadline=None)
def test_whatever_agents_say_nothing_raises_and_the_policy_keeps_to_the_limits(
    said: list[tuple[str, Report]],
) -> None:
    books = started()
    for number, (agent, report) in enumerate(said):
        books.reported(agent, report, 1.0 + number)
        books.tick(1.0 + number)
        books.take_orders()
    for ledger, cap in ((books.cpu, 4.0), (books.memory, 4 << 30)):
        assert sum(ledger.wanted(each) for each in books.members) <= cap * (1 + 1e-9)


def test_all_agents_are_waited_for_and_not_for_ever() -> None:
    books = ControllerBooks(deployment(), make("escra", {}), Refusals(LOG), 0.0)
    books.register(Hello(version=1, name="a0", instance=1, host_cores=4), 1, 0.0)
    joined = Joined(complete=True)
    joined.containers.add(name="a0-c0", incarnation=7)
    books.reported("a0", Report(joined=joined), 0.1)
    books.tick(GATHER_S - 0.1)
    assert not books.started
    books.tick(GATHER_S)
    assert books.started
    ((name, order),) = books.take_orders()
    assert (name, list(order.cpu.cores)) == ("a0", [4.0])


def test_a_raise_on_one_host_waits_until_the_cut_on_the_other_is_in_force() -> None:
    books = started(each=1)
    applied(books)
    by_name = {each.name: each.id for each in books.members.values()}
    busy, idle = by_name["a0-c0"], by_name["a1-c0"]
    quota = books.cpu.wanted(idle)
    books.telemetry("a1", Batch(1, 5, records([idle], 1, quota_cores=quota)), 2.0)
    ((name, cut),) = books.take_orders()
    assert name == "a1"
    assert cut.caused_ns == 5
    books.telemetry("a0", Batch(0, 6, records([busy], 1, True, books.cpu.wanted(busy))), 2.1)
    assert books.cpu.wanted(busy) > 2.0
    assert books.take_orders() == []
    books.reported("a1", Report(applied=cut.number), 2.2)
    ((name, raised),) = books.take_orders()
    assert name == "a0"
    assert list(raised.cpu.cores) == [books.cpu.wanted(busy)]


def test_a_record_that_is_older_than_the_last_is_not_decided_on() -> None:
    books = started()
    applied(books)
    id_ = next(each.id for each in books.members.values() if each.agent == "a0")
    books.telemetry("a0", Batch(0, 1, records([id_], 10)), 2.0)
    books.telemetry("a0", Batch(0, 2, records([id_], 10)), 2.1)
    books.telemetry("a0", Batch(0, 3, records([id_], 9)), 2.2)
    assert (books.reports, books.stale) == (1, 2)


def test_a_shrink_that_a_grant_overtook_frees_nothing() -> None:
    books = started(each=1)
    applied(books)
    id_ = next(each.id for each in books.members.values() if each.agent == "a0")
    held = Report()
    held.held.ids.append(id_)
    held.held.needed_bytes.append(1)
    books.reported("a0", held, 2.0)
    granted = books.memory.wanted(id_)
    shrunk = Report()
    shrunk.shrunk.ids.append(id_)
    shrunk.shrunk.limit_bytes.append(50 << 20)
    books.reported("a0", shrunk, 2.1)  # said before the grant arrived
    assert books.memory.wanted(id_) == granted
    applied(books)
    books.reported("a0", shrunk, 2.2)
    assert books.memory.wanted(id_) == 50 << 20
