"""Serve metrics to Prometheus at a port. No reader can slow down other readers or the program.

For: GET /metrics in threads of its own. Not for: the values (reading.py). The text is made once for all
readers within FRESH_S. A connection lasts DEADLINE_S at most. If too many connections are open, the oldest
one is closed. There is no password: listen only at addresses that authorised readers can reach.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from twinbed import BackendError, TwinbedError

FRESH_S = 0.5
"""Time for which the same text is given to further readers, s."""

DEADLINE_S = 10.0
"""Longest duration of a connection, s: Prometheus' default time-out."""

MOST_CONNECTIONS = 64
"""Largest number of connections that are open at a time."""

_SILENCE_S = 5.0
_LOOK_S = 0.1
_log = logging.getLogger("twinbed.metrics")


def serve(registry: CollectorRegistry, host: str, port: int) -> Callable[[], None]:
    """Answer GET /metrics until the returned function is called. Raises BackendError.

    host: a name or an address; port: 0 for any.
    """
    try:
        server = _Server(registry, host, port)
    except OSError as error:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise BackendError(
            f"{where}: metrics cannot be served there ({error.strerror}); choose another --metrics"
        ) from error
    _log.info("metrics at http://%s/metrics", server.address)
    thread = threading.Thread(target=server.serve_forever, args=(_LOOK_S,), daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.close_all()
        server.server_close()
        thread.join()

    return stop


class _Text:
    """The metrics as text. The text is made again when it is older than FRESH_S. Any thread may call it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._made_s = float("-inf")
        self._text: bytes | TwinbedError = b""

    def get(self) -> bytes:
        """Return the text. Raises the error with which it could not be made."""
        with self._lock:
            if time.monotonic() - self._made_s > FRESH_S:
                try:
                    self._text = generate_latest(self._registry)
                except TwinbedError as error:
                    self._text = error
                self._made_s = time.monotonic()
            if isinstance(self._text, TwinbedError):
                raise self._text
            return self._text


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        self.text = _Text(registry)
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float] = {}
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, address = found[0]
        super().__init__(address[:2], _Handler)  # type: ignore[arg-type]  # IPv6 has two parts more
        bound, number = self.socket.getsockname()[:2]
        self.address = f"[{bound}]:{number}" if ":" in bound else f"{bound}:{number}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Accept a connection. Close the oldest one if too many are open."""
        with self._lock:
            if len(self._open) >= MOST_CONNECTIONS:
                _close(next(iter(self._open)))
                del self._open[next(iter(self._open))]
            self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Remove a connection that was served."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close connections that are too old. The server's loop calls this regularly."""
        due_s = time.monotonic() - DEADLINE_S
        with self._lock:
            for connection, since_s in self._open.items():
                if since_s < due_s:
                    _close(connection)

    def close_all(self) -> None:
        """Close every connection. The connections' threads then end."""
        with self._lock:
            for connection in self._open:
                _close(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log our own errors in one line. A reader that went away is no error."""
        del request
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            _log.error("metrics for %s: %s: %s", client_address[0], type(error).__name__, error)


class _Handler(BaseHTTPRequestHandler):
    timeout = _SILENCE_S
    server: _Server

    def do_GET(self) -> None:
        """Answer with the metrics."""
        if self.path.partition("?")[0] not in ("/", "/metrics"):
            self.send_error(404, "the metrics are at /metrics")
            return
        try:
            text = self.server.text.get()
        except TwinbedError as error:
            self.send_error(503, str(error))
            return
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Log nothing, because scrapes are frequent."""


def _close(connection: socket.socket) -> None:
    """Shut a connection down. A thread that may wait for it closes the descriptor."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
