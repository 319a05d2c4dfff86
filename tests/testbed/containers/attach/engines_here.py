"""A real dockerd and a real Podman for tests: in a network namespace, with all their files in one folder.

Their containers' cgroups are left to their own naming; what they leave of empty parents is removed where it
was not there before. Processes are ended by the ids that were recorded at their start.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.containers.attach.engines import Engine, _Connection
from tests.patience import PATIENCE_S

IMAGE = "twinbed-test:1"
PROGRAMS = {"docker": ("dockerd", "runc"), "podman": ("podman", "runc", "conmon", "catatonit")}
_PARENTS = {"docker": "docker", "podman": "libpod_parent"}


def missing(kind: str) -> str:
    """Return a sentence about what is not installed, "" if everything is."""
    lacking = [name for name in (*PROGRAMS[kind], "busybox", "nsenter") if _program(name) is None]
    package = {"docker": "docker.io", "podman": "podman"}[kind]
    return f"{', '.join(lacking)} of {package} is not installed; see make system" if lacking else ""


def _program(name: str) -> str | None:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/lib/podman:/usr/libexec/podman")
    if name == "busybox" and found and "static" not in _file(found):
        return None
    return found


def _file(path: str) -> str:
    """Whether a program needs no libraries, which an image without any could not give it."""
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    return "static" if "not a dynamic executable" in listed.stdout + listed.stderr else "dynamic"


class Running:
    """An engine that runs. engine: as twinbed asks it; folder: of all its files."""

    def __init__(self, kind: str, folder: Path, namespace: str) -> None:
        self.folder, self.kind, self._namespace = folder, kind, namespace
        self.socket = folder / f"{kind}.sock"
        self.engine = Engine(kind, self.socket)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._empty = not self._parents()

    def start(self) -> None:
        image = self.folder / "image.tar"
        _make_image(self.folder / "root", image)
        command = (
            self._dockerd()
            if self.kind == "docker"
            else self._podman("system", "service", "-t", "0", f"unix://{self.socket}")
        )
        with (self.folder / "log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(self._inside(command), stdout=log, stderr=log, **self._surroundings())
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            log_text = (self.folder / "log").read_text()[-2000:]
            assert self._processes[0].poll() is None, log_text
            assert time.monotonic() < deadline, log_text
            time.sleep(0.05)
        if self.kind == "podman":
            self.podman("import", "-q", str(image), IMAGE)
        else:
            self.ask(
                "POST", f"/images/create?fromSrc=-&repo={IMAGE.replace(':', '&tag=')}", image.read_bytes()
            )

    def stop(self) -> None:
        with contextlib.suppress(Exception):
            for container in self.engine.containers():
                if self.kind == "docker":
                    self.remove(container.name)
        if self.kind == "podman":
            for pod in self.podman("pod", "ps", "-q").split():
                self.podman("pod", "rm", "-f", "-t", "0", pod)
        for process in self._processes:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        # A process of its own ends a container of Podman's, and may mount once more.
        deadline = time.monotonic() + PATIENCE_S
        while self._tidy() and time.monotonic() < deadline:
            time.sleep(0.05)

    def _tidy(self) -> bool:
        """Remove mounts and empty cgroups; return whether anything of the engine's is still there."""
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        left = [point for point in mounts if point.startswith(f"{self.folder}/")]
        for point in reversed(left):
            subprocess.run(["umount", "-l", point], check=False)
        parents = self._parents() if self._empty else []
        for parent in parents:
            for directory, _, _ in os.walk(parent, topdown=False):
                with contextlib.suppress(OSError):
                    Path(directory).rmdir()
        return bool(left or parents or self._processes_here())

    def _processes_here(self) -> list[Path]:
        here = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if f"{self.folder}/".encode() in path.read_bytes():
                    here.append(path)
        return here

    # --- asking ------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """A request that twinbed itself never makes."""
        connection = _Connection(self.socket)
        kind = "application/x-tar" if isinstance(body, bytes) else "application/json"
        text = body if body is None or isinstance(body, bytes) else json.dumps(body)
        try:
            connection.request(method, path, text, {"Content-Type": kind} if body is not None else {})
            response = connection.getresponse()
            said = response.read()
        finally:
            connection.close()
        assert response.status < 400, (path, said)
        return said

    def run(self, name: str, command: Sequence[str], host: dict[str, Any], labels: dict[str, str]) -> None:
        """Create and start a container of Docker's."""
        host = {"NetworkMode": "none", "CgroupParent": "", **host}
        body = {"Image": IMAGE, "Cmd": list(command), "Labels": labels, "HostConfig": host}
        self.ask("POST", f"/containers/create?name={name}", body)
        self.ask("POST", f"/containers/{name}/start")

    def remove(self, name: str) -> None:
        self.ask("DELETE", f"/containers/{name}?force=1")

    def podman(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            self._inside(self._podman(*arguments)),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            **self._surroundings(),
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def _answers(self) -> bool:
        try:
            self.engine.containers()
        except Exception:
            return False
        return True

    def _inside(self, command: Sequence[str]) -> list[str]:
        # `ip netns exec` would hide the cgroups.
        return ["nsenter", f"--net=/run/netns/{self._namespace}", *command]

    def _surroundings(self) -> dict[str, Any]:
        config = self.folder / "containers.conf"
        config.write_text('[containers]\ndefault_ulimits=["nofile=4096:4096","nproc=4096:4096"]\n')
        # conmon leaves a file `oom` in the working directory when a container was killed.
        return {"env": os.environ | {"CONTAINERS_CONF": str(config)}, "cwd": self.folder}

    def _dockerd(self) -> list[str]:
        folder = self.folder
        options = {"--data-root": "data", "--exec-root": "exec", "--pidfile": "pid"}
        return [
            "dockerd",
            *("-H", f"unix://{self.socket}"),
            *(text for option, name in options.items() for text in (option, str(folder / name))),
            *("--storage-driver", "overlay2", "--default-ulimit", "nofile=4096:4096"),
            *("--bridge=none", "--iptables=false", "--ip6tables=false"),
        ]

    def _podman(self, *arguments: str) -> list[str]:
        folder = self.folder
        options = {"--root": "data", "--runroot": "run", "--tmpdir": "tmp"}
        return [
            "podman",
            *(text for option, name in options.items() for text in (option, str(folder / name))),
            *("--storage-driver", "overlay", "--runtime", "/usr/sbin/runc"),
            *("--cgroup-manager", "cgroupfs", "--events-backend", "file"),
            *arguments,
        ]

    def _parents(self) -> list[Path]:
        mount, name = Path("/sys/fs/cgroup"), _PARENTS[self.kind]
        return [path for path in (mount / name, *mount.glob(f"*/{name}")) if path.is_dir()]


@contextlib.contextmanager
def running(kind: str, folder: Path) -> Iterator[Running]:
    """An engine for the length of the block. Skips the test if it is not installed."""
    why = missing(kind)
    if why:
        pytest.skip(why)
    namespace = f"tb-{folder.name}"
    subprocess.run(["ip", "netns", "add", namespace], check=True)
    here = Running(kind, folder, namespace)
    try:
        subprocess.run(["ip", "-n", namespace, "link", "set", "lo", "up"], check=True)
        here.start()
        yield here
    finally:
        here.stop()
        subprocess.run(["ip", "netns", "delete", namespace], check=False)


def _make_image(root: Path, image: Path) -> None:
    (root / "bin").mkdir(parents=True)
    for name in ("tmp", "etc", "proc", "sys", "dev"):
        (root / name).mkdir()
    program = _program("busybox")
    assert program is not None
    shutil.copy(program, root / "bin/busybox")
    for name in ("sh", "sleep", "true", "dd", "cat"):
        (root / "bin" / name).symlink_to("busybox")
    with tarfile.open(image, "w") as archive:
        archive.add(root, ".")
