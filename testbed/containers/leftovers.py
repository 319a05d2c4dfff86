"""List and remove objects of runs on this machine: cgroups, networks, OCI bundles, files, limits to restore.

For: `twinbed testbed status` and `down`, and tidying up after a process that was killed. Not for: a run's own
clean-up at its end, which each part does. Objects without our mark are never touched, and live runs only on
request.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from testbed import processes
from testbed.containers import network, ownership
from testbed.containers.cgroup import attached, tree
from testbed.containers.cgroup.drivers import Driver
from testbed.containers.host import oci
from twinbed import BackendError, TwinbedError
from twinbed.ownership import holder, is_held, is_mine

ENDING_TIMEOUT_S = 20.0
"""Time from SIGTERM to SIGKILL for the process of a run, s: it may need several seconds to stop its
containers."""


@dataclass(frozen=True, slots=True)
class Run:
    """The objects of one run or agent.

    alive: whether its owner lives; None: its lock is not visible here. It is True for a run that outlives
        its owner, unless the run is an agent's.
    pid: process id of the owner; None: it is dead or not visible.
    groups: number of cgroup directories in all hierarchies. processes: number of live processes in them.
    networks: number of links and namespaces. containers: number of OCI bundles.
    attached: number of other systems' groups whose limits must be restored. folders: number of temporary
    folders.
    """

    name: str
    alive: bool | None
    pid: int | None
    groups: int
    processes: int
    networks: int
    containers: int
    attached: int
    folders: int


def runs(driver: Driver) -> tuple[Run, ...]:
    """Return every run that has anything here, by name."""
    directories: dict[str, list[Path]] = {}
    for run_directory in tree.runs(driver.mounts):
        directories.setdefault(run_directory.name, []).append(run_directory)
    networks = Counter(network.runs())
    agents = _agents()
    with_files = {*ownership.runs_with_directory(), *ownership.temporary_directories()}
    names = sorted({*directories, *networks, *with_files, *agents})
    return tuple(_run(name, directories.get(name, []), networks[name], agents) for name in names)


def sweep(driver: Driver) -> None:
    """Remove the groups and networks of runs whose owner is known to be dead. Raises BackendError."""
    driver.sweep()
    network.sweep()
    ownership.forget_dead()


def down(driver: Driver, *, live: bool = False) -> tuple[Run, ...]:
    """Remove leftovers of dead runs and agents. Returns the runs that had any.

    live: whether to remove live runs, too, and runs whose lock is not visible here. The process of a live run
    first gets a signal to end (SIGTERM; SIGKILL after ENDING_TIMEOUT_S). Runs of this process are never
    touched. Raises TwinbedError for the first object that could not be removed, after all others were.
    """
    runs_here = [run for run in runs(driver) if (live or run.alive is False) and not _is_mine(run.name)]
    ended: list[Run] = []
    problems: list[TwinbedError] = []
    for run in runs_here:
        try:
            if run.alive:
                _end(run)
            ended.append(run)
        except BackendError as error:
            problems.append(error)
    try:
        _sweep_agents(driver)
    except TwinbedError as error:
        problems.append(error)
    # An agent that was started meanwhile has taken over the containers of its former process.
    back = () if live else _agents()
    for run in ended:
        try:
            if run.name not in back:
                remove(run.name, driver)
        except BackendError as error:
            problems.append(error)
    if problems:
        raise problems[0]
    return tuple(runs_here)


def remove(run: str, driver: Driver) -> None:
    """Remove a run's objects and processes. Raises BackendError for those that cannot be removed."""
    problems = attached.restore_run(run)
    directories = [directory for directory in tree.runs(driver.mounts) if directory.name == run]
    tree.remove(directories)
    for directory in directories:
        tree.remove_run(directory)
    network.remove_run(run)
    oci.remove_run(run)
    if problems:
        raise problems[0]
    # The locks are removed last, because without them nobody would know that the owner is dead.
    for directory in ownership.temporary_directories().get(run, []):
        shutil.rmtree(directory, ignore_errors=True)
    ownership.forget_dead([run])


def _sweep_agents(driver: Driver) -> None:
    """Remove leftovers of dead agents. Agents' groups outlive them, so only the agents' own sweep can remove
    them.
    """
    place = _place()
    if place is not None:
        place.sweep(driver)


def _agents() -> dict[str, Path]:
    """See remote.place.agents."""
    place = _place()
    return {} if place is None else place.agents()


def _place() -> ModuleType | None:
    """Return the module that knows where agents have their groups; None without the packages that agents
    need."""
    try:
        from testbed.containers.remote import place
    except ModuleNotFoundError:
        return None
    return place


def _run(name: str, directories: list[Path], networks: int, agents: Mapping[str, Path]) -> Run:
    locks = _locks(name, agents)
    alive = ownership.is_alive(name) if name not in agents else is_held(agents[name])
    dead = name in agents or ownership.is_dead(name)
    return Run(
        name,
        alive or (False if dead else None),
        next((pid for lock in locks if (pid := holder(lock)) is not None), None),
        sum(1 for directory in directories for _ in os.walk(directory)),
        len(tree.pids(directories)),
        networks,
        len(oci.bundles_of(name)),
        len(attached.files_of(name)),
        len(ownership.temporary_directories().get(name, ())),
    )


def _locks(name: str, agents: Mapping[str, Path]) -> list[Path]:
    return [agents[name]] if name in agents else ownership.locks_of(name)


def _is_mine(name: str) -> bool:
    return any(is_mine(lock) for lock in _locks(name, _agents()))


def _end(run: Run) -> None:
    """Tell the run's process to end, if it still holds the run's lock."""
    if run.pid is None:
        if _locks(run.name, _agents()):
            raise BackendError(f"{run.name}: its process is in another PID namespace; end it there")
        return
    pid, locks = run.pid, _locks(run.name, _agents())
    with processes.handles(lambda: [pid] if pid in map(holder, locks) else []) as found:
        if not all(processes.end(handle, ENDING_TIMEOUT_S) for handle in found.values()):
            raise BackendError(f"process {pid} of {run.name} does not end; look at it with ps {pid}")
