"""Run the agent of a namespace as a process: `python -m testbed.fabric.agent`.

For: running one agent (`main`), or one in every host of a fabric (`Agents`). Not for: its work (agent.py).
Source: our design. The process prints a line of JSON after its first dump and then at intervals. SIGTERM ends
it, and the rules stay. When representors come or go, the process starts a new agent for the present ones, and
the counts continue.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, Self

from control.reconciler.reconciler import Reconciler
from control.reconciler.settings import ReconcilerSettings
from testbed.fabric import place
from testbed.fabric.agent import Agent
from testbed.fabric.links import end, popen_in
from testbed.fabric.model import Fabric
from testbed.fabric.ownership import state_folder
from testbed.fabric.place import Place
from testbed.fabric.rules.bpf import BpfRules
from testbed.fabric.rules.flower import FlowerRules
from testbed.fabric.rules.port import Applier
from testbed.waiting import until
from twinbed import BackendError, ScenarioError, TwinbedError
from twinbed.writing import whole

READY_S = 30.0
"""Longest time until an agent's first report, s. It may have to compile the BPF program."""

Say = Callable[[dict[str, Any]], None]
"""A function that takes a report."""

_SUMS = (
    *("dumps", "added", "replaced", "deleted", "messages", "overflows"),
    *("rule_changes", "refused", "dump_s", "change_s"),
)
_LARGEST = ("slowest_dump_s", "slowest_change_s")

_LOOK_S = 1.0
"""Time between two looks for new representors, s."""

_LEAST_EVERY_S = 0.01
"""Least time between two reports, s."""


class _Ended:
    """Records whether SIGTERM or SIGINT has come."""

    def __init__(self) -> None:
        self.ended = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.ended = True


def applier_for(kind: str, owner: int, served: Place) -> Applier:
    """Return an applier of this kind: `bpf`, `flower` or `auto` (flower if possible). Raises BackendError."""
    if kind != "bpf" and FlowerRules.works():
        return FlowerRules(owner, served.devices, served.local)
    if kind == "flower":
        raise BackendError("--rules flower: this kernel does not have it; use --rules bpf")
    return BpfRules(owner, served.devices, served.local)


def serve(kind: str, settings: ReconcilerSettings, say: Say, every_s: float) -> None:
    """Serve this namespace until SIGTERM. say: function called with a report every every_s. Raises
    BackendError."""
    signals = _Ended()
    before: dict[str, Any] = {}
    while not signals.ended:
        served = place.here()
        reconciler = Reconciler(served.representors, settings)
        with Agent(reconciler, applier_for(kind, settings.owner, served)) as agent:
            agent.start()
            next_report_s = next_look_s = time.monotonic()
            while not signals.ended:
                now_s = time.monotonic()
                if now_s >= next_report_s and reconciler.status.dumps:
                    say(report(agent, reconciler, before))
                    next_report_s = now_s + every_s
                if now_s >= next_look_s + _LOOK_S:
                    if place.here() != served:
                        break
                    next_look_s = now_s
                agent.step(min(_LOOK_S, every_s))
            before = report(agent, reconciler, before)


def report(agent: Agent, reconciler: Reconciler, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the controller's state and counts, the agent's counts, and the counts of the kernel's messages.

    before: last report with other representors, or empty. Its counts are added, so that counts never fall.
    Some appliers also count frames_sent (by a rule) and frames_left (to the bridge).
    """
    now = {
        "pid": os.getpid(),
        "state": reconciler.state.value,
        **asdict(reconciler.status),
        **asdict(agent.counters),
        "messages": agent.monitor.messages,
        "overflows": agent.monitor.overflows,
        **agent.applier.measures(),
    }
    sums = {name: now[name] + before.get(name, 0) for name in _SUMS}
    largest = {name: max(now[name], before.get(name, 0.0)) for name in _LARGEST}
    return now | sums | largest


class Agents:
    """An agent in every host of a fabric. Usable as a context manager; the rules stay at its end.

    kind: as in `applier_for`. timeout_s: timeout of every reconciler, s. Raises BackendError if one fails.
    """

    def __init__(self, fabric: Fabric, *, kind: str = "auto", timeout_s: float = 1.0) -> None:
        self._fabric, self._options = fabric, ("--rules", kind, "--timeout-s", str(timeout_s))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            for host in self._fabric.hosts:
                self.start(host.index)
            for host in self._fabric.hosts:
                self.wait_ready(host.index)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self, host: int) -> None:
        """Start a host's agent, the first or a successor."""
        status = ("--status", str(self._status(host)), "--every-s", "0.2")
        argv = [sys.executable, "-m", "testbed.fabric.agent", *self._options, *status]
        self._processes[host] = popen_in(self._fabric.hosts[host].namespace, argv)

    def kill(self, host: int) -> None:
        """Kill a host's agent (SIGKILL), whatever it is doing."""
        process = self._processes.pop(host)
        process.kill()
        process.wait()

    def end(self) -> None:
        """End all agents. Idempotent."""
        end(*self._processes.values())
        self._processes.clear()

    def report(self, host: int) -> dict[str, Any] | None:
        """Return the last report of a host's agent; None if there is none yet."""
        try:
            last: dict[str, Any] = json.loads(self._status(host).read_text())
        except FileNotFoundError:
            return None
        return last if last["pid"] == self._processes[host].pid else None

    def wait_ready(self, host: int) -> dict[str, Any]:
        """Return the first report of a host's agent. Raises BackendError if the agent ends or is late."""
        name, process = self._fabric.hosts[host].namespace, self._processes[host]
        if not until(lambda: self.report(host) is not None or process.poll() is not None, READY_S):
            raise BackendError(f"agent in {name}: no dump within {READY_S:g} s; is the machine overloaded?")
        if (first := self.report(host)) is None:
            raise BackendError(f"agent in {name}: ended with {process.returncode}; its own message is above")
        return first

    def _status(self, host: int) -> Path:
        return state_folder(self._fabric.plan.name) / f"agent-h{host}.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process. Returns its exit code: 2 if it could not run."""
    parser = argparse.ArgumentParser(prog="python -m testbed.fabric.agent", description=__doc__)
    parser.add_argument(
        "--rules", choices=("auto", "bpf", "flower"), default="auto", help="how rules are made"
    )
    parser.add_argument(
        "--timeout-s", type=float, default=1.0, help="longest time for which a change is missed"
    )
    parser.add_argument("--status", type=Path, help="file for the last report, instead of lines on stdout")
    parser.add_argument("--every-s", type=float, default=10.0, help="time between two reports")
    chosen = parser.parse_args(arguments)
    try:
        if not _LEAST_EVERY_S <= chosen.every_s < math.inf:
            raise ScenarioError(
                f"--every-s {chosen.every_s:g}: expected seconds, at least {_LEAST_EVERY_S:g}"
            )
        settings = ReconcilerSettings(timeout_s=chosen.timeout_s)
        serve(chosen.rules, settings, _sayer(chosen.status), chosen.every_s)
    except TwinbedError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.strerror or error}: run it as root in a host's namespace", file=sys.stderr)
        return 2
    return 0


def _sayer(status: Path | None) -> Say:
    if status is None:
        return lambda report: print(json.dumps(report), flush=True)

    def replace(report: dict[str, Any]) -> None:
        try:
            with whole(status) as file:
                file.write(json.dumps(report).encode())
        except OSError as error:
            why = f"--status {status}: cannot be written: {error.strerror}"
            raise BackendError(f"{why}; name a file in a folder that is there") from None

    return replace
