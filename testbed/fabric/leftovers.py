"""What fabrics have on this machine, and its removal by their marks alone.

For: `twinbed testbed status` and `down`, and tidying after a process that was killed. Not for: containers
(testbed.containers.leftovers). Nothing without a fabric's mark is touched, and a fabric in use is left alone
unless it is named.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.containers.ownership import is_alive, process_of
from testbed.fabric import frr, ownership, state
from testbed.fabric.model import Daemon
from twinbed import BackendError

ENDING_TIMEOUT_S = 20.0
"""For the process that made a fabric to remove it, when it is asked to; then for others to die."""

_LOOKS, _LOOK_AGAIN_S = 3, 0.02
"""So many looks in a row must find nobody."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What one fabric has. alive: its maker is, or it is to outlive it; pid: the maker, of one that is not;
    hosts, tors: of its plan (None: not known any more); daemons: of FRR, that run."""

    name: str
    alive: bool
    pid: int | None
    hosts: int | None
    tors: int | None
    namespaces: int
    daemons: int
    processes: int


def standing() -> tuple[Standing, ...]:
    """Every fabric that has anything here, by name."""
    return tuple(_standing(each) for each in ownership.fabrics())


def down(name: str | None = None, *, everything: bool = False) -> tuple[Standing, ...]:
    """Removes the fabric of that name, though it is in use; without a name what is left over, or all.

    What there was of those that were removed. Raises BackendError when there is none of that name, and for
    the first thing that could not be removed, after everything else was.
    """
    found = standing()
    if name is not None:
        chosen = [each for each in found if each.name == name]
        if not chosen:
            state.read(name)
    else:
        chosen = [each for each in found if everything or not each.alive]
        # This process's own are its to remove.
        chosen = [each for each in chosen if each.pid != os.getpid()]
    state.sweep()
    problems = []
    for each in chosen:
        try:
            if each.alive and each.pid not in (None, os.getpid()):
                _ask_to_end(each)
            remove(each.name)
        except BackendError as error:
            problems.append(error)
    if problems:
        raise problems[0]
    return tuple(chosen)


def make_way(name: str) -> None:
    """Removes what is left over under a name. Raises BackendError when a fabric of that name is in use."""
    if name not in ownership.fabrics():
        return
    if _standing(name).alive:
        raise BackendError(state.taken(name))
    remove(name)


def remove(name: str) -> None:
    """Removes all that carries a fabric's mark. Idempotent; works without its file.

    Raises BackendError for what could not be removed.
    """
    _end_processes(name)
    places = ownership.namespaces_of(name)
    if places:
        batch = "".join(f"netns delete {each.name}\n" for each in places)
        # Whether it succeeded is looked at below.
        subprocess.run(
            ("ip", "-force", "-batch", "-"), input=batch, text=True, capture_output=True, check=False
        )
    for folder in ownership.frr_folders_of(name):
        frr.remove_temporary(folder)
        shutil.rmtree(folder, ignore_errors=True)
    left: list[Path] = [*ownership.namespaces_of(name), *ownership.frr_folders_of(name)]
    if left:
        raise BackendError(f"{left[0]}: cannot be removed; run as root: sudo twinbed testbed down {name}")
    state.forget(name)


def _standing(name: str) -> Standing:
    places = [each.name for each in ownership.namespaces_of(name)]
    owner = state.owner_of(name)
    hosts, tors = None, None
    with suppress(BackendError):
        plan = state.read(name).plan
        hosts, tors = plan.hosts, plan.tors
    return Standing(
        name,
        owner is not None and is_alive(owner),
        None if owner is None else process_of(owner),
        hosts,
        tors,
        len(places),
        sum(frr.pid_of(each, daemon) is not None for each in places for daemon in Daemon),
        len(ownership.processes_of(name)),
    )


def _end_processes(name: str) -> None:
    """Kills until nobody is left: one that is killed may just have started another, and one that forks into
    the background while the processes are listed is in neither of its lives among them."""
    deadline = time.monotonic() + ENDING_TIMEOUT_S
    nobody = 0
    while nobody < _LOOKS:
        pids = ownership.processes_of(name)
        nobody = 0 if pids else nobody + 1
        if not pids:
            time.sleep(_LOOK_AGAIN_S)
            continue
        if time.monotonic() > deadline:
            raise BackendError(
                f"process {pids[0]} of fabric {name} does not end; look at it with ps {pids[0]}"
            )
        frr.kill_processes(pids)


def _ask_to_end(fabric: Standing) -> None:
    """SIGTERM to the process that made it, which may then remove it itself."""
    assert fabric.pid is not None
    try:
        handle = os.pidfd_open(fabric.pid)
    except ProcessLookupError:
        return
    try:
        if not _standing(fabric.name).alive:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            end = select.poll()
            end.register(handle, select.POLLIN)
            if end.poll(ENDING_TIMEOUT_S * 1e3):
                return
    finally:
        os.close(handle)
    raise BackendError(
        f"process {fabric.pid} of fabric {fabric.name} does not end; look at it with ps {fabric.pid}"
    )
