"""HTTP/1.1 between the containers and their clients: requests without a body, answers that are a status.

For: both ends of a connection that stays open between requests. Not for: bodies, TLS, or several requests at
once on one connection (a second one before the answer closes it; our clients never send it). Parsing is
httptools (llhttp). On uvloop, a request and its answer cost 28 µs of CPU for both ends together. With
aiohttp's server and client they cost 234 µs, which is more than many handlers of the graphs need.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import cast

import httptools

Answer = Callable[[str], Awaitable[HTTPStatus]]

BACKLOG = 4096
"""Connections that may wait to be accepted: enough for a burst, and as many as the kernel allows by default.
"""

_RESPONSES = {
    status: f"HTTP/1.1 {status.value} {status.phrase}\r\n{length}\r\n".encode("ascii")
    for status in (
        HTTPStatus.OK,
        HTTPStatus.NO_CONTENT,
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.SERVICE_UNAVAILABLE,
    )
    for length in ["" if status is HTTPStatus.NO_CONTENT else "Content-Length: 0\r\n"]
}


def allow_many_connections() -> None:
    """Raise this process's limit of open files to the highest that it may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def request(host: str, path: str) -> bytes:
    """Return the bytes of a request for `path`."""
    return f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n".encode("ascii")


class ServerConnection(asyncio.Protocol):
    """The server's end. answer: path → status, run as a task. A client that disconnects does not stop the
    task: the work is still done, as in servers with a thread per request."""

    _running: set[asyncio.Task[None]] = set()  # noqa: RUF012 - the loop itself keeps only weak references

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._busy, self._keep = False, True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has another base

    def close(self) -> None:
        """Close the connection at once. The work for its request continues."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.write(_RESPONSES[HTTPStatus.BAD_REQUEST])
            self._transport.close()

    def on_message_begin(self) -> None:
        """See httptools."""
        self._url = b""

    def on_url(self, url: bytes) -> None:
        """See httptools. Long paths come in pieces."""
        self._url += url

    def on_message_complete(self) -> None:
        """See httptools."""
        if self._busy:
            self._transport.close()
            return
        self._busy, self._keep = True, self._parser.should_keep_alive()
        task = asyncio.get_running_loop().create_task(self._serve(self._url.decode("latin-1")))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _serve(self, path: str) -> None:
        try:
            status = await self._answer(path)
        except BaseException:
            self._transport.abort()  # otherwise the client would wait for ever
            raise
        self._busy = False
        if self._transport.is_closing():
            return
        self._transport.write(_RESPONSES[status])
        if not self._keep:
            self._transport.close()


class _Channel(asyncio.Protocol):
    """The client's end: one request at a time."""

    def __init__(self) -> None:
        self.open = False
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has another base
        self.open = True

    def connection_lost(self, _error: Exception | None) -> None:
        self.open = False
        self._fail(ConnectionResetError("the server went away"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionAbortedError(f"not an answer: {error}"))
            self.close()

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive():
            self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(self._parser.get_status_code())

    def ask(self, message: bytes) -> asyncio.Future[int]:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        return self._answer

    def close(self) -> None:
        self.open = False
        self._transport.abort()

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


class Peer:
    """A server's address as a client sees it, with as many connections as there are concurrent requests."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self.port = host, port
        self._idle: list[_Channel] = []

    async def ask(self, message: bytes) -> int:
        """Return the answer's status code. Raise ConnectionRefusedError if no server listens, ConnectionError
        if the server disconnects. If cancelled, it closes the connection, which informs the server."""
        channel = await self._channel()
        try:
            status = await channel.ask(message)
        except BaseException:
            channel.close()
            raise
        if channel.open:
            self._idle.append(channel)
        return status

    async def _channel(self) -> _Channel:
        while self._idle:
            channel = self._idle.pop()
            if channel.open:
                return channel
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(_Channel, self._host, self.port))[1]

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()


class Replicas:
    """The containers of a service as a client sees them: asked in turn, without those that are down."""

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self._peers = [Peer(host, port) for host, port in addresses]
        self._turn = 0

    async def ask(self, message: bytes) -> tuple[int, int]:
        """Return the answer's status code and the port of the replica that answered; see Peer.ask. Raise
        ConnectionRefusedError if no replica listens."""
        for left in reversed(range(len(self._peers))):
            peer = self._peers[self._turn]
            self._turn = (self._turn + 1) % len(self._peers)
            try:
                return await peer.ask(message), peer.port
            except ConnectionRefusedError:
                if not left:
                    raise
        raise ConnectionRefusedError("a service without containers")

    def close(self) -> None:
        """Close the idle connections."""
        for peer in self._peers:
            peer.close()
