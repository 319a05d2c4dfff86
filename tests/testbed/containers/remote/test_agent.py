"""What an agent does by itself, without a controller."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import pytest

from testbed.containers.remote import agent as agents
from testbed.containers.remote import certificates
from testbed.containers.remote.hosting import Hosting
from testbed.containers.remote.messages_pb2 import Order
from testbed.containers.remote.origin import Watcher
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
