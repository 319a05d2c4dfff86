"""A command as a real OCI container: runc, namespaces of its own, and the same cgroup as any other of ours.

For: the bundle of one container, the command that starts it, and its removal. Not for: limits, which its
Group sets. runc gets no limits, because `runc update` takes 5 ms and a write to the cgroup takes far less.
Not for images: the root file system is this machine's own, bound read-only, in a mount namespace that only
runc is in and that ends with it. runc keeps the container when its command ends, and its state is removed
here: `runc delete` would remove the group, whose last counters must still be read. Other containers of the
run may start meanwhile: shared parts are removed with the last bundle. Sources: OCI runtime specification
1.0.2, runc(8), unshare(1).
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.containers import ownership
from testbed.containers.cgroup import tree
from testbed.containers.cgroup.drivers import own_directories
from testbed.containers.host.container import ContainerSpec
from testbed.containers.host.identity import Identity
from testbed.containers.network import Endpoint
from testbed.containers.ports import HostGroup
from twinbed import BackendError

_BUNDLES, _STATE = "oci", "runc"
_BIND_ROOT = 'mount --bind / "$1" && shift && exec "$@"'
_NETNS = Path("/run/netns")
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")
_HIDDEN = ("/tmp", "/run")
_MASKED = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware")
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


class OciBundle:
    """The bundle of one container in `group`, which a driver made as `twinbed/<run>/<name>`.

    The container's root is this machine's, read-only, with an empty /tmp and /run of its own; the spec's
    directory is writable, where it has one. Process 1 of the container is the command itself: it gets SIGTERM
    only where it handles that. identity: its user, without capabilities; None: root. The limits of the spec
    are not set here. Raises BackendError where runc is missing.
    """

    def __init__(
        self,
        spec: ContainerSpec,
        group: HostGroup,
        endpoint: Endpoint | None = None,
        identity: Identity | None = None,
    ) -> None:
        self._spec, self._group, self._endpoint, self._identity = spec, group, endpoint, identity
        self._runc = _program("runc")
        self._run = group.directories[0].parent.name
        self._id = f"{self._run}-{spec.name}"
        self._state = ownership.RUN_ROOT / self._run / _STATE
        self._bundle = ownership.RUN_ROOT / self._run / _BUNDLES / spec.name

    def prepare(self, env: Mapping[str, str]) -> list[str | Path]:
        """Make the bundle. Return the command that starts the container and ends with it. `discard` must
        follow. env: the whole environment of the container. Raise BackendError."""
        # A maker that was killed could not discard its bundle and state.
        shutil.rmtree(self._state / self._id, ignore_errors=True)
        shutil.rmtree(self._bundle, ignore_errors=True)
        self._make_bundle(env)
        for place in _elsewhere(self._group):
            tree.make(place.parent, exist_ok=True)
        isolated: list[str | Path] = [_program("unshare"), "--mount", "--propagation", "private", "--"]
        bound: list[str | Path] = ["sh", "-c", _BIND_ROOT, "sh", self._bundle / "rootfs"]
        runc: list[str | Path] = [self._runc, "--root", self._state, "--log", self._bundle / "log"]
        return [*isolated, *bound, *runc, "run", "--keep", "--bundle", self._bundle, self._id]

    def discard(self) -> None:
        """Kill remaining processes and remove everything except the group, which may get another container.
        Idempotent."""
        self._group.send(signal.SIGKILL)
        shutil.rmtree(self._state / self._id, ignore_errors=True)
        places = _elsewhere(self._group)
        tree.remove(places)
        shutil.rmtree(self._bundle, ignore_errors=True)
        if bundles_of(self._run):
            return
        for place in places:
            tree.remove_run(place.parent)
        ownership.forget_directory(self._run, _STATE, _BUNDLES)

    def _make_bundle(self, env: Mapping[str, str]) -> None:
        rootfs = ownership.make_directory(self._run, _BUNDLES, self._spec.name, "rootfs")
        config = _config(self._spec, self._group, env, self._endpoint, self._identity)
        path = rootfs.parent / "config.json"
        try:
            path.write_text(json.dumps(config))
        except OSError as error:
            raise BackendError(f"{path}: cannot be written ({error.strerror}); make space in /run") from error


def exit_code(code: int) -> int:
    """Return the command's exit status, negative for a signal, from runc's own exit code. As in a shell, an
    exit code above 128 cannot be distinguished from a signal."""
    return 128 - code if 128 < code <= 128 + signal.NSIG else code


def bundles_of(run: str) -> list[Path]:
    """Return the bundles that a run keeps."""
    return sorted((ownership.RUN_ROOT / run / _BUNDLES).glob("*"))


def remove_run(run: str) -> None:
    """Remove the bundles and runc's state of a run whose groups are removed."""
    for folder in (_STATE, _BUNDLES):
        shutil.rmtree(ownership.RUN_ROOT / run / folder, ignore_errors=True)
    ownership.forget_directory(run)


