"""List the objects of fabrics on this machine, and remove them by their marks alone.

For: `twinbed testbed status` and `down`, and tidying up after a process that was killed. Not for: containers
(testbed.containers.leftovers). Source: our design. Nothing without a fabric's mark is touched, and a fabric
in use is left alone unless it is named.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed import processes
from testbed.fabric import frr, frr_folders, ownership, state
from testbed.fabric.model import Daemon
from twinbed import BackendError
from twinbed.ownership import holder, is_mine

ENDING_TIMEOUT_S = 20.0
"""Longest time for a fabric's maker to remove the fabric, and then for the other processes to end, s."""

_LOOKS, _LOOK_AGAIN_S = 3, 0.02
"""Number of consecutive checks that must find no process, and the time between two checks, s."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The objects of one fabric on this machine.

    alive: whether its maker is alive, or the fabric outlives its maker; None: only its FRR configurations are
    here, so its maker may have another /run, as in a container.
    pid: process id of its maker; None: it outlives its maker, or its maker is not visible in this PID
    namespace.
    hosts, tors, spines: numbers in its plan, hosts with those for storage; None: no longer known.
    namespaces, daemons, processes: numbers of namespaces, of running FRR daemons, and of processes.
    """

    name: str
    alive: bool | None
    pid: int | None
    hosts: int | None
    tors: int | None
    spines: int | None
    namespaces: int
    daemons: int
    processes: int


def standing() -> tuple[Standing, ...]:
    """Return every fabric that has anything on this machine, by name."""
    return tuple(_standing(name) for name in ownership.fabrics())


def down(name: str | None = None, *, everything: bool = False) -> tuple[Standing, ...]:
    """Remove the fabric of that name, even if in use. Without a name, remove leftovers, or everything.

    Returns the objects of the removed fabrics. Raises BackendError if there is no fabric of that name, and
    for the first object that could not be removed, after all others were.
    """
    fabrics = standing()
    if name is not None:
        chosen = [fabric for fabric in fabrics if fabric.name == name]
        if not chosen:
            state.read(name)
    else:
        chosen = [fabric for fabric in fabrics if everything or fabric.alive is False]
        # This process removes its own fabrics itself.
        chosen = [fabric for fabric in chosen if not is_mine(state.lock_of(fabric.name))]
    state.sweep()
    problems = []
    for fabric in chosen:
        try:
            if fabric.alive and not (state.is_lasting(fabric.name) or is_mine(state.lock_of(fabric.name))):
                _ask_to_end(fabric)
            remove(fabric.name)
        except BackendError as error:
            problems.append(error)
    if problems:
        raise problems[0]
    return tuple(chosen)


def make_way(name: str) -> None:
    """Remove leftovers of a fabric of this name. Raises BackendError if a fabric of this name is in use."""
    if name not in ownership.fabrics():
        return
    if _standing(name).alive is not False:
        raise BackendError(state.taken(name))
    remove(name)


def remove(name: str) -> None:
    """Remove everything that carries a fabric's mark. Idempotent; works without the fabric's file.

    Raises BackendError, which names what could not be removed.
    """
    _end_processes(name)
    places = ownership.namespaces_of(name)
    if places:
        batch = "".join(f"netns delete {place.name}\n" for place in places)
        # Whether this worked is checked below.
        subprocess.run(
            ("ip", "-force", "-batch", "-"), input=batch, text=True, capture_output=True, check=False
        )
    frr_folders.remove_temporary_of(name)
    for folder in ownership.frr_folders_of(name):
        shutil.rmtree(folder, ignore_errors=True)
    left: list[Path] = [*ownership.namespaces_of(name), *ownership.frr_folders_of(name)]
    if left:
        raise BackendError(
            f"{left[0]}: cannot be removed; run as root: sudo twinbed testbed down --name {name}"
        )
    state.forget(name)


def _standing(name: str) -> Standing:
    places = [place.name for place in ownership.namespaces_of(name)]
    hosts, tors, spines = None, None, None
    with suppress(BackendError):
        plan = state.read(name).plan
        hosts, tors, spines = plan.hosts + plan.storage, plan.tors, plan.spines
    return Standing(
        name,
        None if not places and _may_be_elsewhere(name) else state.in_use(name),
        None if state.is_lasting(name) else holder(state.lock_of(name)),
        hosts,
        tors,
        spines,
        len(places),
        sum(frr.pid_of(place, daemon) is not None for place in places for daemon in Daemon),
        len(ownership.processes_of(name)),
    )


def _may_be_elsewhere(name: str) -> bool:
    """Return whether the fabric's lock may be in another /run. A killed process leaves the lock's file until
    the machine is booted again."""
    return not ownership.state_folder(name).exists() and frr_folders.is_since_start(name)


def _end_processes(name: str) -> None:
    """Kill a fabric's processes until several consecutive checks find none.

    A process that is killed may just have started another, and a list of processes may miss one that forks
    meanwhile.
    """
    deadline = time.monotonic() + ENDING_TIMEOUT_S
    empty_looks = 0
    while empty_looks < _LOOKS:
        pids = ownership.processes_of(name)
        empty_looks = 0 if pids else empty_looks + 1
        if not pids:
            time.sleep(_LOOK_AGAIN_S)
            continue
        if time.monotonic() > deadline:
            raise BackendError(
                f"process {pids[0]} of fabric {name} does not end; inspect it with ps {pids[0]}"
            )
        frr.kill_processes(lambda: ownership.processes_of(name))


def _ask_to_end(fabric: Standing) -> None:
    """Send SIGTERM to the process that made a fabric, so that it removes the fabric; then SIGKILL."""
    if fabric.pid is None:
        raise BackendError(f"fabric {fabric.name}: its maker is in another PID namespace; end it there")
    pid, lock = fabric.pid, state.lock_of(fabric.name)
    with processes.handles(lambda: [pid] if holder(lock) == pid else []) as found:
        if not all(processes.end(handle, ENDING_TIMEOUT_S) for handle in found.values()):
            raise BackendError(
                f"process {pid} of fabric {fabric.name} does not end; inspect it with ps {pid}"
            )
