"""A command as a real OCI container: runc, namespaces of its own, and the same cgroup as any other of ours.

For: bundle, start, end and removal of one container. Not for: its limits (its Group has them: runc is told
of none, so that a quota is written to the cgroup and not through `runc update`, which takes 5 ms) nor for
images: the root file system is this machine's own, bound read-only. The bind mount is made in a mount
namespace that only runc is in, so that it ends with it. runc keeps the container when its command ends, and
its state is removed here: `runc delete` would remove the group, whose last counters are still to be read.
Other containers of the run start meanwhile: what all share goes with the last bundle, and nothing else does.
Sources: OCI runtime specification 1.0.2, runc(8), unshare(1).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from testbed.containers import ownership
from testbed.containers.cgroup import tree
from testbed.containers.cgroup.drivers import own_directories
from testbed.containers.host.container import TERMINATION_GRACE_S, ContainerSpec
from testbed.containers.network import Endpoint
from testbed.containers.ports import HostGroup
from twinbed import BackendError, ScenarioError

START_TIMEOUT_S = 30.0
"""From the start of runc to a running container; a second or so, unless the machine is overloaded."""

_POLL_S = 0.005
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_BUNDLES, _STATE = "oci", "runc"
_BIND_ROOT = 'mount --bind / "$1" && shift && exec "$@"'
_NETNS = Path("/run/netns")
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")
_HIDDEN = ("/tmp", "/run")
_MASKED = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware")
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def check_id(container_id: str) -> str:
    """The id itself. ScenarioError for one that is not letters, digits, - and _ (it becomes a path and a
    command's argument)."""
    if not _ID.fullmatch(container_id):
        raise ScenarioError(f"container id {container_id!r}: expected letters, digits, - and _ (at most 128)")
    return container_id


class OciContainer:
    """One container in `group`, which was made by a driver as `twinbed/<run>/<name>`.

    Its root is this machine's, read-only, with an empty /tmp and /run of its own; writable is the spec's
    directory, where it has one. folders: others that it is to see (read-only): those in /tmp and /run, and
    those on other file systems. Process 1 of the container is the command itself: it gets SIGTERM only where
    it handles that. The limits of the spec are not set here. Raises BackendError where runc is missing.
    """

    def __init__(
        self,
        spec: ContainerSpec,
        group: HostGroup,
        run: str,
        *,
        endpoint: Endpoint | None = None,
        folders: Sequence[Path] = (),
    ) -> None:
        self.spec, self.group = spec, group
        self.id = check_id(f"{run}-{spec.name}")
        self.process: subprocess.Popen[bytes] | None = None
        self.pid = 0
        self._run, self._endpoint, self._folders = run, endpoint, folders
        self._runc = _program("runc")
        self._state = ownership.RUN_ROOT / run / _STATE
        self._bundle = ownership.RUN_ROOT / run / _BUNDLES / spec.name

    def start(
        self,
        *,
        env: Mapping[str, str] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> None:
        """Starts the command; returns when it is inside, `pid` is its process on this machine.

        env: the environment but for the spec's own part; None = this process's. Raises ScenarioError when it
        cannot be executed, BackendError (runc's reason) otherwise; nothing of it is left then.
        """
        try:
            self.process = subprocess.Popen(
                self.prepare({**(os.environ if env is None else env), **self.spec.env}),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
            self.pid = self._started(*self._files)
            self._check_place()
        except BaseException:
            self.discard()
            raise

    def prepare(self, env: Mapping[str, str]) -> list[str | Path]:
        """What starts the command and returns when that has ended, for who executes it without waiting; to be
        followed by `discard`. env: the whole environment. Raises BackendError."""
        # A maker that was killed could not discard it.
        shutil.rmtree(self._state / self.id, ignore_errors=True)
        shutil.rmtree(self._bundle, ignore_errors=True)
        self._make_bundle(env)
        for each in _elsewhere(self.group):
            tree.make_run(each.parent)
        return self._command_line(*self._files)

    @property
    def _files(self) -> tuple[Path, Path]:
        """runc's log, and where it writes the id of the container's process."""
        return self._bundle / "log", self._bundle / "pid"

    def poll(self) -> int | None:
        """How the command ended, as exit_code; None while it runs."""
        code = None if self.process is None else self.process.poll()
        return None if code is None else exit_code(code)

    def stop(self, grace_s: float = TERMINATION_GRACE_S) -> int | None:
        """SIGTERM to all in it, SIGKILL after the grace; how the command ended."""
        self.group.send(signal.SIGTERM)
        if self.process is not None:
            try:
                self.process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.group.send(signal.SIGKILL)
                self.process.wait()
        return self.poll()

    def discard(self) -> None:
        """Kills what is left and removes everything but the group, in which another may be started.
        Idempotent."""
        self.group.send(signal.SIGKILL)
        if self.process is not None:
            # Before there is a container, runc itself is all that there is to end.
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0 if self.pid == 0 else START_TIMEOUT_S)
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self._state / self.id, ignore_errors=True)
        places = _elsewhere(self.group)
        tree.remove(places)
        shutil.rmtree(self._bundle, ignore_errors=True)
        if bundles_of(self._run):
            return
        for each in places:
            tree.remove_run(each.parent)
        ownership.forget_directory(self._run, _STATE, _BUNDLES)

    def remove(self) -> None:
        """The same, and removes the group. Idempotent."""
        self.discard()
        self.group.remove()

    def _command_line(self, log: Path, pid_file: Path) -> list[str | Path]:
        isolated: list[str | Path] = [_program("unshare"), "--mount", "--propagation", "private", "--"]
        bound: list[str | Path] = ["sh", "-c", _BIND_ROOT, "sh", self._bundle / "rootfs"]
        runc: list[str | Path] = [self._runc, "--root", self._state, "--log", log, "--log-format", "json"]
        run: list[str | Path] = ["run", "--keep", "--bundle", self._bundle, "--pid-file", pid_file, self.id]
        return [*isolated, *bound, *runc, *run]

    def _check_place(self) -> None:
        """A command may be over by now; one that runs is to be where its limits are, in every hierarchy."""
        for each in self.group.directories:
            if self.pid not in tree.pids([each]) and _is_running(self.pid):
                raise BackendError(f"container {self.id}: runc did not put it into {each}")

    def _make_bundle(self, env: Mapping[str, str]) -> None:
        rootfs = ownership.make_directory(self._run, _BUNDLES, self.spec.name, "rootfs")
        config = _config(self.spec, self.group, env, self._endpoint, self._folders)
        path = rootfs.parent / "config.json"
        try:
            path.write_text(json.dumps(config))
        except OSError as error:
            raise BackendError(f"{path}: cannot be written ({error.strerror}); make space in /run") from error

    def _started(self, log: Path, pid_file: Path) -> int:
        """The container's process, once runc has written its id."""
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            ended = self.process.poll() is not None
            with suppress(OSError, ValueError):
                return int(pid_file.read_text())
            if ended or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        reason = _last_error(log) or f"no container within {START_TIMEOUT_S:g} s"
        if "executable file not found" in reason or "no such file or directory" in reason:
            raise ScenarioError(f"container {self.spec.name}: {self.spec.command[0]}: {reason}")
        raise BackendError(f"container {self.id}: runc: {reason}; see twinbed testbed doctor")


def exit_code(code: int) -> int:
    """How the command ended, negative for a signal, from runc's own exit code. As with a shell, an exit code
    above 128 of the command's own is not told from a signal."""
    return 128 - code if 128 < code <= 128 + signal.NSIG else code


def bundles_of(run: str) -> list[Path]:
    """Bundles that a run keeps."""
    return sorted((ownership.RUN_ROOT / run / _BUNDLES).glob("*"))


def remove_run(run: str) -> None:
    """Removes bundles and runc's state of a run whose groups are removed."""
    for folder in (_STATE, _BUNDLES):
        shutil.rmtree(ownership.RUN_ROOT / run / folder, ignore_errors=True)
    ownership.forget_directory(run)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        package = {"unshare": "util-linux"}.get(name, name)
        raise BackendError(f"OCI containers need the command {name}; install it: sudo apt install {package}")
    return found


def _last_error(log: Path) -> str:
    """What runc said last, in one line."""
    try:
        entries = [json.loads(line) for line in log.read_text().splitlines()]
    except (OSError, ValueError):
        return ""
    errors = [str(each.get("msg", "")) for each in entries if each.get("level") in ("error", "fatal")]
    return " ".join(errors[-1].split()) if errors else ""


def _is_running(pid: int) -> bool:
    """Whether the process is there and not a zombie, which is in no group any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _elsewhere(group: HostGroup) -> list[Path]:
    """Groups that runc makes for the container in hierarchies that the group is not in: below its own, as
    everywhere, and that is ours; none in v2, which has one hierarchy."""
    if _is_v2(group):
        return []
    tail = group.directories[0].parts[-3:]
    places = {each.joinpath(*tail) for each in own_directories()}
    return sorted(places - set(group.directories))


def _config(
    spec: ContainerSpec,
    group: HostGroup,
    env: Mapping[str, str],
    endpoint: Endpoint | None,
    folders: Sequence[Path],
) -> dict[str, Any]:
    """config.json of the OCI runtime specification."""
    capabilities = [f"CAP_{name}" for name in _CAPABILITIES]
    sets = ("bounding", "effective", "permitted")
    namespaces: list[dict[str, str]] = [{"type": name} for name in ("pid", "ipc", "uts", "mount")]
    if endpoint is not None:
        namespaces.append({"type": "network", "path": str(_NETNS / endpoint.namespace)})
    directory = Path.cwd() if spec.directory is None else spec.directory.resolve()
    mounts = [*_kernel_mounts(), *(_bind(each, "ro") for each in map(Path.resolve, folders))]
    if directory != Path("/"):
        mounts.append(_bind(directory, "ro" if spec.directory is None else "rw"))
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(spec.command),
            "env": [f"{key}={value}" for key, value in env.items()],
            "cwd": str(directory),
            "capabilities": dict.fromkeys(sets, capabilities),
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "hostname": spec.name,
        "mounts": mounts,
        "linux": {
            "cgroupsPath": _cgroups_path(group),
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "namespaces": namespaces,
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READ_ONLY),
        },
    }


def _cgroups_path(group: HostGroup) -> str:
    """As runc's cgroupfs manager reads it: relative to runc's own group in v1, as our groups are made; from
    the mount point in v2."""
    path = "/".join(group.directories[0].parts[-3:])
    return f"/{path}" if _is_v2(group) else path


def _is_v2(group: HostGroup) -> bool:
    return len(group.directories) == 1


def _kernel_mounts() -> list[dict[str, Any]]:
    """The file systems of the kernel, and empty ones where this machine's are not to be seen."""
    quiet = ["nosuid", "noexec", "nodev"]
    listed = [
        ("/proc", "proc", quiet),
        ("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        ("/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
        ("/dev/shm", "tmpfs", [*quiet, "mode=1777"]),
        ("/dev/mqueue", "mqueue", quiet),
        ("/sys", "sysfs", [*quiet, "ro"]),
        *((each, "tmpfs", ["nosuid", "nodev", "mode=1777"]) for each in _HIDDEN),
    ]
    return [
        {"destination": place, "type": kind, "source": kind, "options": options}
        for place, kind, options in listed
    ]


def _bind(folder: Path, access: str) -> dict[str, Any]:
    return {"destination": str(folder), "type": "bind", "source": str(folder), "options": ["rbind", access]}
