"""A controller and two agents as processes: set up, started, and checked all the time.

For: the invariants during faults: limits add up, and no process dies that was not killed. Not for: the
faults (fault_hosts.py). Each agent has a network namespace with one link to the controller's.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from testbed.containers.ownership import lasting_run
from testbed.containers.remote import certificates
from tests.faults.enclosure import ROOT
from tests.faults.fault_world import CASE, DEADLINE_S, Containers, ViolationError, World

HOSTS = ("east", "west")
CORES = 0.3
BYTES = 512 << 20
PORT = 7117
_POLL_S = 0.02
COMMANDS = {
    "busy": '[sh, -c, "while :; do :; done"]',
    "burst": "[perl, -e, 'for (;;) { $n = rand 3e6; 1 while --$n > 0; select undef, undef, undef, rand 2 }']",
    "calm": "[sleep, '100000']",
    "grow": "[perl, -e, 'for (1 .. 99) { push @k, q(x) x 5e5; select(undef, undef, undef, 0.1) } sleep 1e6']",
}
_HEAD = f"""\
policy: escra:gamma=0.01
applications:
  - name: shop
    cpu_limit_cores: {CORES}
    memory_limit_bytes: {BYTES}
    containers:
"""


@dataclass
class Verb:
    """A running `twinbed …` command and its output."""

    process: subprocess.Popen[bytes]
    log: Path
    seen: int = 0

    def says(self, text: str) -> bool:
        """Return whether the output since `seen` contains the text."""
        return text in self.log.read_text(errors="replace")[self.seen :]

    def from_here(self) -> None:
        """Ignore the output so far from now on."""
        self.seen = len(self.log.read_text(errors="replace"))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the process with a signal."""
        self.process.send_signal(number)
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ViolationError(f"{self.log.stem} did not end on {number.name}") from None
        if self.process.returncode:
            raise ViolationError(f"{self.log.stem} ended with {self.process.returncode}: {self.tail()}")

    def tail(self) -> str:
        """Return the last lines of the output."""
        return self.log.read_text(errors="replace")[-1500:]


@dataclass
class Episode:
    """The running processes. expected: the first process of each container, which must live; check: function
    that replaces `look` where another thread reads the limits."""

    world: World
    controller: Verb
    agents: dict[str, Verb] = field(default_factory=dict)
    expected: dict[str, int] = field(default_factory=dict)
    check: Callable[[], None] | None = None

    def containers(self, host: str) -> Containers:
        return Containers(lasting_run(host))

    def pids(self) -> dict[str, int | None]:
        return {
            name: min(pids, default=None)
            for host in HOSTS
            for name, pids in self.containers(host).pids().items()
        }

    def look(self) -> None:
        """Check the invariants at this moment."""
        if self.check is not None:
            self.check()
            return
        quotas: dict[str, float] = {}
        before: dict[str, float] = {"": 0.0}
        while quotas != before:
            before, quotas = (
                quotas,
                {k: v for host in HOSTS for k, v in self.containers(host).quotas().items()},
            )
        if sum(quotas.values()) > CORES + 4e-4:
            raise ViolationError(f"quotas beyond {CORES:g}: {quotas}")
        pids = {pid for host in HOSTS for found in self.containers(host).pids().values() for pid in found}
        dead = [name for name, pid in self.expected.items() if pid not in pids]
        if dead:
            raise ViolationError(f"died and was not killed: {dead}")

    def watch(self, lasts_s: float) -> None:
        """Check the invariants for lasts_s seconds."""
        ends = time.monotonic() + lasts_s
        while time.monotonic() < ends:
            self.look()
            time.sleep(_POLL_S)

    def until(self, done: Callable[[], object], what: str) -> None:
        """Check the invariants until `done` returns something true, as often as fits in DEADLINE_S.

        A machine that is too busy to check so often starts processes more slowly, too.
        """
        for _ in range(round(DEADLINE_S / _POLL_S)):
            if done():
                return
            self.look()
            time.sleep(_POLL_S)
        raise ViolationError(f"never: {what}; processes {self.pids()}{self.words()}")

    def words(self) -> str:
        """Return the last lines of all processes, and the exit codes of those that have ended."""
        codes = [(verb, verb.process.poll()) for verb in self.verbs()]
        return "".join(
            f"\n{verb.log.stem} ({'runs' if code is None else f'ended with {code}'}): {verb.tail()}"
            for verb, code in codes
        )

    def verbs(self) -> list[Verb]:
        return [self.controller, *self.agents.values()]

    def heal(self) -> None:
        """Wait until everything works again: all containers run with limits, and the controller knows both
        agents."""
        wanted = {f"{kind}-{host}" for host in HOSTS for kind in COMMANDS}
        self.until(lambda: {name for name, pid in self.pids().items() if pid} >= wanted, f"{wanted} run")
        for host in HOSTS:
            self.until(lambda host=host: self.knows(host), f"{host} is registered")  # type: ignore[misc]
        self.expected = {name: pid for name, pid in self.pids().items() if pid}
        self.until(self._all_limited, "limits for all")

    def knows(self, host: str) -> bool:
        """Return whether the controller's last line about the host says that it is connected."""
        lines = self.controller.log.read_text(errors="replace").splitlines()
        words = [line for line in lines if any(f"agent {host} {verb}" in line for verb in ("is", "left"))]
        return bool(words) and f"agent {host} is there" in words[-1]

    def _all_limited(self) -> bool:
        quotas = [quota for host in HOSTS for quota in self.containers(host).quotas().values()]
        return len(quotas) >= len(HOSTS) * len(COMMANDS) and max(quotas) < float("inf")


