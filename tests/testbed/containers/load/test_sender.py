"""Requests go out when they are due whatever the server does, and each ends in one status."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import numpy as np
import uvloop

from control.services import RequestStatus as Status
from testbed.containers.load.plan import LoadPlan, LoadResult
from testbed.containers.load.sender import Sender
from tests.testbed.containers.running_services import answering

OK = HTTPStatus.OK


def sent(
    at_s: list[float],
    answer: Callable[[str], Awaitable[HTTPStatus]],
    *,
    duration_s: float = 60.0,
    connections: int = 0,
    queue: int = 1_000_000,
    timeout_s: float = float("inf"),
) -> LoadResult:
    """What became of requests to a server that answers so."""

    async def scene() -> LoadResult:
        async with answering(answer) as (host, port):
            plan = LoadPlan(
                np.array(at_s),
                np.zeros(len(at_s), np.int64),
                ((f"http://{host}:{port}/x",),),
                duration_s,
                connections,
                queue,
                timeout_s,
            )
            sender = Sender(plan, time.monotonic_ns())
            complete = await sender.send()
            return sender.result(complete=complete)

    return uvloop.run(asyncio.wait_for(scene(), 60))


class Gate:
    """A server that stalls until so many requests have come."""

    def __init__(self, requests: int) -> None:
        self._requests, self._came, self._open = requests, 0, asyncio.Event()

    async def __call__(self, _path: str) -> HTTPStatus:
        self._came += 1
        if self._came >= self._requests:
            self._open.set()
        await self._open.wait()
        return OK


def test_a_stall_makes_the_latencies_of_all_that_was_due_meanwhile() -> None:
    # 60 requests every 5 ms; no answer before all have come, so a closed loop would send only the first.
    at_s = (np.arange(60) * 0.005).tolist()
    result = sent(at_s, Gate(60))
    assert (result.status == Status.OK).all()
    assert (result.end_s >= at_s[-1]).all()
    assert (result.latency_s >= at_s[-1] - np.array(at_s)).all()
    assert result.latency_s[0] > 0.29


def test_latency_counts_from_when_a_request_was_due() -> None:
    # Through one connection they are served one after the other, 20 ms each, though all are due at once.
    async def slow(_path: str) -> HTTPStatus:
        await asyncio.sleep(0.02)
        return OK

    result = sent([0.0, 0.0, 0.0], slow, connections=1)
    assert (result.latency_s >= np.array([0.019, 0.038, 0.057])).all()
    assert (np.diff(result.end_s) > 0).all()


def test_what_does_not_fit_into_the_clients_queue_is_dropped() -> None:
    result = sent([0.0, 0.0, 0.0, 0.0, 0.1], Gate(1), connections=1, queue=1)
    assert result.status.tolist() == [Status.OK, Status.OK, Status.DROPPED, Status.DROPPED, Status.OK]
    assert np.isfinite(result.end_s).all()


def test_a_client_gives_up_after_its_timeout_also_what_waits_in_line() -> None:
    result = sent([0.0, 0.01, 0.02], Gate(99), connections=1, timeout_s=0.1)
    assert result.status.tolist() == [Status.TIMED_OUT] * 3
    assert (result.latency_s >= 0.1).all()


def test_answers_become_statuses() -> None:
    answers = [OK, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.NOT_FOUND]

    async def next_answer(_path: str) -> HTTPStatus:
        return answers.pop(0)

    result = sent([0.0, 0.0, 0.0, 0.0], next_answer, connections=1)
    assert result.status.tolist() == [Status.OK, Status.DROPPED, Status.FAILED, Status.FAILED]


def test_nobody_listening_is_a_failure() -> None:
    async def scene() -> LoadResult:
        plan = LoadPlan(np.array([0.0]), np.array([0]), (("http://127.0.0.1:9/x",),), 60.0)
        sender = Sender(plan, time.monotonic_ns())
        return sender.result(complete=await sender.send())

    assert uvloop.run(asyncio.wait_for(scene(), 60)).status.tolist() == [Status.FAILED]


def test_the_end_of_the_run_leaves_the_rest_pending() -> None:
    result = sent([0.0, 0.05, 9.0], Gate(99), duration_s=0.2)
    assert result.status.tolist() == [Status.PENDING, Status.PENDING]
    assert np.isnan(result.end_s).all()
    assert result.complete


def test_what_was_due_while_the_generator_did_not_run_is_in_the_result() -> None:
    async def scene() -> LoadResult:
        plan = LoadPlan(np.array([0.0, 0.1, 9.0]), np.zeros(3, np.int64), (("http://127.0.0.1:9/x",),), 1.0)
        sender = Sender(plan, time.monotonic_ns() - 2_000_000_000)
        return sender.result(complete=await sender.send())

    result = uvloop.run(asyncio.wait_for(scene(), 60))
    assert result.status.tolist() == [Status.PENDING, Status.PENDING]
    assert (result.late_s > 1.8).all()


def test_kinds_of_one_service_share_the_turn_of_its_replicas() -> None:
    async def scene() -> tuple[list[str], list[str]]:
        first: list[str] = []
        second: list[str] = []

        def noting(paths: list[str]) -> Callable[[str], Awaitable[HTTPStatus]]:
            async def answer(path: str) -> HTTPStatus:
                paths.append(path)
                return OK

            return answer

        async with answering(noting(first)) as one, answering(noting(second)) as other:
            entries = tuple(
                tuple(f"http://{host}:{port}/{path}" for host, port in (one, other)) for path in "xy"
            )
            at_s, kind = np.arange(4) * 0.001, np.array([0, 1, 0, 1])
            sender = Sender(LoadPlan(at_s, kind, entries, 60.0), time.monotonic_ns())
            await sender.send()
        return first, second

    assert uvloop.run(asyncio.wait_for(scene(), 60)) == (["/x", "/x"], ["/y", "/y"])


def test_live_percentiles_are_those_of_the_answered_requests() -> None:
    async def scene() -> tuple[float, LoadResult]:
        async with answering(Gate(20)) as (host, port):
            at_s = np.arange(20) * 0.01
            plan = LoadPlan(at_s, np.zeros(20, np.int64), ((f"http://{host}:{port}/x",),), 60.0)
            sender = Sender(plan, time.monotonic_ns())
            result = sender.result(complete=await sender.send())
            return sender.latencies.get_value_at_percentile(50) * 1e-6, result

    median_s, result = uvloop.run(asyncio.wait_for(scene(), 60))
    ordered = np.sort(result.latency_s)
    assert ordered[8] * 0.99 <= median_s <= ordered[11] * 1.01
