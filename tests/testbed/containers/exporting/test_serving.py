"""The port of the metrics, with readers that are slow, many, or no readers at all."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from testbed.containers.exporting import reading, serving
from testbed.containers.exporting.reading import LoopReader, Series, histogram, plain
from tests.testbed.containers.waiting import until
from twinbed import BackendError

DEADLINE_S = 30.0


def free_port(host: str = "127.0.0.1") -> int:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        return int(probe.getsockname()[1])


class Program:
    """A loop in a thread, whose figures are read. reads: how often."""

    def __init__(self) -> None:
        self.reads = 0
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def read(self) -> list[Series]:
        self.reads += 1
        return plain({"twinbed_records_total": self.reads})

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@contextmanager
def port(host: str = "127.0.0.1") -> Iterator[SimpleNamespace]:
    """A program and the port of its metrics."""
    program, registry, number = Program(), CollectorRegistry(), free_port(host)
    registry.register(LoopReader(program.read, program.loop))
    try:
        stop = serving.serve(registry, host, number)
        try:
            yield SimpleNamespace(program=program, registry=registry, host=host, number=number)
        finally:
            stop()
    finally:
        program.end()


def get(at: SimpleNamespace, path: str = "/metrics") -> tuple[int, str]:
    connection = http.client.HTTPConnection(at.host, at.number, timeout=DEADLINE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_the_text_is_what_prometheus_reads() -> None:
    with port() as at:
        histogram("twinbed_decision_latency_seconds", at.registry)(0.003)
        status, text = get(at)
        assert status == 200
        families = {family.name: family for family in text_string_to_metric_families(text)}
        assert families["twinbed_records"].type == "counter"
        assert families["twinbed_records"].documentation == "Number of period records handed to the policy."
        latency = {
            sample.labels.get("le"): sample.value
            for sample in families["twinbed_decision_latency_seconds"].samples
        }
        assert (latency["0.002"], latency["0.005"]) == (0.0, 1.0)
        assert get(at, "/")[0] == 200
        assert get(at, "/passwd")[0] == 404


def test_many_readers_are_one_reading() -> None:
    with port() as at, ThreadPoolExecutor(32) as pool:
        began_s = time.monotonic()
        answers = list(pool.map(lambda _: get(at), range(200)))
        spent_s = time.monotonic() - began_s
        assert {status for status, _ in answers} == {200}
        assert at.program.reads <= 2 + spent_s / serving.FRESH_S


def test_readers_that_say_or_read_nothing_do_not_keep_others_away() -> None:
    with port() as at, ExitStack() as undo:
        for _ in range(2 * serving.MOST_CONNECTIONS):
            slow = undo.enter_context(socket.create_connection((at.host, at.number)))
            slow.send(b"GET /metrics HTTP/1.1\r\n")
        assert get(at)[0] == 200
        assert threading.active_count() < 2 * serving.MOST_CONNECTIONS


def test_a_connection_is_closed_at_its_deadline_even_if_it_keeps_talking(monkeypatch) -> None:
    monkeypatch.setattr(serving, "DEADLINE_S", 0.2)
    with port() as at, socket.create_connection((at.host, at.number), timeout=DEADLINE_S) as slow:

        def is_closed() -> bool:
            try:
                slow.send(b"X")
            except OSError:
                return True
            return False

        until(is_closed)
        assert get(at)[0] == 200


@pytest.mark.parametrize(
    "bytes_", [b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", b"A" * 100_000, b"POST / HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_request_is_answered_with_an_error_or_closed(bytes_: bytes) -> None:
    with port() as at:
        with socket.create_connection((at.host, at.number), timeout=DEADLINE_S) as stranger:
            stranger.sendall(bytes_ + b"\r\n\r\n")
            try:
                said = stranger.recv(1 << 16)
            except ConnectionResetError:
                said = b""
            assert b"200" not in said[:20]
        assert get(at)[0] == 200


def test_a_busy_program_is_told_and_not_waited_for_by_each_reader(monkeypatch) -> None:
    monkeypatch.setattr(reading, "_WAIT_S", 0.1)
    monkeypatch.setattr(serving, "FRESH_S", 60.0)
    busy = threading.Event()
    with port() as at:
        at.program.loop.call_soon_threadsafe(busy.wait, DEADLINE_S)
        try:
            status, text = get(at)
            assert (status, get(at)[0]) == (503, 503)
            assert "no figures within 0.1 s: the program is busy" in text
        finally:
            busy.set()


def test_a_port_in_use_is_one_line() -> None:
    with port() as at, pytest.raises(BackendError) as error:
        serving.serve(CollectorRegistry(), at.host, at.number)
    assert str(error.value) == (
        f"127.0.0.1:{at.number}: metrics cannot be served there (Address already in use); choose another "
        "--metrics"
    )


def test_a_host_that_is_none_is_one_line() -> None:
    with pytest.raises(BackendError, match=r"^no-such-host\.invalid:9117: metrics cannot be served there"):
        serving.serve(CollectorRegistry(), "no-such-host.invalid", 9117)


def test_ipv6_is_an_address_like_any_other() -> None:
    try:
        free_port("::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with port("::1") as at:
        assert get(at)[0] == 200
        with pytest.raises(BackendError, match=rf"^\[::1\]:{at.number}: "):
            serving.serve(CollectorRegistry(), at.host, at.number)


def test_the_port_is_free_again_after_its_end() -> None:
    with port() as at:
        get(at)
    with socket.create_server((at.host, at.number)):
        pass
