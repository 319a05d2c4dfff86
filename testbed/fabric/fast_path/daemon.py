"""Run one host's fast path as a process: `python -m testbed.fabric.fast_path.daemon CONFIG.json`.

For: the loop that hands over events and carries out decisions. Not for: the decisions (control.fast_path), or
starting the process (processes.py). Source: our design. A second process waits for the end of the first one
and then empties the routing table, so that no route of ours outlives the process that keeps it up to date.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import IO, Annotated, Any, ClassVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from control.fabric import BfdState
from control.fast_path.fast_path import FastPath
from control.fast_path.message import Opener, Sealer
from control.fast_path.ports import (
    ArmTimer,
    Event,
    Heard,
    Instruction,
    ReadRoutes,
    Release,
    Routes,
    Started,
    Steer,
    Tell,
    TimerFired,
)
from control.fast_path.settings import FastPathSettings
from testbed.fabric.fast_path.hearing import Ear, Hearing
from testbed.fabric.fast_path.reports import Reports
from testbed.fabric.fast_path.steering import Hop, Steering
from twinbed import BackendError, ScenarioError, TwinbedError
from twinbed.text import printable

PORT = 7462
"""UDP port for reports between hosts, on their loopbacks."""
WINDOW_S = 5.0
"""Largest difference between hosts' clocks, s."""

_PRIORITY = 10
_MCL_CURRENT = 1
_LATE_S, _GRACE_S = 0.005, 0.002
"""If a timer is served later than _LATE_S, s, the whole machine was held up. Packets may then still wait in
the kernel, so they get _GRACE_S, s, to arrive."""


Address = Annotated[str, AfterValidator(lambda text: str(IPv4Address(text)))]
"""IPv4 address in dotted form."""


