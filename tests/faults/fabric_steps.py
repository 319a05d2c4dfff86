"""Break a fabric step by step: ports, cables, switches, daemons, agents and their rules.

For: fabric_campaign.py. Not for: what must hold afterwards (fabric_world.py). A step breaks something, may
leave it broken, and returns a description of what it did.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from control.fabric import Direction, Fault, FaultKind
from control.reconciler.model import Rules
from control.reconciler.ports import Add, Delete
from control.reconciler.settings import ReconcilerSettings
from testbed.fabric import faults
from testbed.fabric.links import popen_in
from testbed.fabric.model import Daemon, DaemonFault, Host
from testbed.fabric.rules.seen import installed
from tests.faults.fabric_world import CAUSE, Episode, change_rules, reasons_of, rules_of, wait_for
from tests.faults.fault_world import ViolationError, until

Step = Callable[[Episode, random.Random], str]

_OWNER = ReconcilerSettings().owner
_CHURN = 3_000
"""Number of rules to install while an agent is killed. Installing them takes some tenths of a second."""

_BURST = 40_000
"""Number of entries that come and go at once: twice what the monitor's buffer holds. The kernel doubles the
buffer to 32 MiB and counts 832 bytes per message (Linux 6.18; other versions 768)."""

_LONGEST_S = 1.5


def port(episode: Episode, draws: random.Random) -> str:
    """Let a port fail silently, in one direction or both."""
    one_way = draws.choice((None, *Direction))
    return _break(episode, draws, Fault(FaultKind.PORT, *_uplink(episode, draws), one_way=one_way))


def cable(episode: Episode, draws: random.Random) -> str:
    """Let both ends of a cable lose their carrier."""
    return _break(episode, draws, Fault(FaultKind.LINK, *_uplink(episode, draws), silent=False))


def switch(episode: Episode, draws: random.Random) -> str:
    """Let all ports of a ToR fail, silently or not."""
    silent = draws.random() < 0.5
    return _break(episode, draws, Fault(FaultKind.TOR, tor=_tor(episode, draws), silent=silent))


def daemons(episode: Episode, draws: random.Random) -> str:
    """Kill some daemons of a host or a ToR."""
    killed = tuple(draws.sample(tuple(Daemon), draws.randint(1, len(Daemon))))
    at_host = draws.random() < 0.5
    host = draws.randrange(len(episode.fabric.hosts)) if at_host else -1
    tor = -1 if at_host else _tor(episode, draws)
    return _break(episode, draws, DaemonFault(host=host, tor=tor, daemons=killed))


def flapping(episode: Episode, draws: random.Random) -> str:
    """Let a port or cable fail and recover several times."""
    kind, times = draws.choice((FaultKind.PORT, FaultKind.LINK)), draws.randint(2, 6)
    fault = Fault(kind, *_uplink(episode, draws), silent=kind is FaultKind.PORT)
    down_s, up_s = draws.uniform(0.0, 0.4), draws.uniform(0.0, 0.4)
    for number in range(times):
        time.sleep(up_s if number else 0.0)
        faults.inject(episode.fabric, fault)
        time.sleep(down_s)
        faults.clear(episode.fabric, fault)
    return f"{_words(fault)} {times} times"


def agent_killed(episode: Episode, draws: random.Random) -> str:
    """Kill an agent while it installs rules. Its successor finds the rules that are installed."""
    host = _host(episode, draws)
    entries = _Entries(episode, host)
    before = len(installed(host.namespace).mac)
    with entries.writing("append", _CHURN):
        wait_for(draws.uniform(0.0, 0.3), lambda: False)
        episode.agents.kill(host.index)
        had = len(installed(host.namespace).mac) - before
    if draws.random() < 0.5:
        entries.write("del", _CHURN)
        episode.agents.start(host.index)
    else:
        episode.agents.start(host.index)
        wait_for(draws.uniform(0.0, 0.5), lambda: False)
        entries.write("del", _CHURN)
    episode.agents.wait_ready(host.index)
    return f"kill -9 of the agent of h{host.index} after {had} of {_CHURN} rules"


def overflow(episode: Episode, draws: random.Random) -> str:
    """Send more messages than the buffer holds while the agent is stopped, so that some are lost."""
    host = _host(episode, draws)
    entries = _Entries(episode, host)
    before = episode.agents.wait_ready(host.index)
    pid = before["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        for verb in ("append", "del"):
            entries.write(verb, _BURST)
        if stays := draws.random() < 0.5:
            entries.write("append", _CHURN)
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: _overflows(episode, host) > before["overflows"], f"the agent of h{host.index} notices")
    if stays:
        wait_for(draws.uniform(0.0, 1.0), lambda: len(episode.rules(host)) > _CHURN)
        entries.write("del", _CHURN)
    return f"{2 * _BURST} changes unheard by the agent of h{host.index}"


def _overflows(episode: Episode, host: Host) -> int:
    return int((episode.agents.report(host.index) or {"overflows": 0})["overflows"])


def rule_deleted(episode: Episode, draws: random.Random) -> str:
    """Let another program remove some of our rules."""
    host = _host(episode, draws)
    ours = rules_of(host, _OWNER)
    some = ours.take(np.array([draws.random() < 0.7 for _ in ours.mac], bool))
    change_rules(host, _OWNER, Delete(1, some, reasons_of(some), CAUSE))
    return f"{len(some.mac)} rules of h{host.index} deleted"


def rule_added(episode: Episode, draws: random.Random) -> str:
    """Let another program add a rule with our mark: an unwanted one, or one that leads to the wrong VTEP."""
    host = _host(episode, draws)
    ours = rules_of(host, _OWNER)
    if not len(ours.mac):
        return "no rule to copy"
    stray = ours.take(slice(0, 1))
    columns = {name: getattr(stray, name).copy() for name in Rules.__slots__}
    columns["mac"] = columns["mac"] + draws.choice((0, 77))
    columns["remote"] = columns["remote"] + 9
    columns["handle"] = columns["handle"] * 0
    wrong = Rules(**columns)
    change_rules(host, _OWNER, Add(1, wrong, reasons_of(wrong), CAUSE))
    return f"a wrong rule added to h{host.index}"


STEPS: dict[Step, int] = {
    port: 4,
    cable: 3,
    switch: 2,
    daemons: 3,
    flapping: 2,
    agent_killed: 2,
    overflow: 1,
    rule_deleted: 1,
    rule_added: 1,
}
"""Weight of every step in the random draw."""


def _break(episode: Episode, draws: random.Random, fault: Fault | DaemonFault) -> str:
    """Inject a fault for a while, or until the sequence is over, so that faults overlap."""
    faults.inject(episode.fabric, fault)
    lasts_s, stays = draws.uniform(0.0, _LONGEST_S), draws.random() < 0.4
    wait_for(lasts_s, lambda: False)
    if not stays:
        faults.clear(episode.fabric, fault)
    return f"{_words(fault)} {'left' if stays else f'for {lasts_s:.1f} s'}"


def _words(fault: Fault | DaemonFault) -> str:
    if isinstance(fault, DaemonFault):
        place = f"h{fault.host}" if fault.tor < 0 else f"t{fault.tor}"
        return f"{'+'.join(fault.daemons)} of {place}"
    if fault.kind is FaultKind.TOR:
        return f"tor t{fault.tor}{'' if fault.silent else ' with carriers'}"
    way = "" if fault.one_way is None else f" {fault.one_way.name.lower()}"
    return f"{fault.kind} h{fault.host}-{fault.uplink}{way}"


def _host(episode: Episode, draws: random.Random) -> Host:
    return draws.choice(episode.fabric.hosts)


def _uplink(episode: Episode, draws: random.Random) -> tuple[int, int]:
    host = _host(episode, draws)
    return host.index, draws.randrange(len(host.uplinks))


def _tor(episode: Episode, draws: random.Random) -> int:
    return draws.randrange(len(episode.fabric.tors))


class _Entries:
    """Forwarding entries at a host, as routing would write them, for addresses that do not exist."""

    def __init__(self, episode: Episode, host: Host) -> None:
        other = next(other for other in episode.fabric.hosts if other is not host)
        self._place, self._remote = host, other.loopback

    def write(self, verb: str, count: int) -> None:
        """Write the entries. verb: append or del; routing may have deleted some itself."""
        with self.writing(verb, count):
            pass

    @contextmanager
    def writing(self, verb: str, count: int) -> Iterator[None]:
        """Write the entries while the block runs."""
        with tempfile.TemporaryFile() as file:
            for number in range(count):
                mac = f"02:88:00:00:{number // 256:02x}:{number % 256:02x}"
                entry = f"{mac} dev {self._place.segments[0].tunnel} dst {self._remote} self extern_learn"
                file.write(f"fdb {verb} {entry}\n".encode())
            file.seek(0)
            command = ("bridge", "-force", "-batch", "-")
            process = popen_in(self._place.namespace, command, stdin=file, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            code = process.wait()
        if code and verb != "del":
            raise ViolationError(f"bridge fdb {verb} at {self._place.namespace} was refused")
