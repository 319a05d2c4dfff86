"""The mark that everything of ours carries, and whether its maker still lives.

For: naming a run so that a later start can tell a leftover from a run in progress. Not for: removing anything
(cgroup/tree.py, network.py). A run's name holds its process id and that process's start time (/proc/PID/stat,
field 22: clock ticks since boot), so that a reused process id is not mistaken for it.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from twinbed import BackendError

MARK = "twinbed"
"""Name of the directory above every run's cgroups."""

LINK_PREFIX = "tb-"
"""Beginning of the name of every network namespace and link of ours."""

RUN_ROOT = Path("/run/twinbed")
"""Where runs keep files outside cgroups, each run in a directory of its name: bundles, limits to be put back.
"""

_RUN = re.compile(r"run-(?P<pid>[0-9]+)-(?P<start>[0-9]+)-[0-9]+")
_numbers = itertools.count()
_ATTEMPTS = 3


def new_run() -> str:
    """Return a name for a run of this process: `run-<pid>-<start ticks>-<count>`. No other run has it."""
    pid = os.getpid()
    return f"run-{pid}-{_start_ticks(pid)}-{next(_numbers)}"


def lasting_run(owner: str) -> str:
    """Return the name of a run that is to outlive the process that makes it. It is named after the machine's
    first process, which never ends: another name for each owner, and the same for an owner until the machine
    goes down."""
    return f"run-1-{_start_ticks(1)}-{zlib.crc32(owner.encode())}"


def is_run(name: str) -> bool:
    """Return whether `name` has the form that `new_run` gives."""
    return _RUN.fullmatch(name) is not None


def is_alive(run: str) -> bool:
    """Return whether the process that named `run` still exists; False for a name that is not a run's."""
    match = _RUN.fullmatch(run)
    return match is not None and _start_ticks(int(match["pid"])) == int(match["start"])


def process_of(run: str) -> int | None:
    """Return the id of the process that named `run`; None for a lasting run and for what is not a run's
    name."""
    match = _RUN.fullmatch(run)
    return int(match["pid"]) if match and match["pid"] != "1" else None


def make_directory(run: str, *below: str) -> Path:
    """Make and return a directory of the run's under RUN_ROOT, for root only. Raises BackendError. Another
    run that ends right now may remove RUN_ROOT under us, so it is tried again."""
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
def temporary_directory() -> Iterator[Path]:
    """Yield a new directory for files, where temporary ones are kept; it is removed when the block ends.
    Where the process is killed before, `temporary_directories` finds it. Raises BackendError when it cannot
    be made."""
    try:
        made = tempfile.TemporaryDirectory(prefix=f"{MARK}-{new_run()}-")
    except OSError as error:
        raise BackendError(
            f"{error.filename}: cannot be made ({error.strerror}); make room there, or set another TMPDIR"
        ) from error
    with made as name:
        yield Path(name)


def temporary_directories() -> dict[str, list[Path]]:
    """Return this user's temporary directories that are there, by run."""
    by_run: dict[str, list[Path]] = {}
    for directory in sorted(Path(tempfile.gettempdir()).glob(f"{MARK}-run-*")):
        run = directory.name.removeprefix(f"{MARK}-").rpartition("-")[0]
        with suppress(OSError):
            if is_run(run) and directory.lstat().st_uid == os.geteuid() and not directory.is_symlink():
                by_run.setdefault(run, []).append(directory)
    return by_run


def forget_directory(run: str, *below: str) -> None:
    """Remove those directories of the run's, right below its own, that are empty; then its own and RUN_ROOT,
    when nothing is left in them. Other empty directories in there are not removed: somebody is about to fill
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


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses and may hold spaces and parentheses itself.
    return int(stat.rpartition(")")[2].split()[19])
