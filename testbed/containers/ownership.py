"""The mark of all our objects, and whether their owner still lives.

For: naming a run, so that a later start can distinguish a leftover from a run in progress. Not for: removing
a run's objects (leftovers.py). The owner of a run holds the lock on RUN_ROOT/<run>/lock, and that of a
temporary directory the lock on a file inside (twinbed/ownership.py). The process id in a name is information
for people only. A run without a lock file here belongs to a process with another /run, such as a container's.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from twinbed import BackendError
from twinbed.ownership import Ownership, is_held, take

MARK = "twinbed"
"""Name of the directory above every run's cgroups."""

LINK_PREFIX = "tb-"
"""Beginning of the name of every network namespace and link of ours."""

RUN_ROOT = Path("/run/twinbed")
"""Directory for runs' bundles and limits to restore, with a subdirectory per run."""

LOCK = "lock"
"""Name of the file whose lock the owner of a directory holds."""

USUAL = ("/tmp", "/var/tmp")
"""Directories for Python's temporary files. The second is used if the first has no room."""

_RUN = re.compile(r"run-[0-9]+-[0-9a-f]{16}")
_LASTING = re.compile(r"lasting-[0-9a-f]{16}")
_HIDDEN_LOCK = f".{LOCK}"
_ATTEMPTS = 3
_owned: dict[str, Ownership] = {}
_left: set[str] = set()


def new_run() -> str:
    """Return a new, unique name for a run, `run-<process id>-<16 hex digits>`. This process owns it until
    `end_run` or its own end. Raises BackendError if the lock cannot be made."""
    run = f"run-{os.getpid()}-{secrets.token_hex(8)}"
    for _ in range(_ATTEMPTS):
        try:
            lock = take(make_directory(run) / LOCK)
        except FileNotFoundError:
            # Another process took the directory for one of a dead run, and removed it before it held the
            # lock.
            continue
        except OSError as error:
            raise BackendError(
                f"{RUN_ROOT / run / LOCK}: cannot be locked ({error.strerror}); make space in /run"
            ) from error
        if lock is not None:
            _owned[run] = lock
            return run
    raise BackendError(f"{RUN_ROOT / run}: cannot be made, another process removes it; try again")


def leave(run: str) -> None:
    """Note that a part of a run could not be removed. The lock's file then outlives `end_run`: without it
    nobody would know that the owner is gone, and nobody would remove the rest."""
    _left.add(run)


def end_run(run: str) -> None:
    """Give up a run of this process whose parts are removed. Files that it still has under RUN_ROOT, and what
    `leave` noted, then count as left over. Idempotent. Other runs are not touched."""
    lock = _owned.pop(run, None)
    if lock is not None:
        if run not in _left:
            _forget_lock(run)
        lock.release()


def forget_dead(runs: Iterable[str] | None = None) -> None:
    """Remove the directories of dead runs that hold nothing except the lock. runs: None: all."""
    for run in runs_with_directory() if runs is None else runs:
        if is_dead(run):
            with suppress(OSError):
                lock = take(RUN_ROOT / run / LOCK, 0.0)
                if lock is not None:
                    _forget_lock(run)
                    lock.release()


def lasting_run(owner: str) -> str:
    """Return the name of a run that outlives the process that makes it. An owner always gets the same name,
    and each owner gets another one. Nobody holds a lock for it."""
    return f"lasting-{hashlib.blake2s(owner.encode(), digest_size=8).hexdigest()}"


def is_run(name: str) -> bool:
    """Return whether `name` has the form that `new_run` or `lasting_run` gives."""
    return _RUN.fullmatch(name) is not None or _LASTING.fullmatch(name) is not None


def is_alive(run: str) -> bool:
    """Return whether the run's owner lives, or the run outlives its owner."""
    return _LASTING.fullmatch(run) is not None or any(map(is_held, locks_of(run)))


def is_dead(run: str) -> bool:
    """Return whether the run's owner is known to be dead: its lock is or was here, and no process holds it.
    Only such a run may be removed without a request."""
    locks = locks_of(run)
    # A temporary directory without a lock was being removed when its process ended.
    return bool(locks or temporary_directories().get(run)) and not any(map(is_held, locks))


