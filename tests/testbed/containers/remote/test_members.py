"""Reports of agents in pieces, and orders to agents: the bounds of both, waiting orders, and answers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from control.allocator import make
from control.allocator.model import (
    SLOT_MASK,
    Application,
    CpuLimits,
    CpuRequests,
    Decision,
    MemoryLimits,
    Reason,
)
from testbed.containers.remote import joining as joining_module
from testbed.containers.remote import members as members_module
from testbed.containers.remote.books import AGAIN_S, ControllerBooks
from testbed.containers.remote.deployment import Deployment, Placed
from testbed.containers.remote.messages_pb2 import Hello, Joined, Order, Report
from testbed.containers.remote.refusals import Refusals, RefusedError
from tests.testbed.containers.remote.cluster import deployment
from tests.testbed.containers.remote.test_books import (
    LOG,
    applied,
    at_work,
    datagram,
    join,
    own,
    records,
    say,
    started,
    taken,
)


def test_pieces_of_what_an_agent_has_count_as_one_message() -> None:
    books = ControllerBooks(deployment(1, 3), make("escra", {}), Refusals(LOG), 0.0)
    books.register(Hello(name="a0", instance=1, host_cores=4), 1, 0.0)
    for index in range(3):
        piece = Joined(more=True, containers=[{"name": f"a0-c{index}", "incarnation": 7}])
        say(books, "a0", Report(joined=piece), 0.1)
        assert not books.members
    say(books, "a0", Report(joined=Joined(complete=True)), 0.1)
    assert len(books.members) == 3


@pytest.mark.parametrize(
    ("most", "said"),
    [
        (lambda _: ("MOST_CONTAINERS", 3), "agent a0 has more than 3 containers"),
        (lambda piece: ("MOST_JOINED_BYTES", 4 * piece.ByteSize() - 1), "agent a0 reports more than"),
    ],
)
def test_an_agent_that_has_too_many_containers_is_told_so(
    most: Callable[[Joined], tuple[str, int]], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = started(each=2)
    piece = Joined(more=True, containers=[{"name": "a0-c0", "incarnation": 7}])
    monkeypatch.setattr(members_module, *most(piece))
    for _ in range(2):
        for _ in range(3):
            say(books, "a0", Report(joined=piece), 1.0)
        say(books, "a0", Report(joined=Joined()), 1.0)
    for _ in range(3):
        say(books, "a0", Report(joined=piece), 1.0)
    with pytest.raises(RefusedError, match=said):
        say(books, "a0", Report(joined=piece), 1.0)
    join(books, "a0", "a0-c0")


def test_an_order_has_a_bounded_size_and_names_containers_before_their_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members_module, "MOST_PER_ORDER", 4)
    books = started(agents=1, each=10)
    named: set[int] = set()
    orders = applied(books)["a0"]
    for order in orders:
        named |= {each.id for each in order.named}
        assert len(order.named) <= 4
        assert len(order.cpu.ids) <= 4
        assert {*order.cpu.ids, *order.memory.ids} <= named
    assert sum(len(order.cpu.ids) for order in orders) == len(named) == 10


def test_an_agent_that_answers_no_order_gets_no_more_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "MOST_ON_THE_WAY", 2)
    monkeypatch.setattr(members_module, "MOST_PER_ORDER", 1)
    books = started(agents=1, each=4)
    books.ready()
    assert books.take_order("a0", 2) is None
    orders = [books.take_order("a0", 1) for _ in range(4)]
    assert [order is None for order in orders] == [False, False, True, True]
    say(books, "a0", Report(applied=1), 1.0)
    assert books.ready() == ["a0"]
    assert books.take_order("a0", 1) is not None


@pytest.mark.parametrize("waiting", ["named", "rejected", "reclaims"])
def test_an_agent_for_which_too_much_waits_is_told_so(waiting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "MOST_CONTAINERS", 3)
    books = at_work()
    queue = getattr(books.agents["a0"].outbox, waiting)
    queue.update(dict.fromkeys(range(3)))
    say(books, "a0", Report(), 1.0)
    queue[3] = None
    with pytest.raises(RefusedError, match="agent a0 does not read its orders"):
        say(books, "a0", Report(), 1.0)


def test_limits_go_to_the_agent_of_the_container_that_has_a_slot_now() -> None:
    books = ControllerBooks(deployment(2, 2), make("escra", {}), Refusals(LOG), 0.0)
    join(books, "a0", "a0-c0", "a0-c1")
    join(books, "a1", "a1-c0")
    applied(books)
    former, second = own(books, "a0")
    say(books, "a0", Report(left={"ids": [former]}), 1.0)
    again = [{"name": name, "incarnation": 7} for name in ("a1-c0", "a1-c1")]
    say(books, "a1", Report(joined=Joined(complete=True, containers=again)), 1.1)
    newcomer = own(books, "a1")[-1]
    assert newcomer & SLOT_MASK == former & SLOT_MASK
    told = {
        name: {id_ for order in orders for id_ in (*order.cpu.ids, *order.memory.ids)}
        for name, orders in applied(books).items()
    }
    assert newcomer in told["a1"]
    assert told["a0"] <= {second}


def decide(books: ControllerBooks, id_: int, cores: float, size: int) -> None:
    ids, why = np.array([id_]), np.array([Reason.RECOMMENDED], np.uint8)
    books._carry_out(
        Decision(CpuLimits(ids, np.array([cores]), why), MemoryLimits(ids, np.array([size]), why))
    )


def test_limits_of_a_lost_agent_take_no_room_and_are_sent_when_it_is_back() -> None:
    books = at_work()
    (id_,) = own(books, "a0")
    decide(books, id_, 1.0, 1 << 30)
    applied(books)
    books.lost("a0", "a test", 2.0)
    bounds = [*books.cpu.bounds(), *books.memory.bounds()]
    decide(books, id_, 1.5, 3 << 29)
    assert taken(books) == []
    assert [*books.cpu.bounds(), *books.memory.bounds()] == bounds
    join(books, "a0", "a0-c0", running=True, quota_cores=1.0, limit_bytes=1 << 30)
    assert own(books, "a0") == [id_]
    (order,) = applied(books)["a0"]
    assert ([*order.cpu.cores], [*order.memory.bytes]) == ([1.5], [3 << 29])


def test_a_container_that_an_agent_no_longer_has_leaves_and_another_of_its_name_joins_anew() -> None:
    books = at_work()
    (former,), (other,) = own(books, "a0"), own(books, "a1")
    say(books, "a0", Report(joined=Joined()), 1.0)
    assert own(books, "a0") == [former], "it did not say that these are all"
    join(books, "a0", "a0-c0", incarnation=8)
    (latter,) = own(books, "a0")
    assert latter != former
    join(books, "a0")
    assert [*books.members] == [other]
    assert books.cpu.bounds()[0] == books.cpu.wanted(np.array([other]))[0]


def test_containers_of_two_applications_are_restarted_and_killed_once() -> None:
    limits = 4.0, 4 << 30
    placed = tuple(Placed(name, "a0", app, attach={"": name}) for app, name in enumerate(("x", "y")))
    deployed = Deployment((Application("shop", *limits), Application("mail", *limits)), placed)
    books = ControllerBooks(deployed, make("escra", {}), Refusals(LOG), 0.0)
    join(books, "a0", "x", "y")
    applied(books)
    ids = np.array(own(books, "a0"))
    books._carry_out(Decision(restart=ids, kill=ids))
    (order,) = applied(books)["a0"]
    assert [*order.restart] == [*order.kill] == [*ids]
    assert books.kills == 2


def test_what_does_not_fit_is_told_to_its_agent_and_the_rest_joins() -> None:
    books = ControllerBooks(deployment(1, 3, cores=0.02), make("escra", {}), Refusals(LOG), 0.0)
    join(books, "a0", *(f"a0-c{number}" for number in range(3)))
    (first, *_) = applied(books)["a0"]
    assert [*first.rejected] == ["a0-c2"]
    assert [member.name for member in books.members.values()] == ["a0-c0", "a0-c1"]


def counted(books: ControllerBooks, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many newcomers the allocator was asked about, try by try."""
    tries: list[int] = []
    for name in ("start", "on_join"):
        ask = getattr(books.allocator, name)
        monkeypatch.setattr(
            books.allocator, name, lambda *said, ask=ask: [tries.append(len(said[-1].app)), ask(*said)][1]
        )
    return tries


