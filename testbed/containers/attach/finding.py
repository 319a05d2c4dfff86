"""Finds the containers of a name, and the cgroup of each.

For: `docker:web` → the running container and its path in every hierarchy. Not for: the form of names
(names.py), nor limits (limits.py). A container that restarts is found by another request: it has another
process and another `incarnation`. A process id may have been reused since the engine reported it. So a path
counts only if it contains the container's id, and the part that the container made below it is cut off.
"""

from __future__ import annotations

import difflib
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.containers.attach.engines import Container, Engine, engine, present
from testbed.containers.attach.names import CGROUP, ContainerName, parse
from testbed.containers.cgroup.attached import directories_of
from testbed.containers.cgroup.drivers import V1, V2, membership
from testbed.containers.cgroup.files import inode
from testbed.containers.cgroup.v1 import CONTROLLERS
from testbed.containers.ports import GroupGoneError
from twinbed import BackendError
from twinbed.text import printable

PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"
"""Labels that compose gives its containers."""

FRESH_S = 0.5
"""Age from which a list of an engine's containers is asked for again, s: an agent looks once a second."""

_LEAST_DIGITS = 12
"""Digits of an id that name a container, as `docker ps` shows them."""

_SYSTEMCTL_S = 10.0
_MOST_CLOSE = 3


@dataclass(frozen=True, slots=True)
class Found:
    """A running container.

    name: `docker:web`, `podman:shop-web`, `systemd:shop.service`, or the path
    paths: path by controller, as for cgroup.attached.attach; "": one path for all controllers
    incarnation: differs after a restart
    restarts: number of restarts by its engine
    engine: the engine that runs it, None for a bare cgroup or a unit of systemd
    container: that engine's data about it
    record: limits in that engine's own record
    """

    name: str
    paths: Mapping[str, str]
    incarnation: str
    restarts: int = 0
    engine: Engine | None = None
    container: Container | None = None
    record: Mapping[str, int] | None = None


class Finder:
    """Finds containers on one machine, and asks an engine for its whole list only when it must.

    A container whose full name is known costs one request. The list is read only if this container has ended.
    A list is reused for FRESH_S.
    """

    def __init__(self, driver: V1 | V2, proc: Path = Path("/proc")) -> None:
        self._driver, self._proc = driver, proc
        self._lists: dict[Engine, _Listed] = {}

    def find(self, name: ContainerName) -> list[Found]:
        """Return the containers that the name means, at least one, in order of their names.

        Raises GroupGoneError, with names that are close, when none of that name runs; BackendError when its
        engine does not answer.
        """
        if name.kind == CGROUP:
            return [_bare(str(name), {"": name.name}, self._driver)]
        if name.kind == "systemd":
            return [_unit(name, self._driver)]
        lists = [self._listed(asked) for asked in _asked(name)]
        meant = [(listed.engine, container) for listed in lists for container in listed.meant(name)]
        if not meant:
            raise _nobody(name, {text for listed in lists for text in listed.names(name.kind)})
        found, gone = self._located(meant)
        if not found:
            raise gone[0]
        return found

    def again(self, full_name: str) -> Found:
        """Return the container that has this `Found.name`, in its present state. Raises as `find` does."""
        name = parse(full_name)
        listed = next((own for own in self._lists.values() if own.engine.kind == name.kind), None)
        if listed is None:
            return self.find(name)[0]
        found, gone = self._located((listed.engine, container) for container in listed.meant(name))
        if found:
            return found[0]
        if listed.is_old():
            return self.find(name)[0]
        raise gone[0] if gone else GroupGoneError(f"{name}: no such container runs here any more")

    def everyone(self) -> list[Found]:
        """Return all containers of the engines whose sockets exist here, less those that end meanwhile."""
        lists = map(self._listed, present())
        return self._located(
            (listed.engine, container) for listed in lists for container in listed.containers
        )[0]

    def _located(self, meant: Iterable[tuple[Engine, Container]]) -> tuple[list[Found], list[GroupGoneError]]:
        """Return the containers that run, and why the others are gone."""
        found, gone = [], []
        for asked, container in meant:
            try:
                found.append(located(asked, container, self._driver, self._proc))
            except GroupGoneError as error:
                gone.append(error)
        return found, gone

    def _listed(self, asked: Engine) -> _Listed:
        listed = self._lists.get(asked)
        if listed is None or listed.is_old():
            listed = self._lists[asked] = _Listed(asked)
        return listed


