"""An enclosed part of this machine with its own cgroups, mounts, /run, /tmp, /etc/frr, network and date.

For: injecting faults, and asking `down --all`, without touching other programs, and finding everything that
is left over, also what carries no mark. Not for: hiding processes (their ids are the machine's, so that
clean-ups outside take ours for alive). A process belongs here when its mount namespace is ours.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.patience import PATIENCE_S

CGROUPS = Path("/sys/fs/cgroup")
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RUN_BYTES, TMP_BYTES = 2 << 20, 8 << 20

NEEDED = ("unshare", "nsenter", "ip", "mount", "awk", "gcc")

_ENTER = f"""
set -e
umount -R {CGROUPS}
umount -l /sys
mount -t sysfs none /sys
mount -t tmpfs none {CGROUPS}
if [ "$1" = 2 ]; then
    mount -t cgroup2 none {CGROUPS}
    mkdir {CGROUPS}/own
    echo $$ > {CGROUPS}/own/cgroup.procs
else
    mkdir {CGROUPS}/systemd
    mount -t cgroup -o none,name=systemd none {CGROUPS}/systemd
    for each in $2; do
        mkdir {CGROUPS}/$each
        mount -t cgroup -o $each none {CGROUPS}/$each
    done
fi
# The kernel takes a mount away in here, too, when its directory is removed outside.
awk '$5 ~ "^/(run|tmp|dev/shm)/" {{print $5}}' /proc/self/mountinfo | sort -r | while read -r each; do
    umount -l "$(printf %b "$each")" 2>/dev/null || true
done
mount -t tmpfs -o size={RUN_BYTES} none /run
mkdir /run/netns
mount -t tmpfs -o size={TMP_BYTES} none /tmp
mount -t tmpfs none /dev/shm
# Fabrics outside keep their configurations there, and `down` would take them for left over.
[ ! -d /etc/frr ] || mount -t tmpfs none /etc/frr
ip link set lo up
shift 2
exec "$@"
"""


def why_not() -> str | None:
    """Return why this machine cannot make an enclosure; None if it can."""
    absent = [name for name in NEEDED if shutil.which(name) is None]
    if absent:
        return f"no {', '.join(absent)} here (apt install util-linux iproute2 mount gcc libc6-dev)"
    if HERE.is_relative_to("/tmp"):
        return "the tree lies under /tmp, and the enclosure has a /tmp of its own"
    probe = ["unshare", "--mount", "--net", "--cgroup", "mount", "-t", "tmpfs", "none", "/mnt"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"no namespaces of its own here: {done.stderr.strip()}"


def run(program: Sequence[str], folder: Path, timeout_s: float) -> int:
    """Run a Python program inside, and return its exit code. CLOCK_STEP names the file that steps the date.

    folder: folder for compiled files.
    """
    library, step = folder / "clock_step.so", folder / "step"
    compile_it = ["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*compile_it, "-o", str(library), str(HERE / "clock_step.c"), "-ldl"], check=True)
    step.write_bytes(bytes(8))
    # Files below /tmp cannot be seen inside, so both files are given as open descriptors.
    with library.open("rb") as given, step.open("r+b") as stepped:
        numbers = (given.fileno(), stepped.fileno())
        inside = ["sh", "-c", _preloading(*numbers), "sh", sys.executable, *program]
        groups = _make_groups()
        hierarchies = [group.parent.name for group in groups if group.parent.name != "systemd"]
        version = "2" if groups[0].parent == CGROUPS else "1"
        enter = ["unshare", "--mount", "--net", "--cgroup", "--propagation", "private"]
        try:
            return subprocess.run(
                [*enter, "sh", "-c", _ENTER, "sh", version, " ".join(hierarchies), *inside],
                cwd=ROOT,
                pass_fds=numbers,
                preexec_fn=lambda: _move_in(groups),
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            ).returncode
        finally:
            for group in groups:
                _remove(group)


def _preloading(library: int, step: int) -> str:
    return (
        f"mkdir /run/clock && cat </proc/self/fd/{library} >/run/clock/step.so && "
        f"cat </proc/self/fd/{step} >/run/clock/step && "
        'export CLOCK_STEP=/run/clock/step LD_PRELOAD=/run/clock/step.so && exec "$@"'
    )


def _make_groups() -> list[Path]:
    """Make a cgroup in every hierarchy, because runc needs all of them. Return their directories."""
    if (CGROUPS / "cgroup.controllers").exists():
        parents = [CGROUPS]
    else:
        parents = [path.parent for path in CGROUPS.glob("*/tasks")]
    if parents == [CGROUPS]:
        (CGROUPS / "cgroup.subtree_control").write_text("+cpu +memory")
    groups = [parent / f"faults-{os.getpid()}" for parent in parents]
    for group in groups:
        group.mkdir()
        if group.parent.name == "cpuset":
            for name in ("cpuset.cpus", "cpuset.mems"):
                (group / name).write_text((group.parent / name).read_text())
            (group / "cgroup.clone_children").write_text("1")
    return groups


def _move_in(groups: Sequence[Path]) -> None:
    for group in groups:
        (group / "cgroup.procs").write_text("0")


def _remove(group: Path) -> None:
    """Remove a cgroup with everything in it, whatever went wrong inside."""
    deadline = time.monotonic() + PATIENCE_S
    while group.exists() and time.monotonic() < deadline:
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                for pid in (Path(folder) / "cgroup.procs").read_text().split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
            with suppress(OSError):
                Path(folder).rmdir()
        time.sleep(0.02)
