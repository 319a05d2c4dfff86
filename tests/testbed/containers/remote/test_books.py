"""The controller's books, without a network: whatever agents say, nothing raises and Σ holds."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator import make
from control.allocator.model import NOTHING, OomEvents, PeriodStats, Reason
from testbed.containers.ports import Records
from testbed.containers.remote.books import GATHER_S, ControllerBooks
from testbed.containers.remote.datagrams import MOST_CORES, RECORD, Batch, _rows
from testbed.containers.remote.ledger import Ledger
from testbed.containers.remote.messages_pb2 import Hello, Joined, Order, Report
from testbed.containers.remote.refusals import Refusals, RefusedError
from tests.testbed.containers.remote.cluster import deployment
from tests.testbed.containers.remote.fake_host import made_up

LOG = logging.getLogger("tests.books")
LOG.propagate = False
BEGAN_S = 0.5
NAMES = ["a0-c0", "a0-c1", "a1-c0", "x", ""]
INT64 = st.integers(-(2**63), 2**63 - 1)
IDS = st.one_of(st.integers(0, 5), INT64)
FLOATS = st.floats(width=64)


def started(
    agents: int = 2, each: int = 2, policy: str = "escra", refusals: Refusals | None = None
) -> ControllerBooks:
    books = ControllerBooks(deployment(agents, each), make(policy, {}), refusals or Refusals(LOG), BEGAN_S)
    for agent in range(agents):
        join(books, f"a{agent}", *(f"a{agent}-c{index}" for index in range(each)))
    return books


def join(books: ControllerBooks, agent: str, *names: str, **has: Any) -> None:
    """The agent registers and says that it has these containers. has: what else it says of each."""
    books.register(Hello(name=agent, instance=1, host_cores=4), int(agent[1:]) + 1, 0.0)
    joined = Joined(complete=True, containers=[{"name": name, "incarnation": 7, **has} for name in names])
    say(books, agent, Report(joined=joined), 0.1)


def own(books: ControllerBooks, agent: str) -> list[int]:
    """The ids of the agent's containers, in order."""
    return sorted(member.id for member in books.members.values() if member.agent == agent)


def say(books: ControllerBooks, agent: str, report: Report, now_s: float) -> None:
    """On the agent's own call."""
    report.session = books.agents[agent].session
    books.reported(agent, report, now_s)


def taken(books: ControllerBooks) -> list[tuple[str, Order]]:
    """The next order of every agent that has one."""
    orders = [(name, books.take_order(name, books.agents[name].session)) for name in sorted(books.ready())]
    return [(name, Order.FromString(order)) for name, order in orders if order is not None]


def datagram(books: ControllerBooks, agent: str, sent_ns: int, said: Records, now_s: float) -> None:
    books.telemetry([(agent, Batch(1, sent_ns, _rows(said).tobytes()))], now_s)


def wanted(ledger: Ledger, id_: int) -> float:
    return float(ledger.wanted(np.array([id_]))[0])


def applied(books: ControllerBooks) -> dict[str, list[Order]]:
    """Hosts carry out everything at once, until nothing more comes."""
    done: dict[str, list[Order]] = {name: [] for name in books.agents}
    while orders := taken(books):
        for name, order in orders:
            done[name].append(order)
            say(books, name, Report(applied=order.number), 1.0)
    return done


def at_work() -> ControllerBooks:
    """Two agents with a container each, whose first limits are in force."""
    books = started(each=1)
    applied(books)
    assert books.ready() == []
    return books


def records(ids: list[int], end_ns: int, throttled: bool = False, quota_cores: float = 1.0) -> Records:
    """Return records of containers that use all of their quota and are throttled, or use nothing."""
    usage_cores = quota_cores if throttled else 0.0
    return made_up(ids, end_ns, quota_cores, usage_cores, throttled=throttled)


def held(id_: int, needed_bytes: int) -> Report:
    return Report(held={"ids": [id_], "needed_bytes": [needed_bytes]})


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
        with contextlib.suppress(RefusedError):
            say(books, agent, report, 1.0 + number)
        books.tick(1.0 + number)
        taken(books)
    for ledger, cap in ((books.cpu, 4.0), (books.memory, 4 << 30)):
        assert sum(wanted(ledger, member) for member in books.members) <= cap * (1 + 1e-9)


