"""One container's rules, against a callee that answers as the test says."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import pytest
import uvloop

from control.services import Call, Handler, Service
from testbed.containers.services.http1 import Peer, request
from testbed.containers.services.tracing import Teller
from testbed.containers.services.visits import Visits
from tests.testbed.containers.running_services import answering

OK, FAILED = HTTPStatus.OK, HTTPStatus.INTERNAL_SERVER_ERROR
DROPPED = HTTPStatus.SERVICE_UNAVAILABLE

TELLER = Teller("127.0.0.1")
Answer = Callable[[str], Awaitable[HTTPStatus]]
Stages = tuple[tuple[Call, ...], ...]


class Callee:
    """Answers from a list (then OK), or when it is told to; remembers what it was asked."""

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


def visit(
    stages: Stages, callee: Callable[[], Callee], *, requests: int = 1, service: Service | None = None
) -> tuple[list[HTTPStatus], Callee]:
    """The answers to requests made at once, and the callee afterwards."""

    async def scene() -> tuple[list[HTTPStatus], Callee]:
        there = callee()
        async with answering(there) as address:
            own = service or Service({"x": Handler(0.0, stages=stages)})
            visits = Visits(own, {"b": [address]}, "seed", TELLER)
            return await asyncio.gather(*(visits.answer("/x") for _ in range(requests))), there

    return uvloop.run(asyncio.wait_for(scene(), 60))


def test_stages_are_made_in_order() -> None:
    answers, callee = visit(((Call("b.one"),), (Call("b.two"),), (Call("b.one"),)), Callee)
    assert answers == [OK]
    assert callee.asked == ["/one", "/two", "/one"]


def test_the_calls_of_a_stage_are_made_in_parallel() -> None:
    # The callee answers none before it was asked three times.
    calls = (Call("b.one"), Call("b.two"), Call("b.three"))
    answers, callee = visit((calls,), lambda: Callee(wait_for=3))
    assert answers == [OK]
    assert sorted(callee.asked) == ["/one", "/three", "/two"]


@pytest.mark.parametrize(("retries", "expected", "attempts"), [(0, FAILED, 1), (1, FAILED, 2), (2, OK, 3)])
def test_a_failed_call_is_tried_again(retries: int, expected: HTTPStatus, attempts: int) -> None:
    call = Call("b.one", retries=retries, backoff_s=0.001)
    answers, callee = visit(((call,),), lambda: Callee(DROPPED, FAILED))
    assert answers == [expected]
    assert len(callee.asked) == attempts


def test_a_visit_whose_call_failed_makes_no_further_calls() -> None:
    answers, callee = visit(((Call("b.one"), Call("b.two")), (Call("b.three"),)), lambda: Callee(FAILED))
    assert answers == [FAILED]
    assert sorted(callee.asked) == ["/one", "/two"]


def test_a_call_that_is_not_answered_in_time_is_given_up() -> None:
    call = Call("b.one", timeout_s=0.02, retries=1)
    answers, callee = visit(((call,),), lambda: Callee(wait_for=3))
    assert answers == [FAILED]
    assert len(callee.asked) == 2


def test_visits_beyond_workers_and_queue_are_dropped() -> None:
    service = Service({"x": Handler(0.0, stages=((Call("b.one"),),))}, workers=1, queue=2)

    async def scene() -> tuple[list[bool], list[HTTPStatus]]:
        callee = Callee(wait_for=99)
        async with answering(callee) as address:
            visits = Visits(service, {"b": [address]}, "seed", TELLER)
            asked = [asyncio.ensure_future(visits.answer("/x")) for _ in range(5)]
            dropped = await asyncio.gather(*asked[3:])
            still = [each.done() for each in asked[:3]]
            callee.enough.set()
            return still, await asyncio.gather(*asked[:3]) + dropped

    still, answers = uvloop.run(asyncio.wait_for(scene(), 60))
    assert still == [False, False, False]
    assert answers == [OK, OK, OK, DROPPED, DROPPED]


def test_a_pool_of_connections_bounds_the_open_calls() -> None:
    calls = tuple(Call("b.one") for _ in range(6))
    service = Service({"x": Handler(0.0, stages=(calls,))}, connections={"b": 2})
    answers, callee = visit((), lambda: Callee(wait_for=2), requests=3, service=service)
    assert answers == [OK] * 3
    assert len(callee.asked) == 18
    assert callee.most_open == 2


def test_calls_are_made_with_their_probability_and_the_same_in_every_run() -> None:
    stages = ((Call("b.one", probability=0.5),),) * 40
    first, second = (visit(stages, Callee)[1].asked for _ in range(2))
    assert first == second
    assert 5 < len(first) < 35


def test_a_replica_that_is_down_is_left_out() -> None:
    async def scene() -> tuple[list[HTTPStatus], list[str]]:
        callee = Callee()
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            async with answering(callee) as address:
                handler = Handler(0.0, stages=((Call("b.one"),),))
                addresses = {"b": [nobody.getsockname(), address]}
                visits = Visits(Service({"x": handler}), addresses, "seed", TELLER)
                answers = [await visits.answer("/x") for _ in range(4)]
                return answers, callee.asked

    answers, asked = uvloop.run(asyncio.wait_for(scene(), 60))
    assert answers == [OK] * 4
    assert len(asked) == 4


def test_a_visit_goes_on_for_nobody_when_its_client_gives_up() -> None:
    async def scene() -> int:
        callee = Callee(wait_for=99)
        async with answering(callee) as address:
            stages = ((Call("b.one"),), (Call("b.two"),))
            visits = Visits(Service({"x": Handler(0.0, stages=stages)}), {"b": [address]}, "seed", TELLER)
            async with answering(visits.answer) as own:
                client = asyncio.ensure_future(Peer(*own).ask(request("127.0.0.1", "/x")))
                while not callee.asked:
                    await asyncio.sleep(0.001)
                client.cancel()
                callee.enough.set()
                while len(callee.asked) < 2:
                    await asyncio.sleep(0.001)
            return len(callee.asked)

    assert uvloop.run(asyncio.wait_for(scene(), 60)) == 2


def test_an_unknown_path_is_not_found() -> None:
    async def scene() -> HTTPStatus:
        return await Visits(Service({"x": Handler(0.0)}), {}, "seed", TELLER).answer("/y")

    assert uvloop.run(scene()) == HTTPStatus.NOT_FOUND


async def _raw(message: bytes, answer: Answer) -> bytes:
    async with answering(answer) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(message)
        answered = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answered


async def _fine(_path: str) -> HTTPStatus:
    return OK


def test_what_is_no_http_is_refused_and_the_connection_closed() -> None:
    answered = uvloop.run(_raw(b"\x00\x01 nonsense\r\n\r\n", _fine))
    assert answered.startswith(b"HTTP/1.1 400 ")


def test_connection_close_is_honoured() -> None:
    answered = uvloop.run(_raw(b"GET /x HTTP/1.1\r\nConnection: close\r\n\r\n", _fine))
    assert answered.startswith(b"HTTP/1.1 200 ")


def test_a_second_request_before_the_answer_closes_the_connection() -> None:
    assert uvloop.run(_raw(b"GET /x HTTP/1.1\r\n\r\n" * 2, _fine)) == b""
