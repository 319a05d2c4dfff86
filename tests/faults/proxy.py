"""A bad network in user space: `python tests/faults/proxy.py LISTEN:PORT TO:PORT`.

For: TCP streams that are delayed, stalled in one direction or reset, and datagrams that are delayed,
reordered or duplicated on their way from LISTEN to TO. TLS passes through unread. Each line of standard input
is a JSON object with fields of `Weather`, or {"reset": true}. Not for: changing bytes, or reordering them
within a stream: TCP never does that.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import sys
from dataclasses import dataclass

_CHUNK_BYTES = 1 << 16
_CHUNKS = 64
"""Number of chunks on their way in one direction. Then the sender's own buffers fill up."""

_POLL_S = 0.02
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass
class Weather:
    """The state of the network. delay_s: delay of all traffic, s; stalled: directions in which no byte of a
    stream passes, of "up" (from LISTEN to TO) and "down"; held: share of datagrams that come up to hold_s s
    later than those after them; doubled: share of datagrams that arrive twice."""

    delay_s: float = 0.0
    stalled: str = ""
    held: float = 0.0
    hold_s: float = 0.5
    doubled: float = 0.0


class Streams:
    """Connects each connection to LISTEN with a new one to TO."""

    def __init__(self, weather: Weather, to: tuple[str, int]) -> None:
        self._weather = weather
        self._to = to
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until one of its sides ends, then reset or end the other."""
        self._open.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._to)
        except OSError:
            self._reset(writer)
            return
        self._open.add(far_writer)
        ways = [
            asyncio.create_task(self._carry(reader, far_writer, "up")),
            asyncio.create_task(self._carry(far_reader, writer, "down")),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for side in (writer, far_writer):
            self._open.discard(side)
            side.close()

    def reset(self) -> None:
        """Cut all connections, on both sides."""
        for writer in list(self._open):
            self._reset(writer)

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS)
        reading = asyncio.create_task(self._read(reader, queue, way))
        loop = asyncio.get_running_loop()
        try:
            while True:
                read_s, chunk = await queue.get()
                if not chunk:
                    return
                await asyncio.sleep(max(0.0, read_s + self._weather.delay_s - loop.time()))
                while way in self._weather.stalled:
                    await asyncio.sleep(_POLL_S)
                writer.write(chunk)
                await writer.drain()
        finally:
            reading.cancel()

    async def _read(
        self, reader: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]], way: str
    ) -> None:
        chunk = b" "
        while chunk:
            while way in self._weather.stalled:
                await asyncio.sleep(_POLL_S)
            try:
                chunk = await reader.read(_CHUNK_BYTES)
            except OSError:
                chunk = b""
            await queue.put((asyncio.get_running_loop().time(), chunk))


class Datagrams(asyncio.DatagramProtocol):
    """Forwards datagrams that arrive at LISTEN. Nothing is sent back, because telemetry has no answers."""

    def __init__(self, weather: Weather, to: tuple[str, int]) -> None:
        self._weather = weather
        self._to = to
        self._draws = random.Random(0)
        self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Forward the datagram, now or later, once or twice."""
        del addr
        weather = self._weather
        for _ in range(1 + (self._draws.random() < weather.doubled)):
            late = self._draws.random() < weather.held
            wait_s = weather.delay_s + (self._draws.uniform(0.0, weather.hold_s) if late else 0.0)
            asyncio.get_running_loop().call_later(wait_s, self._send, data)

    def _send(self, data: bytes) -> None:
        try:
            self._out.sendto(data, self._to)
        except OSError:
            return  # The network is down. So the datagram is lost.


async def main(listen: tuple[str, int], to: tuple[str, int]) -> None:
    """Serve until standard input ends."""
    weather = Weather()
    streams, loop = Streams(weather, to), asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: Datagrams(weather, to), local_addr=listen)
    server = await asyncio.start_server(streams.serve, *listen)
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    print("ready", flush=True)
    async for line in orders:
        for name, value in json.loads(line).items():
            if name == "reset":
                streams.reset()
            else:
                setattr(weather, name, value)
    server.close()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    asyncio.run(main(_address(sys.argv[1]), _address(sys.argv[2])))