def test_many_that_do_not_fit_are_tried_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the controller's loop has its turn between them."""
    monkeypatch.setattr(joining_module, "TRIED_AT_ONCE", 400)
    books = ControllerBooks(deployment(1, 300, cores=0.02), make("escra", {}), Refusals(LOG), 0.0)
    tries = counted(books, monkeypatch)
    join(books, "a0", *(f"a0-c{number}" for number in range(300)))
    pieces = 1
    while books.newcomers.admitting:
        tried = len(tries)
        books.tick(1.0)
        assert sum(tries[tried:]) <= 400 + 300
        pieces += 1
    assert pieces > 5
    rejected = {name for order in applied(books)["a0"] for name in order.rejected}
    assert rejected == {f"a0-c{number}" for number in range(2, 300)}
    assert [member.name for member in books.members.values()] == ["a0-c0", "a0-c1"]


def test_newcomers_that_wait_for_their_try_are_forgotten_with_their_agent_and_join_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joining_module, "TRIED_AT_ONCE", 1)
    books = ControllerBooks(deployment(2, 4, cores=0.03), make("escra", {}), Refusals(LOG), 0.0)
    join(books, "a0", "a0-c0")
    join(books, "a1")
    again = [{"name": f"a0-c{number}", "incarnation": 8} for number in (1, 2, 3)]
    say(books, "a0", Report(joined=Joined(containers=again)), 1.0)
    assert books.newcomers.admitting
    again[0]["incarnation"] = 9
    say(books, "a0", Report(joined=Joined(containers=again)), 1.0)
    books.lost("a0", "a test", 1.1)
    while books.newcomers.admitting:
        books.tick(1.2)
    told = [(member.name, member.incarnation) for member in books.members.values()]
    assert told == [("a0-c0", 7), ("a0-c1", 9)]
    join(books, "a0", "a0-c0", "a0-c2", "a0-c3")
    say(books, "a1", Report(joined=Joined(containers=[{"name": "a1-c0", "incarnation": 7}])), 1.3)
    while books.newcomers.admitting:
        books.tick(1.4)
    assert [member.name for member in books.members.values()] == ["a0-c0", "a0-c2", "a0-c3"]
    assert sorted(name for order in applied(books)["a1"] for name in order.rejected) == ["a1-c0"]


