"""`python -m testbed.fabric.agent`: the agent of the namespace that it is started in, as a process.

For: running one (`main`) or one in every host of a fabric (`Agents`). Not for: what an agent does (agent.py).
It says a line of JSON after its first dump and then every so often. SIGTERM ends it, and the rules stay. When
representors come or go it begins again with those that there are, as its own successor, and counts on.
"""

from __future__ import annotations

import argparse
import json
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
from testbed.fabric.links import popen_in
from testbed.fabric.model import Fabric
from testbed.fabric.ownership import state_folder
from testbed.fabric.place import Place
from testbed.fabric.rules.bpf import BpfRules
from testbed.fabric.rules.flower import FlowerRules
from testbed.fabric.rules.port import Applier
from twinbed import BackendError, TwinbedError

READY_S = 30.0
"""Until an agent has said its first line: it may have to compile the program."""

_END_S = 5.0

Say = Callable[[dict[str, Any]], None]
"""Takes a report."""

_SUMS = (
    *("dumps", "added", "replaced", "deleted", "messages", "overflows"),
    *("rule_changes", "refused", "dump_s", "change_s"),
)
_LARGEST = ("slowest_dump_s", "slowest_change_s")

_LOOK_S = 1.0
"""Between two looks for new representors."""


class _Ended:
    """Whether SIGTERM or SIGINT has come."""

    def __init__(self) -> None:
        self.ended = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.ended = True


def applier_for(kind: str, owner: int, found: Place) -> Applier:
    """kind: `bpf`, `flower`, or `auto`: flower where this kernel has it. Raises BackendError."""
    if kind == "flower" or (kind == "auto" and FlowerRules.works()):
        return FlowerRules(owner, found.devices, found.local)
    return BpfRules(owner, found.devices, found.local)


def serve(kind: str, settings: ReconcilerSettings, say: Say, every_s: float) -> None:
    """Until SIGTERM. say: is given a report every_s seconds. Raises BackendError."""
    signals = _Ended()
    before: dict[str, Any] = {}
    while not signals.ended:
        found = place.here()
        reconciler = Reconciler(found.representors, settings)
        with Agent(reconciler, applier_for(kind, settings.owner, found)) as agent:
            agent.start()
            next_report_s = next_look_s = time.monotonic()
            while not signals.ended:
                now_s = time.monotonic()
                if now_s >= next_report_s and reconciler.status.dumps:
                    say(report(agent, reconciler, before))
                    next_report_s = now_s + every_s
                if now_s >= next_look_s + _LOOK_S:
                    if place.here() != found:
                        break
                    next_look_s = now_s
                agent.step(min(_LOOK_S, every_s))
            before = report(agent, reconciler, before)


def report(agent: Agent, reconciler: Reconciler, before: Mapping[str, Any]) -> dict[str, Any]:
    """The controller's state and counts, the agent's, and what the kernel told it. frames_sent, frames_left:
    by a rule, and to the bridge, since the program was loaded, where the applier counts them. before: the
    last report with other representors (none: empty), so that counts go on and never fall."""
    found = {
        "pid": os.getpid(),
        "state": reconciler.state.value,
        **asdict(reconciler.status),
        **asdict(agent.counters),
        "messages": agent.monitor.messages,
        "overflows": agent.monitor.overflows,
        **agent.applier.measures(),
    }
    sums = {name: found[name] + before.get(name, 0) for name in _SUMS}
    largest = {name: max(found[name], before.get(name, 0.0)) for name in _LARGEST}
    return found | sums | largest


class Agents:
    """An agent in every host of a fabric. Usable as a context manager: ended at its end, and rules stay.

    kind: as `applier_for` has it; timeout_s: of every reconciler. Raises BackendError when one does not
    begin.
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
        """Starts a host's agent, the first or a successor."""
        status = ("--status", str(self._status(host)), "--every-s", "0.2")
        argv = [sys.executable, "-m", "testbed.fabric.agent", *self._options, *status]
        self._processes[host] = popen_in(self._fabric.hosts[host].namespace, argv)

    def kill(self, host: int) -> None:
        """Kills a host's agent at once (SIGKILL), wherever it is."""
        process = self._processes.pop(host)
        process.kill()
        process.wait()

    def end(self) -> None:
        """Ends all of them. Idempotent."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def report(self, host: int) -> dict[str, Any] | None:
        """What a host's agent said last; None if it said nothing yet."""
        try:
            found: dict[str, Any] = json.loads(self._status(host).read_text())
        except FileNotFoundError:
            return None
        return found if found["pid"] == self._processes[host].pid else None

    def wait_ready(self, host: int) -> dict[str, Any]:
        """Returns the first thing that a host's agent says. Raises BackendError when it ends or is late."""
        deadline_s = time.monotonic() + READY_S
        while (found := self.report(host)) is None:
            name = self._fabric.hosts[host].namespace
            if (code := self._processes[host].poll()) is not None:
                raise BackendError(f"agent in {name}: ended with {code}; its own words are above")
            if time.monotonic() > deadline_s:
                raise BackendError(
                    f"agent in {name}: no dump within {READY_S:g} s; is the machine overloaded?"
                )
            time.sleep(0.01)
        return found

    def _status(self, host: int) -> Path:
        return state_folder(self._fabric.plan.name) / f"agent-h{host}.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """The process. Returns its exit code: 2 where it could not run."""
    parser = argparse.ArgumentParser(prog="python -m testbed.fabric.agent", description=__doc__)
    parser.add_argument(
        "--rules", choices=("auto", "bpf", "flower"), default="auto", help="how rules are made"
    )
    parser.add_argument("--timeout-s", type=float, default=1.0, help="a missed change is missed no longer")
    parser.add_argument("--status", type=Path, help="file for the last report, instead of lines on stdout")
    parser.add_argument("--every-s", type=float, default=10.0, help="between two reports")
    chosen = parser.parse_args(arguments)
    try:
        settings = ReconcilerSettings(timeout_s=chosen.timeout_s)
        serve(chosen.rules, settings, _sayer(chosen.status), chosen.every_s)
    except (TwinbedError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _sayer(status: Path | None) -> Say:
    if status is None:
        return lambda found: print(json.dumps(found), flush=True)
    new = status.with_suffix(".new")

    def replace(found: dict[str, Any]) -> None:
        new.write_text(json.dumps(found))
        new.rename(status)

    return replace
