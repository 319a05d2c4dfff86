"""The proxy of the campaign does what its weather says, and keeps the bytes of a stream in order."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults.enclosure import HERE

LONG_S = 20.0


class Wire:
    """A proxy between two sockets of this process. near: the client's end; far: the server's."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        port = self._server.getsockname()[1]
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.datagrams.bind(("127.0.0.1", port))
        with socket.create_server(("127.0.0.1", 0)) as free:
            listen = free.getsockname()
        self._listen = listen
        command = [sys.executable, str(HERE / "proxy.py"), f"127.0.0.1:{listen[1]}", f"127.0.0.1:{port}"]
        self._proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._proxy.stdout is not None
        assert self._proxy.stdout.readline() == b"ready\n"
        self.near = socket.create_connection(listen)
        self.far, _ = self._server.accept()
        for end in (self.near, self.far, self.datagrams):
            end.settimeout(LONG_S)

    def tell(self, **words: object) -> None:
        """Change the weather, and wait until it has changed."""
        assert self._proxy.stdin is not None
        self._proxy.stdin.write(json.dumps(words).encode() + b"\n")
        self._proxy.stdin.flush()
        time.sleep(0.2)

    def send(self, *datagrams: bytes) -> None:
        """Send datagrams towards the server."""
        for datagram in datagrams:
            self.datagrams.sendto(datagram, self._listen)

    def close(self) -> None:
        """End everything."""
        self._proxy.kill()
        self._proxy.communicate()
        for end in (self.near, self.far, self.datagrams, self._server):
            end.close()


@contextmanager
def wire() -> Iterator[Wire]:
    made = Wire()
    try:
        yield made
    finally:
        made.close()


def read(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += end.recv(count - len(data))
    return data


def test_a_stream_passes_in_both_directions_in_order_and_late() -> None:
    with wire() as between:
        between.tell(delay_s=0.3)
        sent_s = time.monotonic()
        data = bytes(range(256)) * 1000
        between.near.sendall(data)
        assert read(between.far, len(data)) == data
        assert time.monotonic() - sent_s >= 0.3
        between.far.sendall(b"answer")
        assert read(between.near, 6) == b"answer"


def test_a_stalled_direction_is_silent_and_the_other_goes_on() -> None:
    with wire() as between:
        between.tell(stalled="up")
        between.near.sendall(b"up")
        between.far.sendall(b"down")
        assert read(between.near, 4) == b"down"
        between.far.settimeout(0.3)
        with pytest.raises(TimeoutError):
            between.far.recv(1)
        between.far.settimeout(LONG_S)
        between.tell(stalled="")
        assert read(between.far, 2) == b"up"


def test_a_cut_resets_both_sides() -> None:
    with wire() as between:
        between.near.sendall(b"x")
        assert read(between.far, 1) == b"x"
        between.tell(reset=True)
        for end in (between.near, between.far):
            with pytest.raises(ConnectionResetError):
                end.recv(1)


def test_datagrams_come_twice_and_in_another_order() -> None:
    with wire() as between:
        between.tell(doubled=1.0, held=1.0)
        names = [b"%d" % number for number in range(50)]
        between.send(*names)
        came = [between.datagrams.recv(100) for _ in range(100)]
        assert sorted(came) == sorted(2 * names)
        assert came != sorted(came, key=int)