def test_all_agents_are_waited_for_and_not_for_ever() -> None:
    books = ControllerBooks(deployment(), make("escra", {}), Refusals(LOG), 0.0)
    books.tick(GATHER_S)
    join(books, "a0", "a0-c0")
    books.tick(GATHER_S - 0.1)
    assert not books.started
    books.tick(GATHER_S)
    assert books.started
    ((name, order),) = taken(books)
    assert (name, [*order.cpu.cores], [*order.cpu.reasons]) == ("a0", [4.0], [Reason.INITIAL])
    (id_,) = order.memory.ids
    assert ([*order.memory.bytes], [*order.memory.reasons]) == ([wanted(books.memory, id_)], [Reason.INITIAL])


def test_the_log_names_the_agents_whose_containers_do_not_count_yet(caplog: pytest.LogCaptureFixture) -> None:
    books = ControllerBooks(deployment(), make("escra", {}), Refusals(LOG), 0.0)
    join(books, "a0")
    with caplog.at_level(logging.WARNING):
        books.tick(GATHER_S)
        assert not caplog.records, "nothing can begin yet"
        join(books, "a0", "a0-c0")
        books.tick(GATHER_S)
    assert "begins without agent a1" in caplog.text
    assert "a0" not in caplog.text


def test_a_raise_on_one_host_waits_until_the_cut_on_the_other_is_in_force() -> None:
    books = at_work()
    (busy,), (idle,) = own(books, "a0"), own(books, "a1")
    quota = wanted(books.cpu, idle)
    said = [_rows(records([idle], end_ns, quota_cores=quota)).tobytes() for end_ns in (1, 2)]
    books.telemetry([("a1", Batch(1, 5, said[0])), ("a1", Batch(1, 6, said[1]))], 2.0)
    datagram(books, "a1", 7, records([idle], 3, quota_cores=quota), 2.0)
    ((name, cut),) = taken(books)
    assert name == "a1"
    assert cut.caused_ns == 5
    datagram(books, "a0", 6, records([busy], 1, True, wanted(books.cpu, busy)), 2.1)
    assert wanted(books.cpu, busy) > 2.0
    assert taken(books) == []
    say(books, "a1", Report(applied=cut.number), 2.2)
    ((name, raised),) = taken(books)
    assert name == "a0"
    assert list(raised.cpu.cores) == [wanted(books.cpu, busy)]
    assert raised.caused_ns == 0, "the answer caused it"


def test_a_record_that_is_older_than_the_last_is_not_decided_on() -> None:
    books = started()
    applied(books)
    id_ = own(books, "a0")[0]
    datagram(books, "a0", 1, records([id_], 10), 2.0)
    datagram(books, "a0", 2, records([id_], 10), 2.1)
    datagram(books, "a0", 3, records([id_], 9), 2.2)
    assert (books.reports, books.stale) == (1, 2)


def test_a_shrink_that_a_grant_overtook_frees_nothing() -> None:
    books = at_work()
    id_ = own(books, "a0")[0]
    say(books, "a0", held(id_, 1), 2.0)
    granted = wanted(books.memory, id_)
    assert books.oom_grants == 1
    shrunk = Report(shrunk={"ids": [id_], "limit_bytes": [50 << 20]})
    say(books, "a0", shrunk, 2.1)  # said before the grant arrived
    assert wanted(books.memory, id_) == granted
    applied(books)
    say(books, "a0", shrunk, 2.2)
    assert wanted(books.memory, id_) == 50 << 20