def test_what_left_is_neither_restarted_nor_killed() -> None:
    books = at_work()
    (id_,) = own(books, "a0")
    books._carry_out(Decision(restart=np.array([id_]), kill=np.array([id_])))
    say(books, "a0", Report(left={"ids": [id_]}), 2.0)
    assert taken(books) == []
    books.lost("a0", "a test", 2.1)
    assert books.agents_lost == 0, "it has no containers"


def test_orders_that_are_made_together_are_those_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "MOST_PER_ORDER", 2)
    monkeypatch.setattr(members_module, "MOST_ON_THE_WAY", 3)
    together, alone = started(agents=3, each=3), started(agents=3, each=3)
    made = 0
    for turn in range(12):
        names = sorted(together.ready())
        assert sorted(alone.ready()) == names
        orders = together.take_orders(names)
        assert orders == [alone.take_order(name, alone.agents[name].session) for name in names]
        told = [(name, Order.FromString(order)) for name, order in zip(names, orders, strict=True) if order]
        made += len(told)
        for books in (together, alone):
            for name, order in told:
                # One agent does not answer until it has another call.
                if name != "a1":
                    say(books, name, Report(applied=order.number), turn)
                members = books.agents[name].ids[turn % 3 :].tolist()
                said = records(members, turn + 1, throttled=turn % 2 > 0, quota_cores=0.4)
                datagram(books, name, 1 + turn, said, turn)
            if turn == 8:
                books.register(Hello(name="a1", instance=1, host_cores=4), 99, turn)
                say(books, "a1", Report(joined=Joined(complete=True)), turn)
    assert made > 20


def test_a_cpu_request_goes_with_the_name_again_when_it_is_new_and_when_an_agent_is_back() -> None:
    books = started(agents=1, each=1, policy="unlimited")
    applied(books)
    (id_,) = books.members
    for cores in (0.25, 0.5):
        books._carry_out(Decision(requests=CpuRequests(np.array([id_, 99]), np.array([cores, 1.0]))))
        (order,) = applied(books)["a0"]
        assert [(named.id, named.request_cores) for named in order.named] == [(id_, cores)]
        assert not order.cpu.ids
    books.lost("a0", "a test", 1.0)
    books.register(Hello(name="a0", instance=2, host_cores=4), 9, 1.0)
    again = {"name": "a0-c0", "incarnation": 7, "running": True, "quota_cores": 1.0, "limit_bytes": 1 << 30}
    joined = Joined(complete=True, containers=[again])
    say(books, "a0", Report(joined=joined), 1.1)
    assert applied(books)["a0"][0].named[0].request_cores == 0.5


@pytest.mark.parametrize(("actual", "counts"), [(2.0, 2.0), (0.5, 1.0), (math.nan, 1.0), (math.inf, 4.0)])
def test_a_limit_that_the_kernel_did_not_take_counts_as_it_is(actual: float, counts: float) -> None:
    books = at_work()
    (id_,) = own(books, "a0")
    decide(books, id_, 4.0, 4 << 20)
    applied(books)
    ledgers = (books.cpu, books.memory)
    others = [ledger.bounds()[0] - ledger.wanted(np.array([id_]))[0] for ledger in ledgers]
    decide(books, id_, 1.0, 1 << 20)
    ((_, order),) = taken(books)
    size = int(min(np.nan_to_num(actual, posinf=8.0), 8.0) * (1 << 20))
    report = Report(applied=order.number, actual_ids=[id_], actual_bytes=[size])
    report.actual_cpu_ids.append(id_)
    report.actual_cores.append(actual)
    say(books, "a0", report, 2.0)
    books.ready()
    now = [ledger.bounds()[0] - other for ledger, other in zip(ledgers, others, strict=True)]
    assert now == pytest.approx([counts, counts * (1 << 20)])
    # A limit that was not set as decided is tried again, even without a new decision.
    books.tick(2.0 + AGAIN_S)
    again = taken(books)
    assert [(list(order.cpu.cores), list(order.memory.bytes)) for _, order in again] == (
        [([1.0], [1 << 20])] if counts > 1 else []
    )