def locks_of(run: str) -> list[Path]:
    """Return the existing lock files of a run: its own, and those of its temporary directories."""
    locks = [RUN_ROOT / run / LOCK] if is_run(run) else []
    locks += [directory / _HIDDEN_LOCK for directory in temporary_directories().get(run, ())]
    return [lock for lock in locks if lock.exists()]


def make_directory(run: str, *below: str) -> Path:
    """Make a directory of the run under RUN_ROOT, for root only, and return it. It tries again if another run
    that just ends removes RUN_ROOT meanwhile. Raises BackendError."""
    directory = RUN_ROOT.joinpath(run, *below)
    for attempt in range(_ATTEMPTS):
        try:
            for parent in (*reversed(directory.parents), directory):
                parent.mkdir(mode=0o700, exist_ok=True)
            break
        except OSError as error:
            if isinstance(error, FileNotFoundError) and attempt + 1 < _ATTEMPTS:
                continue
            raise BackendError(
                f"{directory}: cannot be made ({error.strerror}); run as root, with space left there"
            ) from error
    return directory


@contextmanager
def temporary_directory(place: Path | None = None) -> Iterator[Path]:
    """Yield a new temporary directory, which is removed when the block ends. If the process is killed before
    that, `temporary_directories` finds the directory, and the next call of this function removes it. Raises
    BackendError if it cannot be made.

    place: folder in which it is made; None: where Python makes temporary files.
    """
    for directories in temporary_directories().values():
        for directory in directories:
            if not is_held(directory / _HIDDEN_LOCK):
                shutil.rmtree(directory, ignore_errors=True)
    # The directory gets its name once its lock is held, so that it is never taken for a dead run's.
    run = f"run-{os.getpid()}-{secrets.token_hex(8)}"
    made = (place or Path(tempfile.gettempdir())) / f"{MARK}-{run}"
    hidden = made.with_name(f".{made.name}")
    try:
        hidden.mkdir(mode=0o700)
        lock = take(hidden / _HIDDEN_LOCK)
        hidden.rename(made)
    except OSError as error:
        shutil.rmtree(hidden, ignore_errors=True)
        raise BackendError(
            f"{made}: cannot be made ({error.strerror}); make room there, or set another TMPDIR"
        ) from error
    assert lock is not None, "nobody else knows the name"
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        lock.release()


def temporary_directories() -> dict[str, list[Path]]:
    """Return run → this user's existing temporary directories."""
    by_run: dict[str, list[Path]] = {}
    place = tempfile.gettempdir()
    # A process that found no room in one directory uses the other one.
    places = USUAL if place in USUAL else (place,)
    for directory in sorted(found for where in places for found in Path(where).glob(f"{MARK}-run-*")):
        run = directory.name.removeprefix(f"{MARK}-")
        with suppress(OSError):
            if is_run(run) and directory.lstat().st_uid == os.geteuid() and not directory.is_symlink():
                by_run.setdefault(run, []).append(directory)
    return by_run


def forget_directory(run: str, *below: str) -> None:
    """Remove the empty directories `below` of a run's directory, then the run's directory and RUN_ROOT if
    they are empty. Other empty directories are not removed, because another process may be about to fill
    them."""
    own = RUN_ROOT / run
    for directory in (*(own / name for name in below), own, RUN_ROOT):
        with suppress(OSError):
            directory.rmdir()


def runs_with_directory() -> list[str]:
    """Return the runs that have a directory under RUN_ROOT, sorted."""
    try:
        return sorted(directory.name for directory in RUN_ROOT.iterdir() if is_run(directory.name))
    except OSError:
        return []


def _forget_lock(run: str) -> None:
    """Remove the directory of a run whose lock this process holds, unless it holds more than the lock."""
    directory = RUN_ROOT / run
    with suppress(OSError):
        if list(directory.iterdir()) == [directory / LOCK]:
            (directory / LOCK).unlink()
            directory.rmdir()
            RUN_ROOT.rmdir()
