"""Two data planes in namespaces of their own, joined by a cable, each with a listener in bfdd's place."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from control.fabric import BfdState, BfdTimers
from testbed.fabric.bfd_plane import processes
from testbed.fabric.bfd_plane.messages import Listener, Session
from testbed.fabric.bfd_plane.program import program
from testbed.fabric.links import end
from twinbed import BackendError

UP_WITHIN_S = 20.0


@dataclass
class End:
    """One end of the cable."""

    namespace: str
    address: str
    listener: Listener
    journal: Path
    id: int

    def add(self, peer: str, timers: BfdTimers) -> None:
        self.listener.send(Session(self.id, self.address, peer, timers).message())

    def is_in(self, state: BfdState) -> bool:
        self.listener.read()
        return self.listener.states().get(self.id) == state

    def signal(self, number: signal.Signals) -> None:
        worker = processes.worker(self.journal)
        assert worker is not None
        os.kill(worker, number)


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + UP_WITHIN_S
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.005)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@pytest.fixture
def ends(fabric_machine: None, tmp_path: Path) -> Iterator[tuple[End, End]]:
    try:
        program()
    except BackendError as error:
        pytest.skip(str(error))
    names = [f"tb-plane{os.getpid()}-h{index}" for index in range(2)]
    running, made = [], []
    try:
        for name in names:
            ip("netns", "add", name)
        ip("-n", names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", names[1])
        for index, name in enumerate(names):
            ip("-n", name, "address", "add", f"192.0.2.{index}/31", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
            socket, journal = tmp_path / f"{index}.sock", tmp_path / f"{index}.log"
            made.append(End(name, f"192.0.2.{index}", Listener(socket), journal, 7 + index))
            running.append(processes.start(name, socket, journal, tell=tmp_path / f"{index}.tell"))
            made[-1].listener.accept()
        yield made[0], made[1]
    finally:
        end(*running)
        for one in made:
            one.listener.__exit__(None, None, None)
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)