def _program(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        package = {"unshare": "util-linux"}.get(name, name)
        raise BackendError(f"OCI containers need the command {name}; install it: sudo apt install {package}")
    return program


def _elsewhere(group: HostGroup) -> list[Path]:
    """Return the groups that runc makes for the container in hierarchies without a group of ours. In v1 they
    lie below the caller's own group and belong to us. v2 has one hierarchy, so there are no such groups."""
    if _is_v2(group):
        return []
    tail = group.directories[0].parts[-3:]
    places = {hierarchy.joinpath(*tail) for hierarchy in own_directories()}
    return sorted(places - set(group.directories))


def _config(
    spec: ContainerSpec,
    group: HostGroup,
    env: Mapping[str, str],
    endpoint: Endpoint | None,
    identity: Identity | None,
) -> dict[str, Any]:
    """Return the content of config.json (OCI runtime specification)."""
    user: dict[str, Any] = {"uid": 0, "gid": 0}
    if identity is not None:
        user = {"uid": identity.uid, "gid": identity.gid, "additionalGids": list(identity.groups)}
    capabilities = [] if identity is not None else [f"CAP_{name}" for name in _CAPABILITIES]
    sets = ("bounding", "effective", "permitted")
    namespaces: list[dict[str, str]] = [{"type": name} for name in ("pid", "ipc", "uts", "mount")]
    if endpoint is not None:
        namespaces.append({"type": "network", "path": str(_NETNS / endpoint.namespace)})
    directory = Path.cwd() if spec.directory is None else spec.directory.resolve()
    mounts = _kernel_mounts()
    if directory != Path("/"):
        mounts.append(_bind(directory, "ro" if spec.directory is None else "rw"))
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": user,
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
    """Return the path as runc's cgroupfs manager reads it: relative to runc's own group in v1, where our
    groups are made; from the mount point in v2."""
    path = "/".join(group.directories[0].parts[-3:])
    return f"/{path}" if _is_v2(group) else path


def _is_v2(group: HostGroup) -> bool:
    return len(group.directories) == 1


def _kernel_mounts() -> list[dict[str, Any]]:
    """Return mounts of the kernel's file systems, and empty ones that hide folders of this machine."""
    quiet = ["nosuid", "noexec", "nodev"]
    listed = [
        ("/proc", "proc", quiet),
        ("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        ("/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
        ("/dev/shm", "tmpfs", [*quiet, "mode=1777"]),
        ("/dev/mqueue", "mqueue", quiet),
        ("/sys", "sysfs", [*quiet, "ro"]),
        *((place, "tmpfs", ["nosuid", "nodev", "mode=1777"]) for place in _HIDDEN),
    ]
    return [
        {"destination": place, "type": kind, "source": kind, "options": options}
        for place, kind, options in listed
    ]


def _bind(folder: Path, access: str) -> dict[str, Any]:
    return {"destination": str(folder), "type": "bind", "source": str(folder), "options": ["rbind", access]}
