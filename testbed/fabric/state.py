"""What is written down about a fabric: its plan and whose it is, in /run/twinbed/fabric/<name>/fabric.json.

For: finding a fabric again from another process. Not for: removing one, for which its marks are enough
(ownership.py). The file is written before anything is made and removed last.
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
class State:
    """owner: a run (testbed.containers.ownership): of the process that made it, or a lasting one."""

    plan: Plan
    owner: str


def claim(state: State) -> None:
    """Takes the name, so that nobody sees it taken without its file.

    Raises BackendError when somebody has it or nothing can be written.
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


def write(state: State) -> None:
    """Replaces what is written, at once or not at all. Raises BackendError where that is not possible."""
    path = state_folder(state.plan.name) / _FILE
    new = path.with_suffix(".new")
    try:
        new.write_text(_text(state))
        new.rename(path)
    except OSError as error:
        raise BackendError(f"{path}: cannot be written ({error.strerror}); run as root") from error


def read(name: str) -> State:
    """Raises BackendError where nothing (whole) is written of a fabric of that name."""
    path = state_folder(name) / _FILE
    try:
        found = json.loads(path.read_text())
        plan = {**found["plan"], "bfd": BfdTimers(**found["plan"]["bfd"])}
        return State(Plan(**plan), found["owner"])
    except PermissionError as error:
        raise BackendError(f"{path}: cannot be read ({error.strerror}); run as root") from error
    except FileNotFoundError:
        raise BackendError(
            f"no fabric {name} is up; twinbed testbed up --name {name} makes it, "
            "twinbed testbed status lists what is there"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, ScenarioError) as error:
        raise BackendError(f"{path}: not to be understood ({error}); twinbed testbed down {name}") from error


def owner_of(name: str) -> str | None:
    """Whose a fabric is, though its plan is of another version of this program; None where nobody's."""
    try:
        owner = json.loads((state_folder(name) / _FILE).read_text())["owner"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(owner)


def forget(name: str) -> None:
    """Removes the file and whatever else is in its folder, and the folders above when they are empty."""
    shutil.rmtree(state_folder(name), ignore_errors=True)
    for each in (STATE_ROOT, RUN_ROOT):
        with suppress(OSError):
            each.rmdir()


def sweep() -> None:
    """Removes what processes left that were killed while they took a name."""
    with suppress(OSError):
        for each in STATE_ROOT.glob(".*"):
            if not is_alive(each.name.removeprefix(".")):
                shutil.rmtree(each, ignore_errors=True)


def taken(name: str) -> str:
    """What is said to somebody who wants a name that is in use."""
    return (
        f"a fabric {name} is up already; take another name (--name), "
        f"or remove it first: twinbed testbed down {name}"
    )


def _text(state: State) -> str:
    return json.dumps({"owner": state.owner, "plan": asdict(state.plan)}, indent=1)
