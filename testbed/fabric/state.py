"""Keep a fabric's plan, and the lock of its maker, in /run/twinbed/fabric/<name>/fabric.json.

For: finding a fabric again from another process. Not for: removing one, for which its marks suffice
(ownership.py).
Source: our design. The files are written before anything is made, and removed last. A fabric is in use while
its maker holds the lock, or if it outlives its maker.
"""

from __future__ import annotations

import errno
import json
import secrets
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from control.fabric import BfdTimers
from testbed.containers.ownership import LOCK, RUN_ROOT, make_directory
from testbed.fabric.model import Impairment, Plan
from testbed.fabric.ownership import STATE_ROOT, state_folder
from twinbed import BackendError, ScenarioError
from twinbed.ownership import Ownership, is_held, take
from twinbed.writing import whole

_FILE = "fabric.json"
_owned: dict[str, Ownership] = {}


@dataclass(frozen=True, slots=True)
class FabricState:
    """A fabric's plan. lasting: whether it outlives its maker."""

    plan: Plan
    lasting: bool = False


def claim(state: FabricState) -> None:
    """Claim the fabric's name for this process and write its file, atomically.

    Raises BackendError if the name is in use or nothing can be written.
    """
    folder = state_folder(state.plan.name)
    new = make_directory(STATE_ROOT.name, f".{secrets.token_hex(8)}")
    lock = None
    try:
        lock = take(new / LOCK)
        (new / _FILE).write_text(_text(state))
        new.rename(folder)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        if lock is not None:
            lock.release()
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise BackendError(taken(state.plan.name)) from None
        raise BackendError(f"{folder}: cannot be made ({error.strerror}); run as root") from error
    if lock is not None:
        _owned[state.plan.name] = lock


def write(state: FabricState) -> None:
    """Replace a fabric's file, atomically. Gives up the lock if the fabric outlives this process. Raises
    BackendError if the file cannot be written."""
    path = state_folder(state.plan.name) / _FILE
    try:
        with whole(path) as file:
            file.write(_text(state).encode())
    except OSError as error:
        raise BackendError(f"{path}: cannot be written ({error.strerror}); run as root") from error
    if state.lasting:
        _give_up(state.plan.name)


def read(name: str) -> FabricState:
    """Return a fabric's state. Raises BackendError if there is no complete file of that name."""
    path = state_folder(name) / _FILE
    try:
        written = json.loads(path.read_text())
        plan = written["plan"]
        impaired = (Impairment(**written) for written in plan["impairments"])
        plan |= {key: tuple(plan[key]) for key in ("tenants", "names")} | {"impairments": tuple(impaired)}
        return FabricState(Plan(**{**plan, "bfd": BfdTimers(**plan["bfd"])}), written["lasting"])
    except PermissionError as error:
        raise BackendError(f"{path}: cannot be read ({error.strerror}); run as root") from error
    except FileNotFoundError:
        raise BackendError(
            f"no fabric {name!r} is up; twinbed testbed up --name {name} makes it, "
            "twinbed testbed status lists what is there"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, ScenarioError) as error:
        raise BackendError(
            f"{path}: cannot be understood ({error}); remove it: twinbed testbed down --name {name}"
        ) from error


def is_lasting(name: str) -> bool:
    """Return whether a fabric outlives its maker, even if another version wrote its plan."""
    try:
        return json.loads((state_folder(name) / _FILE).read_text())["lasting"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return False


def lock_of(name: str) -> Path:
    """Return the file whose lock the fabric's maker holds."""
    return state_folder(name) / LOCK


def in_use(name: str) -> bool:
    """Return whether the fabric's maker lives, or the fabric outlives it."""
    return is_lasting(name) or is_held(lock_of(name))


def forget(name: str) -> None:
    """Remove the file and everything else in its folder, and the folders above if they are empty."""
    shutil.rmtree(state_folder(name), ignore_errors=True)
    _give_up(name)
    for folder in (STATE_ROOT, RUN_ROOT):
        with suppress(OSError):
            folder.rmdir()


def sweep() -> None:
    """Remove the files of processes that were killed while they claimed a name."""
    with suppress(OSError):
        for folder in STATE_ROOT.glob(".*"):
            lock = take(folder / LOCK, 0.0)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()


def taken(name: str) -> str:
    """Return the error message for a name that is in use."""
    return (
        f"a fabric {name} is up already; take another name (--name), "
        f"or remove it first: twinbed testbed down --name {name}"
    )


def _text(state: FabricState) -> str:
    return json.dumps({"lasting": state.lasting, "plan": asdict(state.plan)}, indent=1)


def _give_up(name: str) -> None:
    lock = _owned.pop(name, None)
    if lock is not None:
        lock.release()
