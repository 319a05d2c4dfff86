"""Make, empty and remove our cgroup directories: mkdir, signals to members, rmdir, leftovers.

For: the common part of cgroup v1 and v2. Not for: counters and limits (group.py). A directory is ours if it
is under `twinbed/<run>` and `<run>` has the form of ownership.py.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed import processes
from testbed.containers.cgroup.files import refused
from testbed.containers.ownership import MARK, end_run, is_dead, is_run, leave
from twinbed import BackendError

REMOVAL_TIMEOUT_S = 10.0
"""Longest wait for killed processes to leave their cgroup before its removal is given up, s."""

_RETRY_S = 0.005


@contextmanager
def whole(directories: Iterable[Path]) -> Iterator[None]:
    """Remove the directories of a group if not all of them could be made."""
    try:
        yield
    except BaseException:
        remove(tuple(directories))
        raise


def make(directory: Path, *, exist_ok: bool = False) -> None:
    """Make the directory. Try again if another run that just ends removes the mark's directory meanwhile.
    exist_ok: whether the directory may exist already."""
    for _ in range(3):
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            directory.mkdir(exist_ok=exist_ok)
        except FileNotFoundError:
            continue
        except FileExistsError as error:
            raise BackendError(
                f"{directory}: the kernel keeps a file of this name; name the container otherwise"
            ) from error
        except OSError as error:
            raise refused(directory, "making the cgroup", error) from error
        return
    raise BackendError(
        f"{directory}: cannot be made, other runs remove its parent at the same time; try again"
    )


def weigh(run: Path, file: str, weight: int, most: int) -> None:
    """Give each group of ours the CPU weight `weight` against what runs beside us, as if it lay at our level.

    Otherwise all containers of all runs together would weigh as much as one process. file: name of the file
    with the weight. most: largest weight that the kernel takes. Sets the weight of the run's directory and of
    the one above it. Does nothing for a run that just ends, and on a kernel without the file.
    """
    groups = {directory: len(_directories(directory)) for directory in _directories(run.parent)}
    for directory, count in ((run, groups.get(run, 1)), (run.parent, sum(groups.values()))):
        with suppress(OSError):
            # Only the kernel makes this file: it must not be created here.
            descriptor = os.open(directory / file, os.O_WRONLY)
            try:
                os.write(descriptor, str(min(max(count, 1) * weight, most)).encode())
            finally:
                os.close(descriptor)


def _directories(directory: Path) -> list[Path]:
    try:
        return [entry for entry in directory.iterdir() if entry.is_dir()]
    except OSError:
        return []


def pids(directories: Iterable[Path]) -> set[int]:
    """Return the processes in the groups and in groups below them. The kernel does not count zombies."""
    return {pid for directory in directories for group in _tree(directory) for pid in _members(group)}


def send(directories: Sequence[Path], number: signal.Signals) -> None:
    """Send a signal to every process in the groups and to no other, even where process ids are reused."""
    with processes.handles(lambda: pids(directories)) as found:
        for handle in found.values():
            processes.send(handle, number)


def remove(directories: Sequence[Path]) -> None:
    """Kill the processes inside and remove the directories with everything below them. Idempotent. Raise
    BackendError if the processes have not ended within REMOVAL_TIMEOUT_S."""
    deadline = time.monotonic() + REMOVAL_TIMEOUT_S
    while True:
        send(directories, signal.SIGKILL)
        busy = [group for directory in directories for group in _tree(directory) if not _rmdir(group)]
        if not busy:
            return
        if time.monotonic() > deadline:
            raise BackendError(f"{busy[0]}: cannot be removed, {_why_busy(directories)}")
        time.sleep(_RETRY_S)


def _why_busy(directories: Sequence[Path]) -> str:
    """Return why groups stay although their processes were killed, and the cure."""
    inside = ",".join(map(str, sorted(pids(directories))))
    if not inside:
        return "the kernel still uses it; try again"
    return (
        "a killed process in it does not die; see what it waits for with "
        f"ps -o pid,stat,wchan:30,args -p {inside} and end that, or restart the machine; until then no run "
        "can begin"
    )


def remove_run(run: Path) -> bool:
    """Remove `…/twinbed/<run>` once its groups are removed, and `…/twinbed` if no other run is left. Returns
    whether the run's directory is removed."""
    removed = _rmdir(run)
    _rmdir(run.parent)
    return removed


def finish(run: str, directories: Iterable[Path]) -> None:
    """Remove the directories of a run of this process, and give up the run."""
    removed = [remove_run(directory) for directory in directories]
    if not all(removed):
        leave(run)
    end_run(run)


def sweep(mounts: Iterable[Path]) -> list[str]:
    """End and remove the groups of runs whose owner is known to be dead; return their names, sorted."""
    dead = [run for run in runs(mounts) if is_dead(run.name)]
    for run in dead:
        remove([run])
        remove_run(run)
    return sorted({run.name for run in dead})


def runs(mounts: Iterable[Path]) -> Iterator[Path]:
    """Yield every `…/twinbed/<run>` below the mount points: runs may have been made in any group of them."""
    for mount in mounts:
        for folder, names, _ in os.walk(mount):
            if MARK in names:
                names.remove(MARK)
                with suppress(FileNotFoundError):
                    yield from [run for run in (Path(folder) / MARK).iterdir() if is_run(run.name)]


def _tree(directory: Path) -> Iterator[Path]:
    """Yield the directory and all directories below it, the deepest first; nothing if it does not exist."""
    for folder, _, _ in os.walk(directory, topdown=False):
        yield Path(folder)


def _members(directory: Path) -> set[int]:
    try:
        return set(map(int, (directory / "cgroup.procs").read_text().split()))
    except OSError:
        # The group is gone, or is a v2 group whose threads are listed elsewhere. It has no processes.
        return set()


def _rmdir(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
