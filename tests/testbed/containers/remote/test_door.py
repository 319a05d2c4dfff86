"""The door by itself, before a server that echoes: who waits, who is closed, and what gRPC calls a peer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testbed.containers.remote import door as door_module
from testbed.containers.remote.door import Door, listen, origin, room
from testbed.containers.remote.refusals import Refusals
from tests.testbed.containers.remote.cluster import DEADLINE_S
from twinbed import BackendError

WAITING = 16
PER_ADDRESS = 2


class Guest:
    """A client of the door. peer: what the server calls it, once it has said something."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.peer = ""

    async def speak(self) -> str:
        self.writer.write(b"hello\n")
        said = await asyncio.wait_for(self.reader.readline(), DEADLINE_S)
        self.peer = f"unix-abstract:{said.decode().strip()}"
        return self.peer

    async def is_closed(self) -> bool:
        with contextlib.suppress(ConnectionResetError):
            return await asyncio.wait_for(self.reader.read(), DEADLINE_S) == b""
        return True


class Place:
    def __init__(self, door: Door, port: int, refusals: Refusals) -> None:
        self.door, self.port, self.refusals = door, port, refusals
        self._writers: list[asyncio.StreamWriter] = []

    async def guest(self, address: str) -> Guest:
        made = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))
        self._writers.append(made[1])
        return Guest(*made)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@contextlib.asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = writer.get_extra_info("peername")
        while await reader.readline():
            writer.write(name[1:] + b"\n")
        writer.close()

    server = await asyncio.start_unix_server(answer, folder / "grpc")
    listener = listen("127.0.0.1", 0)
    refusals = Refusals(logging.getLogger("twinbed.controller"))
    door = Door(listener, folder / "grpc", WAITING, refusals)
    running = asyncio.create_task(door.run())
    made = Place(door, listener.getsockname()[1], refusals)
    try:
        yield made
    finally:
        made.close()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        server.close()


async def test_a_flood_from_one_address_closes_its_own_oldest_connections_only(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        other = await here.guest("127.0.0.2")
        await other.speak()
        flood = [await here.guest("127.0.0.1") for _ in range(WAITING * 2)]
        for guest in flood[:-PER_ADDRESS]:
            assert await guest.is_closed()
        for guest in (other, *flood[-PER_ADDRESS:]):
            assert here.door.address(await guest.speak()) in ("127.0.0.1", "127.0.0.2")
        assert here.refusals.counts == {"too many connections": len(flood) - PER_ADDRESS}


async def test_addresses_of_agents_keep_their_places_when_unknown_ones_take_all_others(
    tmp_path: Path,
) -> None:
    async with place(tmp_path) as here:
        agent = await here.guest("127.0.0.2")
        here.door.registered(await agent.speak(), "a0")
        waits = await here.guest("127.0.0.2")
        flood = [await here.guest(f"127.0.1.{number}") for number in range(1, 3 * WAITING)]
        for guest in flood[:-WAITING]:
            assert await guest.is_closed()
        for guest in (agent, waits, await here.guest("127.0.0.2"), *flood[-WAITING:]):
            await guest.speak()


async def test_a_registered_agents_connection_does_not_count_as_waiting(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        agents = [await here.guest("127.0.0.1") for _ in range(PER_ADDRESS)]
        for number, agent in enumerate(agents):
            here.door.registered(await agent.speak(), f"a{number}")
        for guest in [await here.guest("127.0.0.1") for _ in range(PER_ADDRESS)] + agents:
            await guest.speak()
    assert not here.refusals.counts, "its end is nobody's fault"


async def test_what_waits_too_long_is_closed_and_counted_unless_its_certificate_was_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with place(tmp_path) as here:
        silent = await here.guest("127.0.0.1")
        started, called, agent = [await here.guest(f"127.0.0.{number}") for number in (2, 3, 4)]
        await started.speak()
        here.door.called(await called.speak())
        here.door.called(await agent.speak())
        here.door.registered(agent.peer, "a0")
        here.door.tick()
        await agent.speak()
        monkeypatch.setattr(door_module, "WAIT_S", 0.0)
        here.door.tick()
        for guest in (silent, started, called):
            assert await guest.is_closed()
        assert here.refusals.counts == {"certificate": 2}
        here.door.registered(agent.peer, "a0")  # its next call, before the former one has ended
        for _ in range(2):
            await agent.speak()
            here.door.ended(agent.peer)
            here.door.tick()
        assert await agent.is_closed()
        assert here.refusals.counts == {"certificate": 2}
        assert here.door.address(agent.peer) == "an address that has disconnected"
    assert "a connection from 127.0.0.1 without a certificate of ours" in caplog.text


def test_an_ipv6_network_counts_as_one_address() -> None:
    assert origin("2001:db8::1") == origin("2001:db8::2") != origin("2001:db8:0:1::1")
    assert origin("fe80::1%eth0") == "fe80::/64"
    assert origin("10.0.0.1") != origin("10.0.0.2")
    assert origin("::ffff:10.0.0.1") == origin("10.0.0.1")


def test_too_few_open_files_are_said_at_the_start_with_how_many_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allowed, given = [64], []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, allowed[0]))
    monkeypatch.setattr(resource, "setrlimit", lambda *limits: given.append(limits))
    with pytest.raises(
        BackendError, match=r"64 open files are too few for 100 agents; allow \d+ with"
    ) as said:
        room(100)
    allowed[0] = int(str(said.value).split("allow ")[1].split()[0])
    assert room(100) == 8
    assert given[-1] == (resource.RLIMIT_NOFILE, (allowed[0], allowed[0]))
    allowed[0] -= 7
    with pytest.raises(BackendError):
        room(100)
    allowed[0] = 1 << 20
    assert room(100) == 256
