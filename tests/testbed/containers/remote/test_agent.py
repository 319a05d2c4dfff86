"""An agent on its own host, without a network."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path
from signal import SIGKILL, SIGTERM
from types import SimpleNamespace

import pytest

from testbed.containers.attach.audit import Audit
from testbed.containers.remote import agent as agents
from testbed.containers.remote import certificates
from testbed.containers.remote.hosting import Hosting
from testbed.containers.remote.messages_pb2 import Order, Report, Wanted
from testbed.containers.remote.origin import Origin, Watcher
from tests.testbed.containers.remote.fake_host import FakePlace, FakeSource, first_limits
from twinbed import BackendError


@pytest.fixture
def agent(tmp_path: Path) -> agents.Agent:
    certificates.init(tmp_path)
    watcher = Watcher(Path("/nonexistent"))
    hosting = Hosting(FakePlace(), None)
    return agents.Agent(
        "127.0.0.1:9", certificates.enroll(tmp_path, "a0"), hosting, lambda: FakeSource({}), watcher
    )


@pytest.mark.parametrize(
    ("sessions", "logged"),
    [
        ([("away", False), ("away", False)], ["away"]),
        ([("away", False), ("revoked", False), ("away", False)], ["away", "revoked", "away"]),
        ([("away", True), ("away", True)], ["away", "away"]),
    ],
)
async def test_a_problem_that_lasts_is_logged_once_and_anew_after_each_connection(
    agent: agents.Agent,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    sessions: list[tuple[str, bool]],
    logged: list[str],
) -> None:
    stop, ends = asyncio.Event(), iter(sessions)

    async def session() -> tuple[str, bool]:
        if (end := next(ends, None)) is not None:
            return end
        stop.set()
        return "stopped", False

    monkeypatch.setattr(agent, "_session", session)
    monkeypatch.setattr(agents, "RECONNECT_FIRST_S", 0.0)
    with caplog.at_level(logging.WARNING, "twinbed.agent"):
        await agent.run(stop)
    assert [record.args[1] for record in caplog.records] == logged


async def test_an_order_s_round_trip_lasts_from_the_record_that_caused_it(agent: agents.Agent) -> None:
    agent.carry_out(Order(number=1))
    agent.carry_out(Order(number=2, caused_ns=time.monotonic_ns() - 5_000_000_000))
    (round_trip_ns,) = agent.round_trips_ns
    reports = [agent._reports.get_nowait() for _ in range(2)]
    assert [report.round_trip_ns for report in reports] == [0, round_trip_ns]
    assert round_trip_ns >= 5_000_000_000
    assert agent.figures.orders == 2


async def test_a_hold_is_asked_about_once_for_each_limit_and_again_without_an_answer(
    agent: agents.Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The regular look and the trap's event may both see the same hold."""
    clock_s, seen = [100.0], SimpleNamespace(name="web", id=3, limit_bytes=32 << 20)
    held = [True]
    monkeypatch.setattr(agents.time, "monotonic", lambda: clock_s[0])
    monkeypatch.setattr(agent.hosting.executor, "look", lambda _: held[0])
    monkeypatch.setattr(agent.hosting.executor, "needed_bytes", lambda _: 4096)
    agent.connected = True

    def asks() -> int:
        agent._look(seen)
        return agent._reports.qsize()

    assert [asks(), asks()] == [1, 1]
    seen.limit_bytes += 8 << 20
    assert [asks(), asks()] == [2, 2]
    clock_s[0] += 1.0
    assert [asks(), asks()] == [3, 3]
    held[0] = False
    assert asks() == 3
    held[0] = True
    assert asks() == 4


def test_every_attachment_and_its_end_are_in_the_audit_file(tmp_path: Path) -> None:
    place = FakePlace()
    place.noted = {"old": Origin("old", attach={"": "/old"}), "job": Origin("job", command=("true",))}
    limited = place.create("/web")
    limited.quota_cores, limited.limit_bytes = 2.0, 1 << 30
    hosting = Hosting(place, None, Audit(tmp_path))
    hosting.converge([Wanted(name=name, attach={"": f"/{name}"}) for name in ("web", "free")], ())
    hosting.converge([Wanted(name="free", attach={"": "/free"})], ())
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert place.left == ["old", "job"], "a command is ended, but nothing of another system changes"
    assert [(line["what"], line["container"], line["cgroup"]) for line in lines] == [
        ("detach", "old", "/old"),
        ("attach", "web", "/web"),
        ("attach", "free", "/free"),
        ("detach", "web", "/web"),
    ]
    limits = [(line.get("cpu_limit_cores"), line.get("memory_limit_bytes")) for line in lines]
    assert limits == [(None, None), (2.0, 1 << 30), ("none", "none"), (None, None)]
    assert {(line["by"], bool(line["why"])) for line in lines} == {("agent", True)}


