"""Start and end a fabric's fast paths: one process at every host and spine, with one key for all.

For: a fabric that has the fast path for as long as it is up (`launch`), or for a while (`start`, `stop`). Not
for: what a process does (daemon.py). Source: our design. The files are in the fabric's own folder, and the
processes carry its mark, so both are removed with the fabric.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.fabric.bfd_plane import processes as planes
from testbed.fabric.fast_path.daemon import Config
from testbed.fabric.fast_path.steering import RULE_PRIORITY
from testbed.fabric.links import end, popen_in, run_in
from testbed.fabric.model import Fabric, Host, Tor
from testbed.fabric.ownership import state_folder
from testbed.waiting import until
from twinbed import BackendError

_KEY_BYTES = 32
_START_S = 10.0


@dataclass(frozen=True, slots=True)
class RunningFastPath:
    """A router's fast path. journal: file of its decisions, one line of JSON each (daemon.py)."""

    router: Host | Tor
    process: subprocess.Popen[bytes]
    journal: Path


def start(fabric: Fabric) -> tuple[RunningFastPath, ...]:
    """Start the fast path everywhere, and wait until all work. Raises BackendError if one does not."""
    key = _key(fabric)
    running: list[RunningFastPath] = []
    try:
        for router in fabric.fast_paths:
            running.append(_start(fabric, router, key))  # noqa: PERF401  (stop must know it)
        for process in running:
            _wait_at_work(process)
    except BaseException:
        stop(running)
        raise
    return tuple(running)


def stop(running: Sequence[RunningFastPath]) -> None:
    """End fast paths. Their routing tables are empty afterwards."""
    end(*(fast_path.process for fast_path in running))


def launch(fabric: Fabric) -> None:
    """Start the fast path everywhere, until the fabric is removed. Raises BackendError."""
    key = _key(fabric)
    for router in fabric.fast_paths:
        _start(fabric, router, key, ("setsid", "--fork")).process.wait()


def missing(fabric: Fabric) -> list[str]:
    """Return what is still missing before every fast path would notice a dead link."""
    problems = []
    for router in fabric.fast_paths:
        journal, links = _journal(fabric, router), len(fabric.to_tors(router))
        if not _at_work(router):
            reason = _read(_error_file(journal)).strip()
            problems.append(f"{router.namespace}: its fast path{f' ({reason})' if reason else ''}")
        elif (heard := _read(journal).count('"what": "heard"')) < links:
            problems.append(f"{router.namespace}: {heard} of {links} uplinks heard by its fast path")
    return problems


def _key(fabric: Fabric) -> Path:
    key = state_folder(fabric.plan.name) / "fast_path.key"
    if not key.exists():
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(_KEY_BYTES))
    return key


def _journal(fabric: Fabric, router: Host | Tor) -> Path:
    return state_folder(fabric.plan.name) / f"fast_path-{router.namespace.rpartition('-')[2]}.log"


def _start(fabric: Fabric, router: Host | Tor, key: Path, starter: Sequence[str] = ()) -> RunningFastPath:
    """Start a router's fast path. starter: command that starts the process and ends."""
    plan, journal = fabric.plan, _journal(fabric, router)
    loopbacks = {place.loopback for place in fabric.fast_paths}
    config = Config(
        loopback=router.loopback,
        uplinks=fabric.to_tors(router),
        others=tuple(sorted(loopbacks - {router.loopback})),
        key_file=str(key),
        journal=str(journal),
        least_interval_s=plan.bfd.interval_s,
        real_time=plan.real_time and not plan.stock,
        plane=str(planes.tell_socket(fabric, router)) if plan.bfd_plane else "",
    )
    # A predecessor's journal does not belong to this process.
    journal.unlink(missing_ok=True)
    path = journal.with_suffix(".json")
    path.write_text(json.dumps(asdict(config)))
    command = [*starter, sys.executable, "-m", "testbed.fabric.fast_path.daemon", str(path)]
    with _error_file(journal).open("wb") as errors:
        process = popen_in(router.namespace, command, stdout=subprocess.DEVNULL, stderr=errors)
    return RunningFastPath(router, process, journal)


def _error_file(journal: Path) -> Path:
    """Return the file of the process's error messages."""
    return journal.with_suffix(".err")


def _read(path: Path) -> str:
    """Return a file's text; empty if there is no file."""
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _at_work(router: Host | Tor) -> bool:
    """Return whether a router's fast path works. The kernel then has the rule for its routing table."""
    return str(RULE_PRIORITY) in run_in(router.namespace, ("ip", "rule", "show")).stdout


def _wait_at_work(running: RunningFastPath) -> None:
    place = running.router.namespace

    def at_work_or_ended() -> bool:
        return _at_work(running.router) or running.process.poll() is not None

    if not until(at_work_or_ended, _START_S):
        raise BackendError(f"fast path of {place}: does not work after {_START_S:g} s; is the machine busy?")
    if running.process.poll() is not None:
        reason = _read(_error_file(running.journal)).strip() or "it has ended"
        raise BackendError(f"fast path of {place} does not start: {reason}")
