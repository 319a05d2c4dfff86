"""Two agents in network namespaces of their own, with real cgroups and busy commands; needs root."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.containers import network, ownership
from testbed.containers.cgroup.drivers import detect
from testbed.containers.remote import certificates
from testbed.containers.remote.place import STATE
from tests.testbed.containers.real_groups import quota_of
from tests.testbed.containers.waiting import is_gone, until

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("cgroups")]

CORES = 0.2
CONTROLLER = "198.18.255.254"
DEADLINE_S = 60.0
ROUNDING_CORES = 4e-5
HOSTS = (f"east-{os.getpid()}", f"west-{os.getpid()}")
DEPLOYMENT = f"""\
policy: escra:gamma=0.01
applications:
  - name: shop
    cpu_limit_cores: {CORES}
    memory_limit_bytes: 268435456
    containers:
      - {{name: busy-e, agent: {HOSTS[0]}, command: [sh, -c, "while :; do :; done"]}}
      - {{name: calm-e, agent: {HOSTS[0]}, command: [sleep, "1000"]}}
      - {{name: busy-w, agent: {HOSTS[1]}, command: [sh, -c, "while :; do :; done"]}}
      - {{name: calm-w, agent: {HOSTS[1]}, command: [sleep, "1000"]}}
"""


@dataclass
class Verb:
    """A running `twinbed …`; its log is a file."""

    process: subprocess.Popen[bytes]
    log: Path

    def says(self, text: str) -> bool:
        return text in self.log.read_text()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(DEADLINE_S)


def start(log: Path, inside: list[str], *arguments: str) -> Verb:
    """Starts `twinbed …`, behind the words of a command that brings it elsewhere."""
    command = [*inside, sys.executable, "-m", "lab.cli.main", *arguments]
    with log.open("wb") as file:
        return Verb(subprocess.Popen(command, stdout=file, stderr=file), log)


class World:
    """The bridge, the two namespaces and what runs in them."""

    def __init__(self, folder: Path, namespaces: dict[str, str], undo: ExitStack) -> None:
        self.folder, self._namespaces, self._undo = folder, namespaces, undo
        certificates.init(folder / "pki")
        for host in HOSTS:
            bundle = certificates.enroll(folder / "pki", host).bundle()
            certificates.write_private(folder / f"{host}.pem", bundle)
        (folder / "shop.yaml").write_text(DEPLOYMENT)
        with socket.socket() as free:
            free.bind((CONTROLLER, 0))
            self.address = f"{CONTROLLER}:{free.getsockname()[1]}"
        self._verbs = 0

    def controller(self) -> Verb:
        config, pki = str(self.folder / "shop.yaml"), str(self.folder / "pki")
        return self._start([], "controller", "run", config, "--pki", pki, "--listen", self.address)

    def agent(self, host: str) -> Verb:
        inside = ["nsenter", f"--net=/run/netns/{self._namespaces[host]}"]
        identity = str(self.folder / f"{host}.pem")
        return self._start(inside, "agent", "run", "--controller", self.address, "--identity", identity)

    def _start(self, inside: list[str], *arguments: str) -> Verb:
        self._verbs += 1
        verb = start(self.folder / f"{self._verbs}-{arguments[0]}.log", inside, *arguments)
        self._undo.callback(verb.end)
        return verb


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if shutil.which("nsenter") is None or shutil.which("ip") is None:
        pytest.skip("network namespaces need the commands ip and nsenter (apt install iproute2 util-linux)")
    run = ownership.new_run()
    made = network.Network(run, ["e", "w"])
    with ExitStack() as undo:
        undo.callback(made.remove)
        # The containers' bridge has no address of its own; here the host is to be reached.
        (bridge,) = {link.rpartition("-")[0] for link in _links(made)}
        subprocess.run(["ip", "address", "add", f"{CONTROLLER}/16", "dev", bridge], check=True)
        namespaces = {host: end.namespace for host, end in zip(HOSTS, made.endpoints, strict=True)}
        yield World(tmp_path, namespaces, undo)


def _links(made: network.Network) -> list[str]:
    """The host's ends of the run's pairs."""
    return [each for each in network.links_of(made._run) if each.count("-") == 2]


def groups() -> dict[str, Path]:
    """The directory of each container's CPU cgroup that is there."""
    driver = detect()
    base = driver.base["cpu"] if driver.version == 1 else driver.base  # type: ignore[index]
    there = [Path(str(base)) / ownership.MARK / ownership.lasting_run(host) for host in HOSTS]
    return {path.name: path for run in there if run.is_dir() for path in run.iterdir() if path.is_dir()}


def quotas() -> dict[str, float]:
    """All quotas at one moment: read until two readings in a row agree."""
    before: dict[str, float] = {}
    while True:
        now = {name: quota_of(directory) for name, directory in groups().items()}
        if now == before:
            return now
        before = now


def pids() -> set[str]:
    return {pid for group in groups().values() for pid in (group / "cgroup.procs").read_text().split()}


def within_the_global_limit(duration_s: float) -> None:
    """Looks at the sum all the time; what two agents write must add up at every moment."""
    ends = time.monotonic() + duration_s
    while time.monotonic() < ends:
        assert sum(quotas().values()) <= CORES + ROUNDING_CORES


def test_two_hosts_share_one_limit_through_kills_of_agent_and_controller(world: World) -> None:
    controller = world.controller()
    agents = {host: world.agent(host) for host in HOSTS}
    until(lambda: len(pids()) == 4, "four commands")
    within_the_global_limit(1.0)
    until(lambda: quotas()["busy-e"] + quotas()["busy-w"] > 0.55 * CORES, "the busy ones have most of it")
    running = pids()

    agents[HOSTS[0]].kill()
    until(lambda: controller.says(f"agent {HOSTS[0]} is lost"), "noticed")
    held = {name: quota for name, quota in quotas().items() if name.endswith("-e")}
    within_the_global_limit(0.5)
    assert {name: quota for name, quota in quotas().items() if name.endswith("-e")} == held
    agents[HOSTS[0]] = world.agent(HOSTS[0])
    until(lambda: agents[HOSTS[0]].says("registered"), "back")
    within_the_global_limit(0.5)
    assert pids() == running

    controller.kill()
    until(lambda: all(agent.says("limits stay unchanged") for agent in agents.values()), "noticed")
    held = quotas()
    time.sleep(0.5)  # nothing may happen in this time, so there is nothing to wait for
    assert quotas() == held
    controller = world.controller()
    for host in HOSTS:
        until(lambda host=host: controller.says(f"agent {host} is there"), "registered anew")  # type: ignore[misc]
    until(lambda: quotas() != held, "decided anew")
    within_the_global_limit(1.0)
    assert pids() == running

    for agent in agents.values():
        agent.end()
    until(lambda: all(controller.says(f"agent {host} left") for host in HOSTS), "a good-bye")
    controller.end()
    assert groups() == {}
    assert not any((STATE / host).exists() for host in HOSTS)
    assert all(is_gone(int(pid)) for pid in running)
