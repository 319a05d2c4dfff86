"""A controller and an agent as real processes over IPv6, with real cgroups and signals; needs root."""

from __future__ import annotations

import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.cli.main import call
from tests.testbed.containers.remote.test_two_hosts import Verb, start
from tests.testbed.containers.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("cgroups")]

HOST = f"six-{os.getpid()}"
DEPLOYMENT = f"""\
applications:
  - name: shop
    cpu_limit_cores: 0.2
    memory_limit_bytes: 268435456
    containers:
      - {{name: busy, agent: {HOST}, command: [sh, -c, "while :; do :; done"]}}
"""


class Pair:
    """A controller and its agent on ::1, and what is asked of them."""

    def __init__(self, folder: Path, undo: ExitStack) -> None:
        self.folder, self.pki = folder, folder / "pki"
        (folder / "shop.yaml").write_text(DEPLOYMENT)
        assert call(["controller", "init", "--pki", str(self.pki)]) == 0
        self.enroll()
        listen, metrics = free_ports()
        self.metrics = f"http://[::1]:{metrics}/metrics"
        words = ("controller", "run", str(folder / "shop.yaml"), "--pki", str(self.pki))
        where = ("--listen", f"[::1]:{listen}", "--metrics", f"[::1]:{metrics}")
        self.controller = self._start(undo, *words, *where)
        until(lambda: self.controller.says("listening on port"), "the controller listens")
        identity = ("--identity", str(folder / "agent.pem"))
        self.agent = self._start(undo, "agent", "run", "--controller", f"[::1]:{listen}", *identity)
        until(lambda: self.agent.says("registered with"), "the agent is there")

    def _start(self, undo: ExitStack, *words: str) -> Verb:
        verb = start(self.folder / f"{words[0]}.log", [], *words)
        undo.callback(verb.end)
        return verb

    def enroll(self) -> str:
        """Makes a certificate and stores it where the agent reads it; returns the serial number."""
        bundle = str(self.folder / "new.pem")
        enroll = ["controller", "enroll", HOST, "--pki", str(self.pki), "--out", bundle, "--replace"]
        assert call(enroll) == 0
        assert call(["agent", "enroll", bundle, "--identity", str(self.folder / "agent.pem")]) == 0
        return (self.pki / "issued").read_text().split()[-2]

    def revoke(self, serial: str) -> None:
        assert call(["controller", "revoke", serial, "--pki", str(self.pki)]) == 0

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(self.metrics, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def free_ports() -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket(socket.AF_INET6)) for _ in range(2)]
        for each in sockets:
            each.bind(("::1", 0))
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("needs IPv6")
    with ExitStack() as undo:
        yield Pair(tmp_path, undo)


def periods(pair: Pair) -> float:
    return pair.metric("twinbed_container_throttled_periods_total")


def telemetry_goes_on(pair: Pair) -> None:
    before = periods(pair)
    until(lambda: periods(pair) > before, "telemetry arrives and is counted")


def test_control_telemetry_and_metrics_work_over_ipv6(pair: Pair) -> None:
    telemetry_goes_on(pair)
    assert 0 < pair.metric("twinbed_container_cpu_limit_cores") <= 0.2


def test_sighup_rotates_the_agents_certificate_and_the_controllers_list(pair: Pair) -> None:
    first = (pair.pki / "issued").read_text().split()[0]
    second = pair.enroll()
    pair.agent.process.send_signal(signal.SIGHUP)
    until(lambda: pair.agent.log.read_text().count("registered with") == 2, "the agent connects anew")
    pair.revoke(first)
    pair.controller.process.send_signal(signal.SIGHUP)
    until(lambda: pair.controller.says("revoked certificates: 1"), "the list is read anew")
    # With its first certificate the agent's call would have ended here, and no other would be let in.
    telemetry_goes_on(pair)

    (pair.folder / "agent.pem").write_bytes(b"damaged")
    pair.agent.process.send_signal(signal.SIGHUP)
    until(lambda: pair.agent.says("the former certificate stays in use"), "a damaged file is refused")
    telemetry_goes_on(pair)

    pair.revoke(second)
    until(lambda: pair.agent.says("revoked"), "the agent is told why")
    assert pair.agent.process.poll() is None
