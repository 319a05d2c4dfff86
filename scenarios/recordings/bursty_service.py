"""A request-driven service in three roles: frontend, backend and cache, one process each.

For: being recorded (bursty_service.yaml) under the load of bursty_load.py. A request for an item goes to the
frontend (HTTP), which asks the cache (lines over TCP) and, on a miss, the backend (HTTP), which renders it;
the frontend compresses it and the cache keeps it, so its memory grows. Not for: a good service. Roles find
each other by TWINBED_ADDRESS_<ROLE>, 127.0.0.1 by default.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import os
import socket
import socketserver
import time
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORTS = {"frontend": 8080, "backend": 8081, "cache": 8082}
ITEM_BYTES = 16_000
DIGESTS = 2_500
"""SHA-256 sums that rendering an item takes: about 2 ms of CPU."""


def address(role: str) -> tuple[str, int]:
    """Where a role listens."""
    return os.environ.get(f"TWINBED_ADDRESS_{role.upper()}", "127.0.0.1"), PORTS[role]


def render(item: int) -> bytes:
    """An item's page: ITEM_BYTES of text that takes some CPU to make and depends on nothing but `item`."""
    digest, lines = str(item).encode(), []
    for _ in range(DIGESTS):
        digest = hashlib.sha256(digest).digest()
        lines.append(digest.hex())
    return "\n".join(sorted(lines)).encode()[:ITEM_BYTES]


class Backend(BaseHTTPRequestHandler):
    """Renders items: GET /ITEM."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answers with the item's page."""
        body = self.answer(int(self.path.removeprefix("/")))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, item: int) -> bytes:
        """What a client is sent."""
        return render(item)

    def log_message(self, *_: object) -> None:
        """Nothing: a line per request would be most of what is measured."""


class Frontend(Backend):
    """Answers from the cache; else from the backend, and then the cache is told."""

    def setup(self) -> None:
        """One connection to the cache and one to the backend for each client's connection."""
        super().setup()
        connection = socket.create_connection(address("cache"))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.cache = connection.makefile("rwb")
        self.backend = http.client.HTTPConnection(*address("backend"))

    def answer(self, item: int) -> bytes:
        """The page, compressed for the way to the client."""
        return zlib.compress(self.page(item))

    def page(self, item: int) -> bytes:
        """The page of an item."""
        self.cache.write(b"get %d\n" % item)
        self.cache.flush()
        if size := int(self.cache.readline()):
            return self.cache.read(size)
        self.backend.request("GET", f"/{item}")
        body = self.backend.getresponse().read()
        self.cache.write(b"set %d %d\n" % (item, len(body)) + body)
        self.cache.flush()
        return body


class Cache(socketserver.StreamRequestHandler):
    """Keeps items: `get ITEM` answers `SIZE` and that many bytes, 0 for none; `set ITEM SIZE` is silent."""

    wbufsize = -1
    disable_nagle_algorithm = True
    kept: dict[bytes, bytes] = {}  # noqa: RUF012 - one for all connections, which is the point of a cache

    def handle(self) -> None:
        """Serves a connection until it is closed."""
        while words := self.rfile.readline().split():
            if words[0] == b"set":
                self.kept[words[1]] = self.rfile.read(int(words[2]))
                continue
            body = self.kept.get(words[1], b"")
            self.wfile.write(b"%d\n" % len(body) + body)
            self.wfile.flush()


class CacheServer(socketserver.ThreadingTCPServer):
    """A thread per connection."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


class HttpServer(ThreadingHTTPServer):
    """A thread per connection."""

    request_queue_size = 128


ROLES: dict[str, Callable[[tuple[str, int]], socketserver.BaseServer]] = {
    "frontend": lambda address: HttpServer(address, Frontend),
    "backend": lambda address: HttpServer(address, Backend),
    "cache": lambda address: CacheServer(address, Cache),
}


def wait_for(role: str) -> None:
    """Waits until a role listens, which may still be starting."""
    for _ in range(600):
        try:
            return socket.create_connection(address(role)).close()
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"no {role} at {address(role)} within a minute")


def main() -> None:
    """Serves one role until ended. The frontend listens once it can ask the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=ROLES)
    role = parser.parse_args().role
    for other in ("cache", "backend") if role == "frontend" else ():
        wait_for(other)
    with ROLES[role](address(role)) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
