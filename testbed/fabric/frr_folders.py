"""FRR's folders of one namespace, in which both root and the user frr write.

For: making them, and reading and removing what daemons leave. Not for: what a configuration says (frr.py).
FRR's package gives /etc/frr and /run/frr to the user frr, which may replace everything there with links or
other folders. So root makes a new folder and new files in it through descriptors, writes nothing into a
folder that the daemons write to, and follows no link there. Source: open(2), O_NOFOLLOW and O_EXCL.
"""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from testbed.fabric.model import Daemon
from testbed.fabric.ownership import FRR_FOLDERS, fabric_of, frr_folders_of, state_folder
from twinbed import BackendError

USER = "frr"

TEMPORARY = Path("/var/tmp/frr")
"""Folder in which FRR keeps a directory for each daemon's crash log."""

_CONFIGURATIONS, _RUNNING = FRR_FOLDERS
_STARTED = ".started"
"""Suffix of the file with a daemon's process id at its start."""

_BOOT = "boot"
"""Name of the file beside the configurations that says during which run of the machine they were made."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PID_CHARACTERS = 16


def make(namespace: str, texts: Mapping[str, str]) -> None:
    """Make both folders of a namespace. texts: content of each configuration file, by its name.

    The daemons may read the configurations, and write to the folder of sockets and process ids only. Raises
    BackendError if a folder is there already or cannot be made.
    """
    try:
        owner = pwd.getpwnam(USER)
    except KeyError:
        raise BackendError("no user frr here; install FRR: sudo apt install frr") from None
    for folder in FRR_FOLDERS:
        try:
            folder.mkdir(mode=0o750, exist_ok=True)
            made = _new_folder(folder, namespace)
            try:
                if folder == _RUNNING:
                    os.fchown(made, owner.pw_uid, owner.pw_gid)
                    continue
                for name, text in {**texts, _BOOT: _BOOT_ID.read_text()}.items():
                    _new_file(made, name, text, owner.pw_gid)
                os.fchown(made, -1, owner.pw_gid)
                os.fchmod(made, 0o750)
            finally:
                os.close(made)
        except OSError as error:
            raise BackendError(
                f"{folder / namespace}: cannot be made ({error.strerror}); run as root, remove what is there"
            ) from error


def is_since_start(fabric: str) -> bool:
    """Return whether the fabric's configurations were made since this machine was started, so that daemons
    may use them."""
    folders = (folder for folder in frr_folders_of(fabric) if folder.parent == _CONFIGURATIONS)
    return any(_read(folder / _BOOT, len(_boot_id())) == _boot_id() for folder in folders)


def configuration(namespace: str, daemon: Daemon) -> Path:
    """Return the path of a daemon's configuration."""
    return _CONFIGURATIONS / namespace / f"{daemon}.conf"


def running(namespace: str) -> Path:
    """Return the folder of a namespace's sockets and process ids, in which the daemons write."""
    return _RUNNING / namespace


def log(namespace: str, daemon: Daemon) -> Path:
    """Return the path of a daemon's log, beside `output`. The daemon opens it while it is still root."""
    return _notes(namespace) / f"{namespace}.{daemon}.log"


def output(namespace: str, daemon: Daemon) -> Path:
    """Return the path of a daemon's output while it starts. It is in the fabric's own folder, where only root
    writes."""
    return _notes(namespace) / f"{namespace}.{daemon}.out"


def started(namespace: str, daemon: Daemon) -> Path:
    """Return the path of the file with a daemon's process id at its start, beside `output`."""
    return _notes(namespace) / f"{namespace}.{daemon}{_STARTED}"


def written_pid(namespace: str, daemon: Daemon) -> int | None:
    """Return the process id that a daemon wrote; None if it wrote none."""
    try:
        return int(_read(_RUNNING / namespace / f"{daemon}.pid", _PID_CHARACTERS))
    except ValueError:
        return None


def remove_temporary_of(fabric: str) -> None:
    """Remove the temporary files of a fabric's dead daemons.

    A daemon that has logged nothing yet has no temporary file open, so its process id is noted as it starts.
    """
    names = set()
    for note in state_folder(fabric).glob(f"*{_STARTED}"):
        with suppress(OSError):
            daemon = note.name.removesuffix(_STARTED).rpartition(".")[2]
            names.add(f"{daemon}.{note.read_text().strip()}")
    remove_temporary(names.__contains__)


def remove_temporary(chosen: Callable[[str], bool]) -> None:
    """Remove the daemons' temporary directories that are chosen by their names."""
    with suppress(OSError):
        folder = os.open(TEMPORARY, _OPEN_FOLDER)
        try:
            for name in filter(chosen, os.listdir(folder)):  # noqa: PTH208  (a descriptor)
                shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        finally:
            os.close(folder)


def _new_folder(parent: Path, name: str) -> int:
    """Make a folder and return it opened. Raises OSError, also if another one is in its place by then."""
    above = os.open(parent, _OPEN_FOLDER)
    try:
        os.mkdir(name, 0o750, dir_fd=above)
        made = os.open(name, _OPEN_FOLDER, dir_fd=above)
    finally:
        os.close(above)
    if os.fstat(made).st_uid != os.geteuid():
        os.close(made)
        raise OSError(0, "another folder is in its place")
    return made


def _new_file(folder: int, name: str, text: str, group: int) -> None:
    file = os.open(name, _NEW_FILE, 0o640, dir_fd=folder)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        os.fchown(file, -1, group)
        os.fchmod(file, 0o640)
        out.write(text)


def _read(path: Path, most: int) -> bytes:
    """Return the first bytes of a file that the user frr may have replaced, none if it cannot be read."""
    try:
        # A pipe in the place of the file must not block this process.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(file, most)
        finally:
            os.close(file)
    except OSError:
        return b""


def _boot_id() -> bytes:
    return _BOOT_ID.read_bytes()


def _notes(namespace: str) -> Path:
    fabric = fabric_of(namespace)
    assert fabric, "only a fabric has notes"
    return state_folder(fabric)
