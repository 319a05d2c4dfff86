"""One container's rules, against a callee whose answers the test decides."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from http import HTTPStatus

import pytest

from control.services import Call, Handler, Service
from testbed.containers.services.http1 import Peer, request
from testbed.containers.services.tracing import Teller
from testbed.containers.services.visits import Visits
from tests.testbed.containers.running_services import answering

OK, FAILED = HTTPStatus.OK, HTTPStatus.INTERNAL_SERVER_ERROR
DROPPED = HTTPStatus.SERVICE_UNAVAILABLE

TELLER = Teller("127.0.0.1")
Stages = tuple[tuple[Call, ...], ...]


class Callee:
    """A callee that answers from a list (then OK) or when a test says so, and remembers its requests."""

    def __init__(self, *answers: HTTPStatus, wait_for: int = 0) -> None:
        self._answers = list(answers)
        self._wait_for = wait_for
        self.asked: list[str] = []
        self.enough = asyncio.Event()
        self.open = self.most_open = 0

    async def __call__(self, path: str) -> HTTPStatus:
        self.asked.append(path)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        if len(self.asked) >= self._wait_for:
            self.enough.set()
        await self.enough.wait()
        self.open -= 1
        return self._answers.pop(0) if self._answers else OK


async def visit(
    stages: Stages, callee: Callable[[], Callee], *, requests: int = 1, service: Service | None = None
) -> tuple[list[HTTPStatus], Callee]:
    """The answers to requests made at once, and the callee afterwards."""
    there = callee()
    async with answering(there) as address:
        own = service or Service({"x": Handler(0.0, stages=stages)})
        visits = Visits(own, {"b": [address]}, "seed", TELLER)
        return await asyncio.gather(*(visits.answer("/x") for _ in range(requests))), there


async def test_stages_are_made_in_order() -> None:
    answers, callee = await visit(((Call("b.one"),), (Call("b.two"),), (Call("b.one"),)), Callee)
    assert answers == [OK]
    assert callee.asked == ["/one", "/two", "/one"]


async def test_the_calls_of_a_stage_are_made_in_parallel() -> None:
    # The callee answers none before it was asked three times.
    calls = (Call("b.one"), Call("b.two"), Call("b.three"))
    answers, callee = await visit((calls,), lambda: Callee(wait_for=3))
    assert answers == [OK]
    assert sorted(callee.asked) == ["/one", "/three", "/two"]


@pytest.mark.parametrize(("retries", "expected", "attempts"), [(0, FAILED, 1), (1, FAILED, 2), (2, OK, 3)])
async def test_a_failed_call_is_tried_again(retries: int, expected: HTTPStatus, attempts: int) -> None:
    call = Call("b.one", retries=retries, backoff_s=0.001)
    answers, callee = await visit(((call,),), lambda: Callee(DROPPED, FAILED))
    assert answers == [expected]
    assert len(callee.asked) == attempts


async def test_a_visit_whose_call_failed_makes_no_further_calls() -> None:
    answers, callee = await visit(
        ((Call("b.one"), Call("b.two")), (Call("b.three"),)), lambda: Callee(FAILED)
    )
    assert answers == [FAILED]
    assert sorted(callee.asked) == ["/one", "/two"]


async def test_a_call_that_is_not_answered_in_time_is_given_up() -> None:
    call = Call("b.one", timeout_s=0.02, retries=1)
    answers, callee = await visit(((call,),), lambda: Callee(wait_for=3))
    assert answers == [FAILED]
    assert len(callee.asked) == 2


async def test_visits_beyond_workers_and_queue_are_dropped() -> None:
    service = Service({"x": Handler(0.0, stages=((Call("b.one"),),))}, workers=1, queue=2)
    callee = Callee(wait_for=99)
    async with answering(callee) as address:
        visits = Visits(service, {"b": [address]}, "seed", TELLER)
        asked = [asyncio.ensure_future(visits.answer("/x")) for _ in range(5)]
        assert await asyncio.gather(*asked[3:]) == [DROPPED, DROPPED]
        assert not any(answer.done() for answer in asked[:3])
        callee.enough.set()
        assert await asyncio.gather(*asked[:3]) == [OK, OK, OK]


async def test_a_pool_of_connections_bounds_the_open_calls() -> None:
    calls = tuple(Call("b.one") for _ in range(6))
    service = Service({"x": Handler(0.0, stages=(calls,))}, connections={"b": 2})
    answers, callee = await visit((), lambda: Callee(wait_for=2), requests=3, service=service)
    assert answers == [OK] * 3
    assert len(callee.asked) == 18
    assert callee.most_open == 2


async def test_calls_are_made_with_their_probability_and_the_same_in_every_run() -> None:
    stages = ((Call("b.one", probability=0.5),),) * 40
    first, second = [(await visit(stages, Callee))[1].asked for _ in range(2)]
    assert first == second
    assert 5 < len(first) < 35


async def test_a_replica_that_is_down_is_left_out() -> None:
    callee = Callee()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        async with answering(callee) as address:
            service = Service({"x": Handler(0.0, stages=((Call("b.one"),),))})
            visits = Visits(service, {"b": [nobody.getsockname(), address]}, "seed", TELLER)
            assert [await visits.answer("/x") for _ in range(4)] == [OK] * 4
    assert len(callee.asked) == 4


async def test_a_visit_goes_on_for_nobody_when_its_client_gives_up() -> None:
    callee = Callee(wait_for=99)
    async with answering(callee) as address:
        stages = ((Call("b.one"),), (Call("b.two"),))
        visits = Visits(Service({"x": Handler(0.0, stages=stages)}), {"b": [address]}, "seed", TELLER)
        async with answering(visits.answer) as own, asyncio.timeout(60):
            client = asyncio.ensure_future(Peer(*own).ask(request("127.0.0.1", "/x")))
            while not callee.asked:
                await asyncio.sleep(0.001)
            client.cancel()
            callee.enough.set()
            while len(callee.asked) < 2:
                await asyncio.sleep(0.001)
    assert len(callee.asked) == 2


async def test_an_unknown_path_is_not_found() -> None:
    assert await Visits(Service({"x": Handler(0.0)}), {}, "seed", TELLER).answer("/y") == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"\x00\x01 nonsense\r\n\r\n", rb"HTTP/1.1 400 .*"),
        (b"GET /x HTTP/1.1\r\nConnection: close\r\n\r\n", rb"HTTP/1.1 200 .*"),
        (b"GET /x HTTP/1.1\r\n\r\n" * 2, b""),
    ],
    ids=["no HTTP", "connection: close", "a second request before the answer"],
)
async def test_what_closes_a_connection_and_what_is_said_before(message: bytes, said: bytes) -> None:
    async def answer(_path: str) -> HTTPStatus:
        return OK

    async with answering(answer) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(message)
        assert re.fullmatch(said, await asyncio.wait_for(reader.read(), 60), re.DOTALL)
        writer.close()