def test_a_record_without_a_quota_is_shown_and_not_decided_on() -> None:
    books = at_work()
    id_ = own(books, "a0")[0]
    changes = books.limit_changes
    said = records([id_], 1, quota_cores=np.inf)
    datagram(books, "a0", 1, dataclasses.replace(said, usage_cores=np.array([1.5])), 2.0)
    assert (books.reports, books.unlimited, books.limit_changes) == (1, 1, changes)
    assert books.latest.usage_cores(np.array([id_])) == [1.5]
    boundless = started(policy="unlimited")
    applied(boundless)
    said = records(own(boundless, "a0"), 1, quota_cores=np.inf)
    said.quota_cores[0] = 1.0
    datagram(boundless, "a0", 1, said, 2.0)
    assert (boundless.reports, boundless.unlimited) == (2, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": -1},
        {"end_ns": -1},
        {"memory_bytes": -1},
        {"memory_bytes": 2**63 - 1},
        {"quota_us": 0},
        {"quota_us": 2**32 - 2},
        {"usage_us": 2**32 - 1},
        {"flags": 4},
        {"flags": 1 << 8},
    ],
)
def test_a_record_that_cannot_be_true_is_refused_and_the_rest_of_the_datagram_counts(
    wrong: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    refusals = Refusals(logging.getLogger("tests.books.refused"))
    books = started(each=2, refusals=refusals)
    applied(books)
    good, bad = own(books, "a0")
    rows = _rows(records([good, bad], 1))
    for name, value in wrong.items():
        rows[name][1] = value
    with caplog.at_level(logging.WARNING):
        books.telemetry([("a0", Batch(1, 5, rows.tobytes()))], 2.0)
    assert books.reports == 1
    kind = "not its container" if "id" in wrong else "impossible record"
    assert refusals.counts == {kind: 1}
    assert "agent a0" in caplog.text


def test_the_policy_is_told_what_members_said_and_nothing_of_what_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    books = started(each=3)
    applied(books)
    first, second, third = own(books, "a0")
    other = own(books, "a1")[0]
    told: list[PeriodStats] = []
    monkeypatch.setattr(books.allocator, "on_period", lambda stats: told.append(stats) or NOTHING)
    said = made_up([first, other, second, third], 5, 1.0, 0.25)
    said.usage_cores[2], said.memory_bytes[2], said.throttled[2] = 0.5, 7 << 20, True
    said.quota_cores[3] = np.inf  # a limit that is decided, and not in force
    for turn in (1, 2):
        said.end_ns[:] = turn
        datagram(books, "a0", turn, said, 3.0 + turn)
    assert (books.reports, books.unlimited) == (6, 2)
    stats = told[1]
    assert stats.ids.tolist() == [first, second]
    assert stats.quota_cores.tolist() == [1.0, 1.0]
    assert stats.unused_cores.tolist() == [0.75, 0.75]
    assert stats.usage_cores.tolist() == [0.25, 0.5]
    assert stats.memory_bytes.tolist() == [1 << 20, 7 << 20]
    assert stats.throttled.tolist() == [False, True]
    assert (stats.period_s, stats.at_s) == (0.1, 5.0 - BEGAN_S)


def test_what_an_agent_says_of_another_agents_container_changes_nothing() -> None:
    books = at_work()
    other = own(books, "a1")[0]
    before = wanted(books.memory, other)
    shrunk = Report(shrunk={"ids": [other], "limit_bytes": [1 << 20]})
    for report in (Report(left={"ids": [other]}), shrunk, held(other, 1)):
        say(books, "a0", report, 2.0)
    assert other in books.members
    assert wanted(books.memory, other) == before
    assert taken(books) == []


def test_who_needs_no_memory_is_granted_none(monkeypatch: pytest.MonkeyPatch) -> None:
    books = at_work()
    id_ = next(iter(books.members))
    for needed_bytes in (0, -1):
        say(books, books.members[id_].agent, held(id_, needed_bytes), 2.0)
    assert (books.oom_grants, taken(books)) == (0, [])
    asked: list[OomEvents] = []
    monkeypatch.setattr(books.allocator, "on_oom", lambda event: asked.append(event) or NOTHING)
    for needed_bytes in (1, 2**63 - 1):
        say(books, books.members[id_].agent, held(id_, needed_bytes), 2.5)
    assert [(*event.needed_bytes, event.at_s) for event in asked] == [
        (1, 2.5 - BEGAN_S),
        (4 << 30, 2.5 - BEGAN_S),
    ]


@pytest.mark.parametrize("lost", [False, True])
def test_without_memory_all_hosts_are_asked_and_only_then_one_is_killed(lost: bool) -> None:
    books = at_work()
    id_ = own(books, "a0")[0]
    say(books, "a0", held(id_, 1 << 50), 2.0)
    asked = dict(taken(books))
    apps = {name: [each.app for each in order.reclaim] for name, order in asked.items()}
    assert apps == {"a0": [0], "a1": [0]}
    for name, order in asked.items():
        assert (books.kills, books.kills_withheld) == (0, 0)
        if lost and name == "a1":
            books.lost("a1", "the test says so", 2.1)
            continue
        answer = Report(applied=order.number, shrunk={"request": order.reclaim[0].request})
        say(books, name, answer, 2.1)
    killed = {name: list(order.kill) for name, order in taken(books)}
    # The share that the lost host holds might be free.
    assert (books.kills, books.kills_withheld) == ((0, 1) if lost else (1, 0))
    assert killed == ({} if lost else {"a0": [id_]})


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["escra", "vpa", "autopilot", "autothrottle", "unlimited"])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_whatever_records_say_no_policy_raises(policy: str, data: st.DataObject) -> None:
    books = started(policy=policy)
    applied(books)
    ids = st.sampled_from([*books.members, 77])
    u32 = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([1, 10_000, 100_000, 2**32 - 1]))
    row = st.tuples(ids, INT64, INT64, u32, u32, u32, u32, st.integers(0, 3))
    for number in range(data.draw(st.integers(1, 6))):
        rows = np.zeros(data.draw(st.integers(1, 6)), RECORD)
        for each in rows:
            for name, value in zip(RECORD.names or (), data.draw(row), strict=False):
                each[name] = value
        books.telemetry([("a0", Batch(1, 5, rows.tobytes()))], 2.0 + 100.0 * number)
        applied(books)
        if policy != "unlimited":
            assert books.cpu.bounds()[0] <= 4.0 * (1 + 1e-9)


