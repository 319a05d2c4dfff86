"""Faults of a controller and its agents that may overlap: each begins, lasts, and is healed.

For: drawing a plan of faults from a seed, and carrying out each fault. Not for: their times (sequences.py),
nor what must hold meanwhile (watcher.py). A fault is a context manager: the code before its `yield` breaks
something, and the code after it heals the damage. Faults of one kind of thing at one place never overlap:
`draw` sees to that.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.fault_world import fill, make_room, step_clock
from tests.faults.running_hosts import COMMANDS, HOSTS, Episode, inside, start_agent, start_controller

CONTROLLER = "controller"
WAYS = ("up", "down")
"""Directions of traffic: `up` is from the agent to the controller, `down` is the other way."""

_PAST_S = 250.0
"""Furthest step into the past, s: certificates are good from 5 minutes before they are made."""

_FUTURE_S = 1e7
"""Furthest step into the future, s: certificates are good for a year."""


@dataclass
class Sequence:
    """The processes into which a sequence of faults is injected. proxied: the host behind the proxy; down:
    processes that a fault has killed; bereft: hosts with a container that a fault has killed."""

    running: Episode
    proxied: str
    proxy: subprocess.Popen[bytes]
    addresses: Mapping[str, str]
    down: set[str] = field(default_factory=set)
    bereft: set[str] = field(default_factory=set)

    def tell_proxy(self, **words: object) -> None:
        """Change the proxy's weather."""
        assert self.proxy.stdin is not None
        self.proxy.stdin.write(json.dumps(words).encode() + b"\n")
        self.proxy.stdin.flush()

    def start(self, where: str) -> None:
        """Start the controller or an agent again."""
        if where == CONTROLLER:
            self.running.controller = start_controller()
        else:
            self.running.agents[where] = start_agent(where, self.addresses.get(where))

    def process(self, where: str) -> subprocess.Popen[bytes]:
        """The controller's or an agent's process."""
        return (self.running.controller if where == CONTROLLER else self.running.agents[where]).process


@dataclass(frozen=True)
class Fault:
    """where: process, host or container; way: direction or protocol, as its kind reads it; amount: in the
    unit of its kind; times in seconds from the beginning of the sequence."""

    kind: str
    where: str
    begins_s: float
    ends_s: float
    way: str = ""
    amount: float = 0.0

    def __str__(self) -> str:
        words = [self.kind, self.where, self.way, f"{self.amount:g}" if self.amount else ""]
        return f"{' '.join(word for word in words if word)} {self.begins_s:.1f}-{self.ends_s:.1f}"

    @property
    def place(self) -> tuple[str, str]:
        """Return the thing that no other fault may touch at the same time."""
        return KINDS[self.kind].thing, self.where


Act = Callable[[Sequence, Fault], AbstractContextManager[None]]
"""Breaks something when it is entered, and heals it when it is left."""


@dataclass(frozen=True)
class Kind:
    """weight: how often it is drawn; thing: what it touches; most_s: longest duration, 0 = it is over at
    once; where: where it may be, given the proxied host; settings: draws way and amount."""

    weight: int
    act: Act
    thing: str
    most_s: float
    where: Callable[[str], tuple[str, ...]]
    settings: Callable[[random.Random], tuple[str, float]] = lambda _draws: ("", 0.0)


# --- processes ------------------------------------------------------------------------------------


@contextmanager
def pause(sequence: Sequence, fault: Fault) -> Iterator[None]:
    """Stop a process (SIGSTOP), and let it continue at the end (SIGCONT)."""
    process = sequence.process(fault.where)
    process.send_signal(signal.SIGSTOP)
    yield
    process.send_signal(signal.SIGCONT)


@contextmanager
def kill(sequence: Sequence, fault: Fault) -> Iterator[None]:
    """Kill a process (SIGKILL). Its successor starts at the end."""
    sequence.down.add(fault.where)
    process = sequence.process(fault.where)
    process.kill()
    process.wait()
    yield
    sequence.start(fault.where)
    sequence.down.discard(fault.where)


@contextmanager
def kill_container(sequence: Sequence, fault: Fault) -> Iterator[None]:
    """Kill a command (SIGKILL). Nothing happens if it does not run at that moment."""
    running = sequence.running
    pid = running.expected.pop(fault.where, None)
    sequence.bereft.add(fault.where.rpartition("-")[2])
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
        # A process without quota dies in the next period. Until then it looks like one that runs.
        running.until(lambda: running.pids().get(fault.where) != pid, "it is gone")
    yield


