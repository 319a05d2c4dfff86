"""A fabric's fast paths, started and ended: one process at each host, one key for all.

For: those who want a fabric to have it: for as long as it is up (`launch`), or for a while (`start`, `stop`).
Not for: what it does (daemon.py). Its files are the fabric's own and go with it, and so do the processes,
which carry its mark.
"""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.fabric.fast_path.daemon import Config
from testbed.fabric.fast_path.steering import RULE_PRIORITY
from testbed.fabric.links import popen_in, run_in
from testbed.fabric.model import Fabric, Host
from testbed.fabric.ownership import state_folder
from twinbed import BackendError

_KEY_BYTES = 32
_START_S, _END_S, _POLL_S = 10.0, 3.0, 0.02


@dataclass(frozen=True, slots=True)
class Running:
    """A host's fast path. journal: its decisions, a line of JSON each, as daemon.py writes them."""

    host: Host
    process: subprocess.Popen[bytes]
    journal: Path


def start(fabric: Fabric) -> tuple[Running, ...]:
    """At every host; they are at work when this returns. Raises BackendError where one is not."""
    key = _key(fabric)
    running: list[Running] = []
    try:
        for host in fabric.hosts:
            running.append(_start(fabric, host, key))  # noqa: PERF401  (stop must know it)
        for each in running:
            _wait_at_work(each)
    except BaseException:
        stop(running)
        raise
    return tuple(running)


def stop(running: Sequence[Running]) -> None:
    """Ends them; their tables are empty then."""
    for each in running:
        each.process.send_signal(signal.SIGTERM)
    for each in running:
        try:
            each.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            each.process.kill()
            each.process.wait()


def launch(fabric: Fabric) -> None:
    """At every host, until the fabric goes; `missing` says whether they are at work. Raises BackendError."""
    key = _key(fabric)
    for host in fabric.hosts:
        _start(fabric, host, key, ("setsid", "--fork")).process.wait()


def missing(fabric: Fabric) -> list[str]:
    """What is missing until a dead uplink is noticed at every host at once."""
    found = []
    for host in fabric.hosts:
        journal = _journal(fabric, host)
        if not _at_work(host):
            said = _said(journal)
            found.append(f"{host.namespace}: its fast path{f' ({said})' if said else ''}")
        elif (heard := _heard(journal)) < len(host.uplinks):
            found.append(f"{host.namespace}: {heard} of {len(host.uplinks)} uplinks heard by its fast path")
    return found


def _key(fabric: Fabric) -> Path:
    key = state_folder(fabric.plan.name) / "fast_path.key"
    if not key.exists():
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(_KEY_BYTES))
    return key


def _journal(fabric: Fabric, host: Host) -> Path:
    return state_folder(fabric.plan.name) / f"fast_path-h{host.index}.log"


def _start(fabric: Fabric, host: Host, key: Path, starter: Sequence[str] = ()) -> Running:
    """starter: a command that starts it, and ends."""
    plan, journal = fabric.plan, _journal(fabric, host)
    config = Config(
        loopback=host.loopback,
        uplinks=tuple((each.device, each.gateway, each.tor) for each in host.uplinks),
        others=tuple(each.loopback for each in fabric.hosts if each is not host),
        key_file=str(key),
        journal=str(journal),
        least_interval_s=plan.bfd.interval_s,
        real_time=plan.real_time and not plan.stock,
    )
    # A predecessor's decisions are not this one's.
    journal.unlink(missing_ok=True)
    path = journal.with_suffix(".json")
    path.write_text(json.dumps(asdict(config)))
    command = [*starter, sys.executable, "-m", "testbed.fabric.fast_path.daemon", str(path)]
    with _words(journal).open("wb") as words:
        process = popen_in(host.namespace, command, stdout=subprocess.DEVNULL, stderr=words)
    return Running(host, process, journal)


def _words(journal: Path) -> Path:
    """Where the process says why it cannot."""
    return journal.with_suffix(".err")


def _said(journal: Path) -> str:
    try:
        return _words(journal).read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""


def _heard(journal: Path) -> int:
    """How many of its uplinks' sessions it has heard."""
    try:
        lines = journal.read_text().splitlines()
    except FileNotFoundError:
        return 0
    return sum('"what": "heard"' in line for line in lines)


def _at_work(host: Host) -> bool:
    """It is when its table is asked."""
    return str(RULE_PRIORITY) in run_in(host.namespace, ("ip", "rule", "show")).stdout


def _wait_at_work(running: Running) -> None:
    deadline = time.monotonic() + _START_S
    while not _at_work(running.host):
        if running.process.poll() is not None:
            said = _said(running.journal) or "it has ended"
            raise BackendError(f"fast path of {running.host.namespace} does not start: {said}")
        if time.monotonic() > deadline:
            raise BackendError(
                f"fast path of {running.host.namespace}: not at work after {_START_S:g} s; "
                "is the machine busy?"
            )
        time.sleep(_POLL_S)
