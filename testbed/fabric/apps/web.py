"""Run HTTP between two endpoints: Python's own unmodified server, and clients that ask it again and again.

For: what faults do to requests: errors, and the longest wait. Not for: load (testbed.containers.load).
Source: Python's http.server. A client sends a request, waits for the answer, pauses, and sends the next, over
one connection or over a new one each time.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed.fabric import links
from testbed.fabric.apps.training import Floats, Whole
from testbed.fabric.model import Endpoint
from twinbed import BackendError

PORT = 8000
PAGE = "page.bin"
_UP_WITHIN_S = 20.0
_PAGE_BYTES = 16_384
_PAUSE_S, _PATIENCE_S = 0.01, 30.0
"""Pause between an answer and the next request, and time without a byte after which a request fails, s."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests that have ended. began_ns: int64[n], CLOCK_MONOTONIC, ns. took_s: float64[n], s. errors:
    messages of failed requests."""

    began_ns: Whole
    took_s: Floats
    errors: tuple[str, ...]

    @property
    def longest_s(self) -> float:
        """Longest time until an answer, s."""
        return float(self.took_s.max(initial=0.0))


@contextmanager
def server(place: Endpoint, folder: Path) -> Iterator[None]:
    """Run `python -m http.server` with one page during the block. Raises BackendError if it fails."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAGE).write_bytes(bytes(_PAGE_BYTES))
    serve = [sys.executable, "-m", "http.server", str(PORT), "--bind", place.address]
    serve += ["--protocol", "HTTP/1.1", "--directory", str(folder)]
    with (folder / "server.log").open("wb") as log:
        process = links.popen_in(place.namespace, serve, stdout=log, stderr=log)
    try:
        _wait_answer(place, process)
        yield
    finally:
        links.end(process)


class Clients(AbstractContextManager["Clients"]):
    """Clients at an endpoint that send requests while the block runs.

    address: the server's address. clients: number of clients. keep: whether a client has one
    connection for all its requests.
    """

    def __init__(
        self,
        place: Endpoint,
        address: str,
        *,
        clients: int = 4,
        keep: bool = True,
    ) -> None:
        self._place, self._address = place, address
        self._keep = keep
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, name=f"client {index}", daemon=True)
            for index in range(clients)
        ]
        self._answers: list[tuple[int, int]] = []
        self._errors: list[str] = []

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def requests(self) -> Requests:
        """Return the requests that have ended so far, in the order of their beginnings."""
        spans = np.array(sorted(self._answers), np.int64).reshape(-1, 2)
        return Requests(spans[:, 0], np.diff(spans)[:, 0] * 1e-9, tuple(self._errors))

    def _ask(self) -> None:
        with links.in_namespace(self._place.namespace):
            connection = http.client.HTTPConnection(self._address, PORT, timeout=_PATIENCE_S)
            while not self._over.wait(_PAUSE_S):
                began_ns = time.monotonic_ns()
                try:
                    _get(connection)
                    self._answers.append((began_ns, time.monotonic_ns()))
                except (OSError, http.client.HTTPException) as error:
                    self._errors.append(f"{type(error).__name__}: {error}")
                    connection.close()
                if not self._keep:
                    connection.close()
            connection.close()


def _get(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", f"/{PAGE}")
    answer = connection.getresponse()
    answer.read()
    if answer.status != http.client.OK:
        raise http.client.HTTPException(f"status {answer.status}")


def _wait_answer(place: Endpoint, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _UP_WITHIN_S
    with links.in_namespace(place.namespace):
        while process.poll() is None and time.monotonic() < until:
            connection = http.client.HTTPConnection(place.address, PORT, timeout=1.0)
            try:
                _get(connection)
            except OSError:
                time.sleep(0.02)
            else:
                return
            finally:
                connection.close()
    raise BackendError(f"http.server at {place.address}:{PORT} does not answer; see its server.log")