def test_a_container_that_failed_or_is_named_twice_is_counted() -> None:
    refusals = Refusals(LOG)
    books = started(each=1, refusals=refusals)
    joined = Joined(complete=True, containers=[{"name": "a0-c0", "incarnation": 8}] * 3)
    joined.failed.add(name="a0-c1", problem="no such cgroup")
    say(books, "a0", Report(joined=joined), 1.0)
    assert [member.name for member in books.members.values()].count("a0-c0") == 1
    assert refusals.counts == {"container twice": 2, "container failed": 1}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"name": "b0"}, "not in the deployment"),
        ({"host_cores": 0.0}, "says it has 0 cores"),
        ({"host_cores": np.nan}, "says it has nan cores"),
        ({"host_cores": MOST_CORES + 1}, "says it has 8193 cores"),
        ({"instance": 2}, "connected already"),
    ],
)
def test_who_may_not_register_changes_nothing(wrong: dict[str, Any], why: str) -> None:
    books = at_work()
    hello = {"name": "a0", "instance": 1, "host_cores": MOST_CORES}
    with pytest.raises(RefusedError, match=why):
        books.register(Hello(**hello | wrong), 9, 2.0)
    assert [(state.name, state.session) for state in books.agents.values()] == [("a0", 1), ("a1", 2)]
    books.register(Hello(**hello), 9, 2.0)
    assert books.agents["a0"].session == 9
    for agent in ("a0", "a1"):
        books.lost(agent, "a test", 2.0)
    assert books.agents_lost == 2
    books.register(Hello(**hello | {"instance": 2}), 10, 2.0)


def test_what_a_newcomer_has_in_force_counts_from_the_start_if_it_runs() -> None:
    books = ControllerBooks(deployment(1, 3), make("escra", {}), Refusals(LOG), 0.0)
    books.register(Hello(name="a0", instance=1, host_cores=4), 1, 0.0)
    has = [(True, 1.0, 1 << 30), (True, np.inf, 2**63 - 1), (False, 0.5, 1 << 20)]
    joined = Joined(complete=True)
    for number, (running, quota_cores, limit_bytes) in enumerate(has):
        joined.containers.add(
            name=f"a0-c{number}", running=running, quota_cores=quota_cores, limit_bytes=limit_bytes
        )
    say(books, "a0", Report(joined=joined), 0.1)
    assert (books.cpu.bounds()[0], books.memory.bounds()[0]) == (1.0, 1 << 30)
    books.lost("a0", "a test", 0.2)
    assert books.agents_lost == 1


def test_what_an_agent_freed_is_not_spent_twice_while_another_has_not_answered() -> None:
    books = at_work()
    (first,), (second,) = own(books, "a0"), own(books, "a1")
    say(books, "a0", held(first, 2 << 30), 2.0)
    asked = {name: order.reclaim[0].request for name, order in taken(books)}
    lowered = {"request": asked["a1"], "ids": [second], "limit_bytes": [50 << 20]}
    say(books, "a1", Report(shrunk=lowered), 2.1)
    say(books, "a1", held(second, 1), 2.2)
    assert wanted(books.memory, second) == 66 << 20, "one grant more than it was shrunk to"
    applied(books)
    say(books, "a0", Report(shrunk={"request": asked["a0"]}), 2.3)
    applied(books)
    assert wanted(books.memory, first) > 3 << 30
    assert books.memory.bounds()[0] <= 4 << 30


def test_a_reclaim_does_not_wait_for_an_agent_that_has_another_call() -> None:
    books = at_work()
    say(books, "a0", held(own(books, "a0")[0], 3 << 30), 2.0)
    (asked,) = [order.reclaim[0].request for name, order in taken(books) if name == "a0"]
    say(books, "a0", Report(applied=2, shrunk={"request": asked}), 2.1)
    assert books.kills_withheld == 0
    books.register(Hello(name="a1", instance=1, host_cores=4), 9, 2.2)
    assert books.kills + books.kills_withheld == 1, "the policy was answered"