_started = 0


def _start(inside: list[str], *arguments: str) -> Verb:
    global _started
    _started += 1
    # The logs have a folder of their own, so that they can be read while /tmp is full.
    log = Path("/dev/shm/verbs") / f"{_started}-{arguments[0]}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as file:
        command = [*inside, sys.executable, "-m", "lab.cli.main", *arguments]
        return Verb(subprocess.Popen(command, stdout=file, stderr=file, cwd=ROOT), log)


def start_controller() -> Verb:
    config, pki = str(CASE / "shop.yaml"), str(CASE / "pki")
    return _start([], "controller", "run", config, "--pki", pki, "--listen", f"0.0.0.0:{PORT}")


def inside(host: str) -> list[str]:
    """Return the words before a command that runs it in a host's network."""
    return ["nsenter", f"--net=/run/netns/{host}"]


def address_for(host: str) -> str:
    """Return the address at which a host finds the controller."""
    return f"10.0.{HOSTS.index(host)}.1:{PORT}"


def start_agent(host: str, address: str | None = None) -> Verb:
    """Start an agent. address: address of the controller; None: on the host's own link."""
    words = ["--controller", address or address_for(host), "--identity", str(CASE / f"{host}.pem")]
    return _start(inside(host), "agent", "run", *words)


def lay_out() -> None:
    """Make the certificates, the deployment's file and the networks."""
    CASE.mkdir()
    certificates.init(CASE / "pki")
    lines = [_HEAD]
    for number, host in enumerate(HOSTS):
        certificates.write_private(CASE / f"{host}.pem", certificates.enroll(CASE / "pki", host).bundle())
        lines += [
            f"      - {{name: {kind}-{host}, agent: {host}, command: {words}}}\n"
            for kind, words in COMMANDS.items()
        ]
        for words in (
            f"netns add {host}",
            f"link add h-{host} type veth peer name eth0 netns {host}",
            f"address add 10.0.{number}.1/24 dev h-{host}",
            f"link set h-{host} up",
            f"-netns {host} address add 10.0.{number}.2/24 dev eth0",
            f"-netns {host} link set eth0 up",
            f"-netns {host} link set lo up",
        ):
            subprocess.run(["ip", *words.split()], check=True)
    (CASE / "shop.yaml").write_text("".join(lines))