# --- networks -------------------------------------------------------------------------------------


@contextmanager
def link(_sequence: Sequence, fault: Fault) -> Iterator[None]:
    """Take the host's link down."""
    _run(["ip", "link", "set", f"h-{fault.where}", "down"])
    yield
    _run(["ip", "link", "set", f"h-{fault.where}", "up"])


@contextmanager
def loss(_sequence: Sequence, fault: Fault) -> Iterator[None]:
    """Drop a share of the packets of one direction: of all, or of TCP or UDP only. amount: percent."""
    way, protocol = fault.way.split("/")
    hook, port = ("output", "oifname") if way == "up" else ("input", "iifname")
    match = "" if protocol == "all" else f"meta l4proto {protocol} "
    chance = "" if fault.amount >= 100 else f"numgen random mod 100 < {fault.amount:.0f} "
    rules = (
        "table inet loss {\n chain drops {\n"
        f"  type filter hook {hook} priority 0; policy accept;\n"
        f'  {port} "eth0" {match}{chance}drop\n }}\n}}\n'
    )
    _run([*inside(fault.where), "nft", "-f", "-"], rules)
    yield
    _run([*inside(fault.where), "nft", "delete", "table", "inet", "loss"])


@contextmanager
def rate(_sequence: Sequence, fault: Fault) -> Iterator[None]:
    """Limit the rate in one direction with HTB and a short queue. amount: kbit/s."""
    enter = inside(fault.where) if fault.way == "up" else []
    device = "eth0" if fault.way == "up" else f"h-{fault.where}"
    _run([*enter, "tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "1"])
    limit = ["htb", "rate", f"{fault.amount:.0f}kbit", "burst", "1600", "quantum", "1600"]
    _run([*enter, "tc", "class", "add", "dev", device, "parent", "1:", "classid", "1:1", *limit])
    _run([*enter, "tc", "qdisc", "add", "dev", device, "parent", "1:1", "pfifo", "limit", "20"])
    yield
    _run([*enter, "tc", "qdisc", "delete", "dev", device, "root"])


def _weather(word: str) -> Act:
    """Return the fault in which the proxy treats traffic as `word` says, to the fault's amount."""

    @contextmanager
    def act(sequence: Sequence, fault: Fault) -> Iterator[None]:
        sequence.tell_proxy(**{word: fault.amount})
        yield
        sequence.tell_proxy(**{word: 0.0})

    return act


delay = _weather("delay_s")
"""The proxy delays streams and datagrams. amount: s."""

reorder = _weather("held")
"""The proxy sends a share of the datagrams later than their successors."""

double = _weather("doubled")
"""The proxy sends a share of the datagrams twice."""


@contextmanager
def stall(sequence: Sequence, fault: Fault) -> Iterator[None]:
    """Let the proxy keep streams open, but pass no byte in one direction."""
    sequence.tell_proxy(stalled=fault.way)
    yield
    sequence.tell_proxy(stalled="")


@contextmanager
def reset(sequence: Sequence, _fault: Fault) -> Iterator[None]:
    """Let the proxy cut its streams with RST."""
    sequence.tell_proxy(reset=True)
    yield


# --- the machine ----------------------------------------------------------------------------------


@contextmanager
def full_disk(_sequence: Sequence, _fault: Fault) -> Iterator[None]:
    """Fill /tmp and /run, so that no byte can be written there."""
    fill(Path("/tmp"))
    fill(Path("/run"))
    yield
    make_room()


@contextmanager
def clock(_sequence: Sequence, fault: Fault) -> Iterator[None]:
    """Let the date jump for all processes, and jump back. amount: s."""
    step_clock(round(fault.amount))
    yield
    step_clock(0)


# --- plans ----------------------------------------------------------------------------------------


def _draw_loss(draws: random.Random) -> tuple[str, float]:
    percent = draws.choice((100.0, float(draws.randint(5, 60))))
    return f"{draws.choice(WAYS)}/{draws.choice(('tcp', 'udp', 'all'))}", percent


def _draw_step(draws: random.Random) -> tuple[str, float]:
    size_s = 10 ** draws.uniform(0.0, 7.0)
    past = size_s <= _PAST_S and draws.random() < 0.5
    return "", float(round(-size_s if past else min(size_s, _FUTURE_S)))


def _processes(_proxied: str) -> tuple[str, ...]:
    return CONTROLLER, *HOSTS


def _hosts(_proxied: str) -> tuple[str, ...]:
    return HOSTS


def _proxy(proxied: str) -> tuple[str, ...]:
    return (proxied,)


def _machine(_proxied: str) -> tuple[str, ...]:
    return ("",)


def _containers(_proxied: str) -> tuple[str, ...]:
    return tuple(f"{kind}-{host}" for host in HOSTS for kind in COMMANDS)


KINDS: Mapping[str, Kind] = {
    "pause": Kind(4, pause, "process", 6.0, _processes),
    "kill": Kind(5, kill, "process", 5.0, _processes),
    "kill_container": Kind(2, kill_container, "container", 0.0, _containers),
    "link": Kind(3, link, "link", 8.0, _hosts),
    "loss": Kind(5, loss, "loss", 6.0, _hosts, _draw_loss),
    "rate": Kind(3, rate, "rate", 6.0, _hosts, lambda draws: (draws.choice(WAYS), draws.randint(8, 200))),
    "delay": Kind(3, delay, "delay", 6.0, _proxy, lambda draws: ("", round(draws.uniform(0.05, 1.0), 2))),
    "reorder": Kind(2, reorder, "reorder", 8.0, _proxy, lambda draws: ("", round(draws.random(), 2))),
    "double": Kind(2, double, "double", 8.0, _proxy, lambda draws: ("", round(draws.random(), 2))),
    "stall": Kind(4, stall, "stall", 6.0, _proxy, lambda draws: (draws.choice(WAYS), 0.0)),
    "reset": Kind(3, reset, "reset", 0.0, _proxy),
    "full_disk": Kind(2, full_disk, "disk", 6.0, _machine),
    "clock": Kind(2, clock, "clock", 4.0, _machine, _draw_step),
}

_LENGTH_S = (10.0, 16.0)
_COUNT = (4, 9)
_LEAST_S = 0.3
_GAP_S = 0.2
_RESTART_SHARE = 0.35
"""Share of the sequences in which a controller is started again while an agent is away for longer than it
waits."""


@dataclass(frozen=True)
class Plan:
    """A sequence of faults. proxied: the host behind the proxy."""

    proxied: str
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        listed = "; ".join(f"{number}: {fault}" for number, fault in enumerate(self.faults))
        return f"proxy at {self.proxied}; {listed}"


def draw(draws: random.Random) -> Plan:
    """Draw a plan. Its faults are in the order in which they begin."""
    proxied, length_s = draws.choice(HOSTS), draws.uniform(*_LENGTH_S)
    faults: list[Fault] = []
    if draws.random() < _RESTART_SHARE:
        faults += _restart_in_partition(draws, draws.choice(HOSTS))
    count = draws.randint(*_COUNT)
    while len(faults) < count:
        (name,) = draws.choices(list(KINDS), [kind.weight for kind in KINDS.values()])
        kind = KINDS[name]
        begins_s = draws.uniform(0.0, length_s - 1.0)
        lasts_s = draws.uniform(_LEAST_S, kind.most_s) if kind.most_s else 0.0
        where, (way, amount) = draws.choice(kind.where(proxied)), kind.settings(draws)
        fault = Fault(name, where, begins_s, min(begins_s + lasts_s, length_s), way, amount)
        if not any(_clash(fault, other) for other in faults):
            faults.append(fault)
    return Plan(proxied, tuple(sorted(faults, key=lambda fault: fault.begins_s)))


def _restart_in_partition(draws: random.Random, host: str) -> list[Fault]:
    """Return faults in which a host is cut off, and the controller is killed and comes back long before the
    host."""
    begins_s = draws.uniform(0.0, 1.5)
    away = draws.choice(("link", "pause", "kill"))
    killed_s = begins_s + draws.uniform(0.3, 1.0)
    return [
        Fault(away, host, begins_s, begins_s + draws.uniform(11.0, 14.0)),
        Fault("kill", CONTROLLER, killed_s, killed_s + draws.uniform(0.0, 0.5)),
    ]


def _clash(one: Fault, other: Fault) -> bool:
    apart = one.begins_s > other.ends_s + _GAP_S or other.begins_s > one.ends_s + _GAP_S
    return one.place == other.place and not apart


def _run(command: list[str], text: str | None = None) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