def test_what_is_refused_or_vanishes_leaves_with_the_reason() -> None:
    place = FakePlace()
    hosting = Hosting(place, None)
    left: list[tuple[str, str]] = []
    hosting.on_gone = lambda container, why: left.append((container.name, why))
    wanted = [Wanted(name=name, attach={"": name}) for name in ("large", "brief", "lasting")]
    hosting.converge(wanted, ())
    hosting.carry_out(Order(rejected=["large", "nobody"]), Report())
    place.groups["brief"].gone = True
    wanted[0] = Wanted(name="job", command=["/no/such/program"])
    hosting.converge(wanted, ())
    hosting.carry_out(first_limits(["job", "lasting"]), Report())
    assert left == [
        ("large", "the controller says that it does not fit"),
        ("brief", "brief: is gone"),
        ("job", "container job: /no/such/program: cannot be executed (no such program)"),
    ]
    assert [*hosting.containers] == [*place.noted] == ["lasting"]
    assert place.groups["large"].removed


def test_notes_that_could_not_be_written_are_written_later(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_: object) -> None:
        raise BackendError("no space is left")

    place = FakePlace()
    hosting, remember = Hosting(place, None), place.remember
    for _ in range(2):
        place.remember = refuse  # type: ignore[method-assign]
        hosting.converge([Wanted(name="web", attach={"": "web"})], ())
        hosting.supervise(0.0)
        place.remember = remember  # type: ignore[method-assign]
        hosting.supervise(0.0)
        assert [*place.noted] == ["web"]
    assert len(caplog.messages) == 2, "once each time"
    place.noted = {}
    hosting.supervise(0.0)
    assert place.noted == {}, "nothing is left to write"


def test_a_command_is_noted_as_it_was_wanted_and_told_to_end() -> None:
    place = FakePlace()
    hosting = Hosting(place, None)
    job = Wanted(name="job", command=["sleep", "1"], environment={"A": "b"}, runtime="oci")
    joined = hosting.converge([job, Wanted(name="web", attach={"": "web"})], ())
    assert [container.running for container in joined.containers] == [False, True]
    noted = Origin("job", command=("sleep", "1"), environment={"A": "b"}, runtime="oci")
    assert place.noted == {"job": noted, "web": Origin("web", attach={"": "web"})}
    hosting.close()
    assert {name: group.signals for name, group in place.groups.items()} == {
        "job": [SIGTERM, SIGKILL],
        "web": [],
    }


def test_an_adopted_command_that_ended_is_started_again_when_it_is_due() -> None:
    place = FakePlace()
    place.noted = {"job": Origin("job", command=("/no/such/program",))}
    group = place.create("job")
    group.inside = {1}
    hosting = Hosting(place, None)
    wanted = [Wanted(name="job", command=["/no/such/program"])]
    (job,) = hosting.converge(wanted, ()).containers
    assert (job.running, job.incarnation) == (True, group.incarnation)
    began_s, starts = time.monotonic(), []
    for inside, at_s in (({1}, began_s), ((), began_s), ((), began_s + 3600.0)):
        group.inside = set(inside)
        hosting.supervise(at_s)
        starts.append(hosting.events["restart"])
    assert starts == [0, 0, 1]


def test_a_group_of_which_the_notes_say_nothing_is_made_anew() -> None:
    place = FakePlace()
    former = place.create("job")
    former.inside = {1}
    (job,) = Hosting(place, None).converge([Wanted(name="job", command=["true"])], ()).containers
    assert (job.running, former.removed) == (False, True)
    assert job.incarnation == place.groups["job"].incarnation != former.incarnation


async def test_containers_are_looked_after_while_there_is_no_controller(
    agent: agents.Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    looked = asyncio.Event()

    def supervise(now_s: float) -> None:
        looks.append(now_s)
        if len(looks) == 3:
            looked.set()

    monkeypatch.setattr(agents, "_SUPERVISE_S", 0.0)
    monkeypatch.setattr(agent.hosting, "supervise", supervise)
    chores, waiting = asyncio.create_task(agent._chores()), asyncio.create_task(looked.wait())
    await asyncio.wait({chores, waiting}, return_when=asyncio.FIRST_COMPLETED)
    assert looks == sorted(looks)
    assert (len(looks) >= 3, chores.done()) == (True, False)
    for task in (chores, waiting):
        task.cancel()
    await asyncio.gather(chores, waiting, return_exceptions=True)
