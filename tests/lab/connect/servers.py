"""Real Prometheus and VictoriaMetrics servers on free ports of the loopback, and servers that misbehave."""

from __future__ import annotations

import http.client
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

LOOK_S = 0.01
"""Time between two looks of a server at whether it shall end, s."""


def needs(program: str) -> str:
    """Return the path of a program, or skip the test."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed; see make system")
    return path


def free_port() -> int:
    """Return a port of the loopback on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def prometheus(folder: Path, openmetrics: str) -> Iterator[str]:
    """A Prometheus that holds these samples, as its address."""
    server, promtool = needs("prometheus"), needs("promtool")
    text, data, config = folder / "samples.om", folder / "data", folder / "prometheus.yml"
    text.write_text(openmetrics)
    config.write_text("global: {scrape_interval: 1h}\n")
    made = subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", text, data], capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-2000:]
    port = free_port()
    command = [server, f"--config.file={config}", f"--storage.tsdb.path={data}"]
    command += ["--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}"]
    with _running(command, folder, port, "/-/ready"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def scraping(folder: Path, config: str) -> Iterator[str]:
    """A Prometheus that scrapes as its configuration says, as its address."""
    server, file = needs("prometheus"), folder / "prometheus.yml"
    file.write_text(config)
    port = free_port()
    command = [server, f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
    with _running([*command, f"--web.listen-address=127.0.0.1:{port}"], folder, port, "/-/ready"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def victoria_metrics(folder: Path, exposition: str) -> Iterator[str]:
    """A VictoriaMetrics that holds these samples, as its address."""
    server = needs("victoria-metrics")
    port = free_port()
    command = [server, f"-storageDataPath={folder / 'victoria'}", "-retentionPeriod=100y"]
    command += [f"-httpListenAddr=127.0.0.1:{port}", "-search.latencyOffset=0s"]
    with _running(command, folder, port, "/health"):
        assert _asked(port, "POST", "/api/v1/import/prometheus", exposition.encode()) in (200, 204)
        assert _asked(port, "GET", "/internal/force_flush") == 200
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _running(command: list[str], folder: Path, port: int, ready: str) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while not _is_ready(port, ready):
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline_s, (folder / "log").read_text()[-2000:]
            time.sleep(0.05)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_ready(port: int, path: str) -> bool:
    try:
        return _asked(port, "GET", path) == 200
    except OSError:
        return False


def _asked(port: int, method: str, path: str, body: bytes | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


Answer = Callable[[BaseHTTPRequestHandler, bytes], None]
"""Answers one request, of which the body was read."""


@contextmanager
def http_server(answer: Answer, certificate: Path | None = None) -> Iterator[str]:
    """A server that answers POST and GET as `answer` does, as its address; with a certificate: over TLS."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # A body sent after its head would wait 40 ms for an answer.

        def do_POST(self) -> None:
            answer(self, self.rfile.read(int(self.headers.get("Content-Length", 0))))

        def do_GET(self) -> None:
            answer(self, b"")

        def log_message(self, *arguments: object) -> None:
            del arguments

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(LOOK_S,), daemon=True)
    thread.start()
    try:
        scheme = "http" if certificate is None else "https"
        yield f"{scheme}://{'127.0.0.1' if certificate is None else 'localhost'}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def say(handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
    """Answer with a status and a whole body."""
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def proxy(target: str, token: str) -> Answer:
    """Answer as the server at `target` does, if the request bears the token."""
    port = int(target.rpartition(":")[2])

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.headers.get("Authorization") != f"Bearer {token}":
            say(handler, 401, b"Unauthorized")
            return
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request("POST", handler.path, body, {"Content-Type": handler.headers["Content-Type"]})
        response = connection.getresponse()
        say(handler, response.status, response.read())
        connection.close()

    return answer


def certificate(folder: Path) -> Path:
    """Return a file with a new key and a certificate for localhost, signed by itself."""
    openssl = needs("openssl")
    both = folder / "server.pem"
    ca, key = folder / "ca.pem", folder / "key.pem"
    command = [
        openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
    ]  # fmt: skip
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(ca)]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
    both.write_text(key.read_text() + ca.read_text())
    return both
