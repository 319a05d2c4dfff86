"""Keep a fabric's plan and owner in /run/twinbed/fabric/<name>/fabric.json.

For: finding a fabric again from another process. Not for: removing one; its marks suffice for that
(ownership.py).
Source: our design. The file is written before anything is made, and removed last.
"""

from __future__ import annotations

import errno
import json
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass

from control.fabric import BfdTimers
from testbed.containers.ownership import RUN_ROOT, is_alive, make_directory
from testbed.fabric.model import Plan
from testbed.fabric.ownership import STATE_ROOT, state_folder
from twinbed import BackendError, ScenarioError

_FILE = "fabric.json"


@dataclass(frozen=True, slots=True)
class FabricState:
    """A fabric's plan and owner (a run of testbed.containers.ownership, its maker's or lasting)."""

    plan: Plan
    owner: str


def claim(state: FabricState) -> None:
    """Claim the fabric's name and write its file, atomically.

    Raises BackendError if the name is in use or nothing can be written.
    """
    folder = state_folder(state.plan.name)
    new = make_directory(STATE_ROOT.name, f".{state.owner}")
    try:
        (new / _FILE).write_text(_text(state))
        new.rename(folder)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise BackendError(taken(state.plan.name)) from None
        raise BackendError(f"{folder}: cannot be made ({error.strerror}); run as root") from error


def write(state: FabricState) -> None:
    """Replace a fabric's file, atomically. Raises BackendError if that is not possible."""
    path = state_folder(state.plan.name) / _FILE
    new = path.with_suffix(".new")
    try:
        new.write_text(_text(state))
        new.rename(path)
    except OSError as error:
        raise BackendError(f"{path}: cannot be written ({error.strerror}); run as root") from error


def read(name: str) -> FabricState:
    """Return a fabric's state. Raises BackendError if there is no complete file of that name."""
    path = state_folder(name) / _FILE
    try:
        written = json.loads(path.read_text())
        plan = {**written["plan"], "bfd": BfdTimers(**written["plan"]["bfd"])}
        return FabricState(Plan(**plan), written["owner"])
    except PermissionError as error:
        raise BackendError(f"{path}: cannot be read ({error.strerror}); run as root") from error
    except FileNotFoundError:
        raise BackendError(
            f"no fabric {name} is up; twinbed testbed up --name {name} makes it, "
            "twinbed testbed status lists what is there"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, ScenarioError) as error:
        raise BackendError(
            f"{path}: cannot be understood ({error}); remove it: twinbed testbed down {name}"
        ) from error


def owner_of(name: str) -> str | None:
    """Return a fabric's owner, even if its plan was written by another version; None if there is none."""
    try:
        owner = json.loads((state_folder(name) / _FILE).read_text())["owner"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(owner)


def forget(name: str) -> None:
    """Remove the file and everything else in its folder, and the folders above if they are empty."""
    shutil.rmtree(state_folder(name), ignore_errors=True)
    for folder in (STATE_ROOT, RUN_ROOT):
        with suppress(OSError):
            folder.rmdir()


def sweep() -> None:
    """Remove what processes left that were killed while they claimed a name."""
    with suppress(OSError):
        for folder in STATE_ROOT.glob(".*"):
            if not is_alive(folder.name.removeprefix(".")):
                shutil.rmtree(folder, ignore_errors=True)


def taken(name: str) -> str:
    """Return the error message for a name that is in use."""
    return (
        f"a fabric {name} is up already; take another name (--name), "
        f"or remove it first: twinbed testbed down {name}"
    )


def _text(state: FabricState) -> str:
    return json.dumps({"owner": state.owner, "plan": asdict(state.plan)}, indent=1)
