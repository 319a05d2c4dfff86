"""Requests go out when they are due whatever the server does, and each ends in one status."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

import numpy as np

from control.services import RequestStatus as Status
from testbed.containers.load.plan import LoadPlan, LoadResult
from testbed.containers.load.sender import Sender
from tests.testbed.containers.running_services import answering

OK = HTTPStatus.OK


async def sent(
    at_s: Sequence[float],
    answer: Callable[[str], Awaitable[HTTPStatus]],
    duration_s: float = 60.0,
    **more: float,
) -> LoadResult:
    """Return the results of requests to a server that answers so. more: further fields of LoadPlan."""
    async with answering(answer) as (host, port):
        urls, kinds = ((f"http://{host}:{port}/x",),), np.zeros(len(at_s), np.int64)
        sender = Sender(LoadPlan(np.array(at_s), kinds, urls, duration_s, **more), time.monotonic_ns())
        return sender.result(complete=await sender.send())


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


async def test_a_stall_makes_the_latencies_of_all_that_was_due_meanwhile() -> None:
    # 60 requests every 5 ms; no answer before all have come, so a closed loop would send only the first.
    at_s = (np.arange(60) * 0.005).tolist()
    result = await sent(at_s, Gate(60))
    assert (result.status == Status.OK).all()
    assert (result.end_s >= at_s[-1]).all()
    assert (result.latency_s >= at_s[-1] - np.array(at_s)).all()
    assert result.latency_s[0] > 0.29


async def test_latency_counts_from_when_a_request_was_due() -> None:
    # Through one connection they are served one after the other, 20 ms each, though all are due at once.
    async def slow(_path: str) -> HTTPStatus:
        await asyncio.sleep(0.02)
        return OK

    result = await sent([0.0, 0.0, 0.0], slow, connections=1)
    assert (result.latency_s >= np.array([0.019, 0.038, 0.057])).all()
    assert (np.diff(result.end_s) > 0).all()


async def test_what_does_not_fit_into_the_clients_queue_is_dropped() -> None:
    result = await sent([0.0, 0.0, 0.0, 0.0, 0.1], Gate(1), connections=1, queue=1)
    assert result.status.tolist() == [Status.OK, Status.OK, Status.DROPPED, Status.DROPPED, Status.OK]
    assert np.isfinite(result.end_s).all()


async def test_a_client_gives_up_after_its_timeout_also_what_waits_in_line() -> None:
    result = await sent([0.0, 0.01, 0.02], Gate(99), connections=1, timeout_s=0.1)
    assert result.status.tolist() == [Status.TIMED_OUT] * 3
    assert (result.latency_s >= 0.1).all()


async def test_answers_become_statuses() -> None:
    answers = [OK, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.NOT_FOUND]

    async def next_answer(_path: str) -> HTTPStatus:
        return answers.pop(0)

    result = await sent([0.0, 0.0, 0.0, 0.0], next_answer, connections=1)
    assert result.status.tolist() == [Status.OK, Status.DROPPED, Status.FAILED, Status.FAILED]


async def test_nobody_listening_is_a_failure() -> None:
    sender = Sender(
        LoadPlan(np.array([0.0]), np.array([0]), (("http://127.0.0.1:9/x",),), 60.0), time.monotonic_ns()
    )
    assert sender.result(complete=await sender.send()).status.tolist() == [Status.FAILED]


async def test_the_end_of_the_run_leaves_the_rest_pending() -> None:
    result = await sent([0.0, 0.05, 9.0], Gate(99), duration_s=0.2)
    assert result.status.tolist() == [Status.PENDING, Status.PENDING]
    assert np.isnan(result.end_s).all()
    assert result.complete


async def test_what_was_due_while_the_generator_did_not_run_is_in_the_result() -> None:
    plan = LoadPlan(np.array([0.0, 0.1, 9.0]), np.zeros(3, np.int64), (("http://127.0.0.1:9/x",),), 1.0)
    sender = Sender(plan, time.monotonic_ns() - 2_000_000_000)
    result = sender.result(complete=await sender.send())
    assert result.status.tolist() == [Status.PENDING, Status.PENDING]
    assert (result.late_s > 1.8).all()


async def test_kinds_of_one_service_share_the_turn_of_its_replicas() -> None:
    first: list[str] = []
    second: list[str] = []

    def noting(paths: list[str]) -> Callable[[str], Awaitable[HTTPStatus]]:
        async def answer(path: str) -> HTTPStatus:
            paths.append(path)
            return OK

        return answer

    async with answering(noting(first)) as one, answering(noting(second)) as other:
        entries = tuple(tuple(f"http://{host}:{port}/{path}" for host, port in (one, other)) for path in "xy")
        plan = LoadPlan(np.arange(4) * 0.001, np.array([0, 1, 0, 1]), entries, 60.0)
        await Sender(plan, time.monotonic_ns()).send()
    assert (first, second) == (["/x", "/x"], ["/y", "/y"])


async def test_live_percentiles_are_those_of_the_answered_requests() -> None:
    async with answering(Gate(20)) as (host, port):
        plan = LoadPlan(np.arange(20) * 0.01, np.zeros(20, np.int64), ((f"http://{host}:{port}/x",),), 60.0)
        sender = Sender(plan, time.monotonic_ns())
        result = sender.result(complete=await sender.send())
    ordered = np.sort(result.latency_s)
    median_s = sender.latencies.get_value_at_percentile(50) * 1e-6
    assert ordered[8] * 0.99 <= median_s <= ordered[11] * 1.01
