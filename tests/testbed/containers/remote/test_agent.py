"""An agent on its own host, without a network."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path

import pytest

from testbed.containers.attach.audit import Audit
from testbed.containers.remote import agent as agents
from testbed.containers.remote import certificates
from testbed.containers.remote.hosting import Hosting
from testbed.containers.remote.messages_pb2 import Order, Wanted
from testbed.containers.remote.origin import Origin, Watcher
from tests.testbed.containers.remote.fake_host import FakePlace, FakeSource


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