@dataclass(frozen=True, slots=True)
class Config:
    """Configuration of a host's fast path.

    loopback: loopback address of the host.
    uplinks: (device, gateway, ToR) of each uplink. All hosts number the ToRs alike.
    others: loopback addresses of the other hosts.
    key_file: file with the fabric's key.
    journal: file for decisions, one line of JSON each.
    least_interval_s: shortest BFD interval, s.
    real_time: whether to run with real-time priority (SCHED_FIFO).
    plane: socket for the reports of BFD's data plane; empty: BFD's packets are overheard.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    loopback: Address
    uplinks: Annotated[tuple[tuple[str, Address, int], ...], Field(min_length=1)]
    others: tuple[Address, ...]
    key_file: str
    journal: str
    least_interval_s: Annotated[float, Field(gt=0)]
    real_time: bool = True
    plane: str = ""

    @classmethod
    def read(cls, path: Path) -> Config:
        """Return the configuration in a file of JSON. Raises OSError if it cannot be read, and ScenarioError
        that names the file and the first wrong key."""
        try:
            return TypeAdapter(cls).validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            key = "".join(f"{part}: " for part in [".".join(map(str, first["loc"]))] if part)
            raise ScenarioError(f"{path}: {printable(key + first['msg'])}") from None


class Daemon:
    """The process's event loop. Everything happens in this process's namespace. hops: of config.uplinks."""

    def __init__(self, config: Config, hops: list[Hop], journal: IO[str]) -> None:
        key = Path(config.key_file).read_bytes()
        others = [int(IPv4Address(other)) for other in config.others]
        self._steering = Steering(hops)
        ears = [
            Ear(device, hop.index, hop.gateway)
            for (device, _, _), hop in zip(config.uplinks, hops, strict=True)
        ]
        self._opener = Opener(key, others, WINDOW_S)
        self._sealer = Sealer(key)
        plane = Reports(Path(config.plane), ears) if config.plane else None
        self._hearing = Hearing(ears, config.loopback, PORT, self._opener, plane)
        self._others = [(other, PORT) for other in config.others]
        self._policy = FastPath(
            int(IPv4Address(config.loopback)),
            [tor for _, _, tor in config.uplinks],
            others,
            FastPathSettings(least_interval_s=config.least_interval_s),
        )
        self._journal = journal
        self._heard: set[int] = set()
        self._at_s = 0.0
        self._due_s = 0.0
        self.ended = False

    def run(self) -> None:
        """Handle events until `ended` is set, then remove all routes that the fast path added."""
        self._steering.open()
        self._hand(Started(self._now(time.monotonic())))
        while not self.ended:
            select.select(self._hearing.sockets(), [], [], max(self._due_s - time.monotonic(), 0.0))
            now_s = time.monotonic()
            if now_s - self._due_s > _LATE_S:
                time.sleep(_GRACE_S)
            for event in self._hearing.heard():
                self._hand(event, max(event.at_s, self._at_s))
            if self._due_s <= now_s:
                self._hand(TimerFired(self._now(now_s)))
        self._steering.close()

    def _now(self, at_s: float) -> float:
        self._at_s = max(self._at_s, at_s)
        return self._at_s

    def _hand(self, event: Event, at_s: float | None = None) -> None:
        if at_s is not None and at_s != event.at_s:
            event = replace(event, at_s=at_s)
        self._at_s = event.at_s
        self._carry_out(event, self._policy.handle(event))

    def _carry_out(self, event: Event, instructions: list[Instruction]) -> None:
        steered = {step.host: step.uplinks for step in instructions if isinstance(step, Steer)}
        released = [step.host for step in instructions if isinstance(step, Release)]
        if steered or released:
            try:
                self._steering.steer(steered, released)
            except BackendError as error:
                # An uplink may be down before its message is read. The next reading of the routes corrects
                # this.
                refused = {"what": "refused", "at_ns": round(event.at_s * 1e9), "why": str(error)}
                self._journal.write(json.dumps(refused) + "\n")
        read = False
        for step in instructions:
            match step:
                case Tell():
                    self._tell(self._sealer.seal(step.report, time.time_ns()))
                case ArmTimer():
                    self._due_s = step.at_s
                case ReadRoutes():
                    read = True
        self._write(event, instructions)
        if read:
            main, ours = self._steering.read()
            self._hand(Routes(self._now(time.monotonic()), main, ours))

    def _tell(self, datagram: bytes) -> None:
        for address in self._others:
            # A host that cannot be reached now gets the report again later, or learns of it from BGP.
            with suppress(OSError):
                self._hearing.reports.sendto(datagram, address)

    def _write(self, event: Event, instructions: list[Instruction]) -> None:
        """Write decisions, with the times of event and effect, and each session's first packet.

        The fast path does not notice a fault before that packet.
        """
        done_ns = time.monotonic_ns()
        if (
            isinstance(event, Heard)
            and event.control.state is BfdState.UP
            and event.uplink not in self._heard
        ):
            self._heard.add(event.uplink)
            heard = {"what": "heard", "at_ns": round(event.at_s * 1e9), "uplink": event.uplink}
            self._journal.write(json.dumps(heard) + "\n")
        for step in instructions:
            if isinstance(step, Steer | Release | Tell):
                row: dict[str, Any] = {
                    "what": type(step).__name__.lower(),
                    "on": type(event).__name__,
                    "at_ns": round(event.at_s * 1e9),
                    "done_ns": done_ns,
                    "why": step.reason.name.lower(),
                }
                if isinstance(step, Steer):
                    row["uplinks"] = sorted(step.uplinks)
                row["host"] = str(IPv4Address(step.report.sender if isinstance(step, Tell) else step.host))
                self._journal.write(json.dumps(row) + "\n")


def _index(device: str) -> int:
    try:
        return socket.if_nametoindex(device)
    except OSError:
        raise ScenarioError(f"uplinks: there is no device {device} in this namespace") from None


def _guard(hops: list[Hop]) -> int:
    """Start the process that empties the routing table once this one has ended, however that happens.

    Returns the end of a pipe. Closing it lets that process continue.
    """
    reading, writing = os.pipe()
    if os.fork():
        os.close(reading)
        return writing
    os.close(writing)
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.read(reading, 1)
    with suppress(TwinbedError, OSError):
        Steering(hops).close()
    os._exit(0)


def _take_priority() -> None:
    """Run with real-time priority and locked memory if permitted. Otherwise only the delays are longer."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    ctypes.CDLL(None).mlockall(_MCL_CURRENT)


def main(path: Path) -> int:
    """Run until SIGTERM or Ctrl-C. Returns exit code 2, after one line of error, if it cannot run."""
    try:
        config = Config.read(path)
        hops = [Hop(_index(device), int(IPv4Address(gateway))) for device, gateway, _ in config.uplinks]
        pipe = _guard(hops)
        with Path(config.journal).open("a", buffering=1) as journal:
            daemon = Daemon(config, hops, journal)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: setattr(daemon, "ended", True))
            if config.real_time:
                _take_priority()
            gc.collect()
            gc.freeze()
            daemon.run()
        os.close(pipe)
    except (TwinbedError, OSError) as error:
        sys.stderr.write(f"fast path: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(
        prog="python -m testbed.fabric.fast_path.daemon", description=__doc__.splitlines()[0]
    )
    arguments.add_argument("config", type=Path, help="file of JSON; docs/how-to/fail-over-fast.md shows one")
    sys.exit(main(arguments.parse_args().config))