class _Listed:
    """The list of an engine's containers at one time, by the names they can be given."""

    def __init__(self, asked: Engine) -> None:
        self.engine, self.containers = asked, asked.containers()
        self._at_s = time.monotonic()
        self._by_name: dict[tuple[str, str], list[Container]] = {}
        for container in self.containers:
            for kind in (container.kind, "compose", "pod"):
                self._by_name.setdefault((kind, _as_named(kind, container)), []).append(container)

    def is_old(self) -> bool:
        """Return whether the list may be asked for again."""
        return time.monotonic() - self._at_s >= FRESH_S

    def meant(self, name: ContainerName) -> list[Container]:
        """Return the containers of a name, or of an id of which at least 12 digits are given."""
        named = self._by_name.get((name.kind, name.name), [])
        if named or name.kind != self.engine.kind or len(name.name) < _LEAST_DIGITS:
            return named
        return [container for container in self.containers if container.id.startswith(name.name)]

    def names(self, kind: str) -> set[str]:
        """Return the names of this kind."""
        return {name for known, name in self._by_name if known == kind}


def located(asked: Engine, container: Container, driver: V1 | V2, proc: Path = Path("/proc")) -> Found:
    """Return the paths of a container. Raise GroupGoneError if it has ended meanwhile."""
    state = asked.state(container)
    name = f"{container.kind}:{container.name}"
    if state.name != container.name:
        raise GroupGoneError(f"{printable(name)}: its container is {printable(state.name)} by now")
    if state.pid <= 0:
        raise GroupGoneError(f"{printable(name)}: does not run; start it")
    try:
        member = membership((proc / str(state.pid) / "cgroup").read_text())
    except (FileNotFoundError, ProcessLookupError):
        raise GroupGoneError(f"{printable(name)}: process {state.pid} is not here; has it ended?") from None
    except OSError as error:
        raise BackendError(f"{proc / str(state.pid) / 'cgroup'}: cannot be read ({error.strerror})") from None
    wanted = {"": member.get("", "")} if isinstance(driver, V2) else {key: member[key] for key in CONTROLLERS}
    paths = {key: _own_path(path, container.id) for key, path in wanted.items()}
    if not all(paths.values()):
        raise GroupGoneError(f"{printable(name)}: process {state.pid} is in no cgroup of its id; try again")
    return Found(name, paths, state.started, state.restarts, asked, container, state.record)


def _asked(name: ContainerName) -> list[Engine]:
    """Return the engines to ask about a name."""
    if name.kind == "docker":
        return [engine("docker")]
    if name.kind == "podman":
        return [engine("podman")]
    engines = present()
    if not engines:
        raise BackendError(f"{name}: neither Docker's nor Podman's socket is here; start one of them")
    return engines


def _as_named(kind: str, container: Container) -> str:
    """Return the name of this kind by which the container can be given."""
    if kind == "compose":
        return f"{container.labels.get(PROJECT, '')}/{container.labels.get(SERVICE, '')}"
    return container.pod if kind == "pod" else container.name


def _nobody(name: ContainerName, known: Iterable[str]) -> GroupGoneError:
    known = {text for text in known if text.strip("/")}
    close = difflib.get_close_matches(name.name, known, n=_MOST_CLOSE, cutoff=0.4)
    names = ", ".join(printable(f"{name.kind}:{text[:100]}") for text in close)
    hint = f"did you mean {names}?" if close else "nothing here has a name like it"
    return GroupGoneError(f"{name}: no such container runs here; {hint}")


def _own_path(path: str, id_: str) -> str:
    """Return the path down to the part that contains the container's id; "" if no part does."""
    parts = path.split("/")
    for count, part in enumerate(parts, 1):
        if id_ and id_ in part:
            return "/".join(parts[:count])
    return ""


def _bare(name: str, paths: Mapping[str, str], driver: V1 | V2, restarts: int = 0) -> Found:
    directory = next(iter(directories_of(paths.get("") or paths, driver).values()))
    return Found(name, paths, str(inode(directory)), restarts)


def _unit(name: ContainerName, driver: V1 | V2) -> Found:
    said = _systemctl("show", "--property=ControlGroup,NRestarts", "--", name.name)
    values = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    path = values.get("ControlGroup", "")
    if not path.startswith("/"):
        listed = _systemctl("list-units", "--all", "--plain", "--no-legend", "--no-pager")
        raise _nobody(name, {line.split()[0] for line in listed.splitlines() if line.split()})
    restarts = values.get("NRestarts", "")
    try:
        return _bare(str(name), {"": path}, driver, int(restarts) if restarts.isdigit() else 0)
    except GroupGoneError as error:
        raise GroupGoneError(
            f"{name}: {error}; have systemd account for it: "
            f"systemctl set-property {name.name} CPUAccounting=yes MemoryAccounting=yes"
        ) from None


def _systemctl(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["systemctl", *arguments], capture_output=True, text=True, timeout=_SYSTEMCTL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendError(f"systemctl: {type(error).__name__}; units need systemd on this machine") from None
    if done.returncode:
        said = printable(" ".join(done.stderr.split())[:300])
        raise BackendError(f"systemctl {arguments[0]}: failed ({said}); does systemd run here?")
    return done.stdout
