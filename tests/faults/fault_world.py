"""The contents of the enclosure: foreign things, which must stay, and all others, which must go.

For: invariants after a fault. Not for: faults. No check uses the code under test.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.enclosure import CGROUPS
from tests.patience import PATIENCE_S
from tests.testbed.containers.real_groups import quota_of

CASE = Path("/tmp/case")
"""Files of the case at hand, which it removes itself."""

DEADLINE_S = 60.0
ROUNDING_CORES = 4e-5
_CLOCK = Path("/run/clock/step")
_FILLER = "filler"


class ViolationError(Exception):
    """An invariant does not hold."""


def until(look: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait until `look` returns something true. Raises ViolationError with `what` after deadline_s."""
    deadline = time.monotonic() + deadline_s
    while not look():
        if time.monotonic() > deadline:
            raise ViolationError(f"never: {what}")
        time.sleep(0.01)


def step_clock(seconds: int) -> None:
    """Set the date of all processes in the enclosure, relative to the true date."""
    with _CLOCK.open("r+b") as file:
        file.write(struct.pack("q", seconds))


def fill(folder: Path) -> None:
    """Fill the folder's file system, so that no byte more can be written."""
    with (folder / _FILLER).open("wb", buffering=0) as file:
        block = bytes(1 << 16)
        while block:
            try:
                if file.write(block) < len(block):
                    block = block[: len(block) // 2]
            except OSError:
                block = block[: len(block) // 2]


def make_room() -> None:
    """Undo `fill`."""
    for folder in (Path("/tmp"), Path("/run")):
        (folder / _FILLER).unlink(missing_ok=True)


def hierarchies() -> list[Path]:
    """Return the directories at which cgroup hierarchies are mounted."""
    return [CGROUPS] if (CGROUPS / "cgroup.procs").exists() else sorted(CGROUPS.iterdir())


class World:
    """The enclosure with foreign things: another program's container, and names that resemble ours."""

    def __init__(self) -> None:
        _check_clock()
        self._foreign_groups = [hierarchy / "docker" / "abc" for hierarchy in hierarchies()]
        near = [hierarchy / "twinbed" / "not-a-run" for hierarchy in hierarchies()]
        for group in (*self._foreign_groups, *near):
            group.mkdir(parents=True)
        if hierarchies() == [CGROUPS]:
            for above in (CGROUPS, CGROUPS / "docker"):
                (above / "cgroup.subtree_control").write_text("+cpu +memory")
        foreign = ["sh", "-c", "while :; do sleep 0.05; done"]
        self.foreign = subprocess.Popen(foreign, preexec_fn=self._enter)
        self._limits = self.foreign_limits()
        subprocess.run(["ip", "link", "add", "tb-foreign", "type", "bridge"], check=True)
        subprocess.run(["ip", "netns", "add", "tb-foreign"], check=True)
        Path("/run/twinbed-of-others").mkdir()
        Path("/tmp/twinbed-of-others").write_text("theirs")
        # What passes is in one look only. The kernel shows a process that ends, such as a sleep of the
        # foreign container, in the root cgroup (proc_cgroup_show), so it looks like one of ours for a moment.
        first = self._found()
        time.sleep(0.2)
        self._before = first & self._found()

    def _enter(self) -> None:
        for group in self._foreign_groups:
            (group / "cgroup.procs").write_text("0")

    def close(self) -> None:
        """End the foreign container."""
        self.foreign.kill()
        self.foreign.wait()

    def foreign_limits(self) -> dict[str, str]:
        """Return the contents of the foreign container's control files."""
        names = ("cpu.cfs_quota_us", "memory.limit_in_bytes", "memory.oom_control", "cpu.max", "memory.max")
        names += ("memory.high", "memory.memsw.limit_in_bytes", "memory.swap.max")
        paths = [group / name for group in self._foreign_groups for name in names]
        return {str(path): path.read_text() for path in paths if path.exists()}

    def problems(self) -> list[str]:
        """Return what is there and should not be, and what is missing."""
        found = self._found()
        left = [f"left over: {each}" for each in sorted(found - self._before)]
        gone = [f"not ours and gone: {each}" for each in sorted(self._before - found)]
        if self._limits != self.foreign_limits():
            gone.append(f"limits of a foreign container: {self.foreign_limits()}")
        return left + gone

    def check_nothing_left(self) -> None:
        """Raise ViolationError if anything is left. A killed process may take a moment to vanish."""
        deadline = time.monotonic() + DEADLINE_S
        while (problems := self.problems()) and time.monotonic() < deadline:
            time.sleep(0.02)
        if problems:
            raise ViolationError("; ".join(problems[:8]))

    def clear(self) -> None:
        """Remove everything after a violation, so that the next case is not blamed for it."""
        for name in self._found() - self._before:
            if name.startswith("process "):
                _kill(int(name.split()[1]))
        deadline = time.monotonic() + PATIENCE_S
        while (left := self._found() - self._before) and time.monotonic() < deadline:
            for name in sorted(left, reverse=True):
                kind, what = name.split(" ", 1)
                if kind == "cgroup":
                    subprocess.run(["rmdir", what], capture_output=True, check=False)
                elif kind == "file":
                    shutil.rmtree(what, ignore_errors=True)
                    if Path(what).is_file():
                        Path(what).unlink()
                elif kind == "process":
                    _kill(int(what.split()[0]))
            time.sleep(0.02)

    def _found(self) -> set[str]:
        groups = {folder for hierarchy in hierarchies() for folder, _, _ in os.walk(hierarchy)}
        files = {
            str(Path(folder) / name)
            for top in ("/run", "/tmp", "/dev/shm")
            for folder, folders, names in os.walk(top)
            for name in (*folders, *names)
        }
        hidden = (str(CASE), f"/run/{_FILLER}", f"/tmp/{_FILLER}")
        return {
            *(f"cgroup {group}" for group in groups),
            *(f"file {each}" for each in files if not each.startswith(hidden)),
            *(f"link {path.name}" for path in Path("/sys/class/net").iterdir()),
            *(f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()),
            *(f"process {pid} {said}" for pid, said in self._processes().items()),
        }

    def _processes(self) -> dict[int, str]:
        """Return all processes in the enclosure except this process and those of the foreign container."""
        own, found = Path("/proc/self/ns/mnt").readlink(), {}
        for path in Path("/proc").iterdir():
            if not path.name.isdigit() or int(path.name) == os.getpid():
                continue
            try:
                inside = (path / "ns" / "mnt").readlink() == own
                if inside and "/docker/abc" not in (path / "cgroup").read_text():
                    words = (path / "cmdline").read_bytes().split(b"\0")
                    found[int(path.name)] = b" ".join(words).decode(errors="replace")[:120]
            except OSError:
                continue
        return found


class Containers:
    """The containers of one run or agent, found by their cgroups in the CPU controller's hierarchy."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def folders(self) -> dict[str, Path]:
        """Return name → directory of each container."""
        top = CGROUPS if hierarchies() == [CGROUPS] else CGROUPS / "cpu"
        return {path.name: path for path in top.glob(f"twinbed/{self._pattern}/*") if path.is_dir()}

    def everywhere(self, name: str) -> list[Path]:
        """The container's directory in every hierarchy."""
        return [
            folder
            for hierarchy in hierarchies()
            for folder in hierarchy.glob(f"twinbed/{self._pattern}/{name}")
        ]

    def pids(self) -> dict[str, frozenset[int]]:
        """Return name → live processes of each container."""
        return {name: _pids(folder) for name, folder in self.folders().items()}

    def pid(self, name: str) -> int | None:
        """Return the process of the container's command, which is its first process; None if there is
        none."""
        folder = self.folders().get(name)
        return None if folder is None else min(_pids(folder), default=None)

    def quotas(self) -> dict[str, float]:
        """Return the quotas of all containers with processes at one moment: quotas are read until two
        readings agree."""
        before: dict[str, float] = {}
        while True:
            used = {name: folder for name, folder in self.folders().items() if _pids(folder)}
            now = {name: each for name, folder in used.items() if (each := _quota(folder)) is not None}
            if now == before:
                return now
            before = now

    def check_limits(self, cores: float) -> None:
        """Raise ViolationError unless every container has a limit and the limits add up to at most
        `cores`."""
        quotas = self.quotas()
        if sum(quotas.values()) > cores + ROUNDING_CORES * max(len(quotas), 1):
            raise ViolationError(f"quotas beyond {cores:g}: {quotas}")


def _check_clock() -> None:
    """Raise RuntimeError if processes do not get the date that is set here."""
    asked, seen_s = [sys.executable, "-c", "import time; print(time.time())"], []
    for seconds in (0, 1_000_000):
        step_clock(seconds)
        seen_s.append(float(subprocess.check_output(asked)))
    step_clock(0)
    if not 999_000 < seen_s[1] - seen_s[0] < 1_001_000:
        raise RuntimeError(f"a step of 1,000,000 s moved the date by {seen_s[1] - seen_s[0]:.0f} s")


def remove_cgroup(folders: list[Path]) -> None:
    """Remove a cgroup from outside: kill its processes and remove the directories."""
    deadline = time.monotonic() + DEADLINE_S
    for path in folders:
        while path.exists():
            for pid in _pids(path):
                _kill(pid)
            try:
                path.rmdir()
            except FileNotFoundError:
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.002)


def _pids(folder: Path) -> frozenset[int]:
    try:
        return frozenset(map(int, (folder / "cgroup.procs").read_text().split()))
    except OSError:
        return frozenset()


def _quota(folder: Path) -> float | None:
    try:
        return quota_of(folder)
    except OSError:
        return None


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
