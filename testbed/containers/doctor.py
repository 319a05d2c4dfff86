"""Examine the features of this machine for the container testbed, with a cure for each missing one.

For: `twinbed testbed doctor`. Not for: changing anything. Features that must be tried are tried on our own
cgroup, which is removed afterwards.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernel import bcc_loader
from testbed import vm
from testbed.containers.cgroup import drivers
from testbed.containers.cgroup.drivers import Driver, Group
from testbed.containers.ownership import new_run
from twinbed import BackendError

Status = Literal["ok", "missing", "not allowed"]

_WRITES = 200
_CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_FAST_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
_ROOT = "run it as root: sudo twinbed testbed doctor"


@dataclass(frozen=True, slots=True)
class Finding:
    """One examined feature.

    feature: its name. status: whether it works here. found: its present state.
    meaning: its purpose, or the loss without it.
    cure: the command that provides it, empty if none is needed.
    needed: whether the container testbed cannot run without it.
    """

    feature: str
    status: Status
    found: str
    meaning: str
    cure: str = ""
    needed: bool = False


def examine() -> tuple[Finding, ...]:
    """Return a finding for every feature that the container testbed uses, necessary ones first. Needs no
    permission."""
    driver, hierarchy = _hierarchy()
    findings = [hierarchy]
    if driver is None:
        outcome, meaning = "not tried: no cgroup can be made", "see cgroups"
        tried = ("CPU quota", "memory limit", "OOM trap", "CPU burst", "quota write")
        findings += [Finding(name, "missing", outcome, meaning, _ROOT, name in tried[:2]) for name in tried]
    else:
        findings += _tried(driver)
    findings += [_namespaces(), program("ip", "iproute2", "networks of containers (record --network own)")]
    findings += [program(*wanted) for wanted in _PROGRAMS]
    findings += [_tracing(), _bcc(), virtual_machine(_VM_IS_FOR), _clock()]
    return tuple(findings)


_VM_IS_FOR = "the tests that need another kernel (make test-vm)"
_PROGRAMS = (
    ("tc", "iproute2", "links with a rate or a delay"),
    ("nft", "nftables", "silent faults of links"),
    ("runc", "runc", "containers as real OCI containers; without it they are processes in cgroups"),
)


def _hierarchy() -> tuple[Driver | None, Finding]:
    try:
        driver = drivers.detect()
    except BackendError as error:
        status: Status = "not allowed" if "permission" in str(error) else "missing"
        return None, Finding(
            "cgroups", status, _first_clause(error), "CPU and memory of containers", _ROOT, needed=True
        )
    others = f"v{driver.version}: cpu, memory"
    places = ", ".join(map(str, sorted({str(mount) for mount in driver.mounts[:3]})))
    return driver, Finding("cgroups", "ok", f"{others} at {places}", "CPU and memory of containers", "", True)


def _tried(driver: Driver) -> list[Finding]:
    """Make a cgroup and test the features that need one."""
    attempts: tuple[tuple[str, Callable[[Group], str], str, bool], ...] = (
        ("CPU quota", _try_quota, "limits of CPU, changed without a restart", True),
        ("memory limit", _try_memory, "limits of memory, swap included where it is counted", True),
        ("OOM trap", _try_trap, "tasks at their limit are held until it is raised, not killed", False),
        ("CPU burst", _try_burst, "quota saved up in idle periods", False),
        ("quota write", _time_write, "cost of one decision", False),
    )
    with ExitStack() as undo:
        try:
            run = new_run()
            undo.callback(driver.finish, run)
            group = driver.create(run, "doctor")
        except BackendError as error:
            return [
                Finding(name, "not allowed", _first_clause(error), meaning, _ROOT, needed)
                for name, _, meaning, needed in attempts
            ]
        undo.callback(group.remove)
        return [_attempt(group, *attempt) for attempt in attempts]


def _attempt(group: Group, name: str, attempt: Callable[[Group], str], meaning: str, needed: bool) -> Finding:
    try:
        return Finding(name, "ok", attempt(group), meaning, "", needed)
    except (BackendError, OSError) as error:
        missing = isinstance(error.__cause__ or error, FileNotFoundError)
        cure = "boot a newer kernel: sudo apt install linux-image-amd64" if missing else _ROOT
        return Finding(
            name, "missing" if missing else "not allowed", _first_clause(error), meaning, cure, needed
        )


def _try_quota(group: Group) -> str:
    group.set_cpu_quota(0.5)
    return f"period {drivers.QUOTA_PERIOD_US // 1_000} ms, at least {drivers.MIN_QUOTA_US // 1_000} ms of it"


def _try_memory(group: Group) -> str:
    group.set_memory_limit(64 << 20)
    counted = any(
        (directory / name).exists()
        for directory in group.directories
        for name in ("memory.memsw.limit_in_bytes", "memory.swap.max")
    )
    return "memory and swap" if counted else "memory; swap is not counted"


def _try_trap(group: Group) -> str:
    group.trap().close()
    if isinstance(group, drivers.GroupV1):
        return "oom_control and eventfd: holds for as long as it takes"
    return "memory.high and inotify: slows down, see docs/decisions/0011"


def _try_burst(group: Group) -> str:
    names = ("cpu.cfs_burst_us", "cpu.max.burst")
    files = [
        directory / name for directory in group.directories for name in names if (directory / name).exists()
    ]
    if not files:
        raise FileNotFoundError(2, f"no {' or '.join(names)} in this kernel (since 5.14)")
    files[0].write_text("1000")
    files[0].write_text("0")
    return files[0].name


def _time_write(group: Group) -> str:
    took = []
    for number in range(_WRITES):
        began = time.perf_counter_ns()
        group.set_cpu_quota(0.5 + 0.001 * (number % 2))
        took.append((time.perf_counter_ns() - began) / 1e3)
    return f"median {statistics.median(took):.1f} µs, p99 {statistics.quantiles(took, n=100)[98]:.1f} µs"


def _namespaces() -> Finding:
    wanted = ("pid", "ipc", "uts", "mnt", "net")
    missing = [kind for kind in wanted if not Path(f"/proc/self/ns/{kind}").exists()]
    meaning = "containers of their own network and processes"
    if missing:
        cure = "boot Debian's kernel: sudo apt install linux-image-amd64"
        return Finding("namespaces", "missing", f"no {', '.join(missing)}", meaning, cure)
    if not succeeds("unshare", "--mount", "--net", "true"):
        return Finding("namespaces", "not allowed", "unshare was refused", meaning, _ROOT)
    return Finding("namespaces", "ok", ", ".join(wanted), meaning)


def program(name: str, package: str, meaning: str) -> Finding:
    """Return whether a program is installed. package: Debian's package that has it."""
    place = shutil.which(name)
    if place is None:
        return Finding(name, "missing", "not installed", meaning, f"sudo apt install {package}")
    return Finding(name, "ok", place, meaning)


def _tracing() -> Finding:
    """Tracing programs are refused under lockdown, though root may do everything else."""
    from testbed.containers.cgroup import hooks

    meaning = "telemetry by kernel hooks; without it by polling, the same records"
    allowed, reason = hooks.available()
    if allowed:
        return Finding("BPF tracing", "ok", reason, meaning)
    return Finding("BPF tracing", "not allowed", _first_clause(reason), meaning, "make test-vm")


def _bcc() -> Finding:
    meaning = "kernel hooks without a compiled object"
    installed, reason = bcc_loader.available()
    if installed:
        return Finding("bcc", "ok", reason, meaning)
    missing, _, cure = reason.rpartition(": ")
    return Finding("bcc", "missing", missing, meaning, cure)


def virtual_machine(meaning: str) -> Finding:
    """Return whether a VM can be booted here. meaning: what it is for."""
    bootable, reason = vm.available()
    if bootable:
        return Finding("virtual machine", "ok", reason, meaning)
    problem, _, cure = reason.rpartition(": ")
    status: Status = "missing" if is_root() else "not allowed"
    return Finding("virtual machine", status, problem, meaning, cure if is_root() else _ROOT)


def _clock() -> Finding:
    meaning = "periods are timed by it"
    try:
        source = _CLOCK.read_text().strip()
    except OSError:
        source = "unknown"
    took = [time.monotonic_ns() for _ in range(1_000)]
    text = f"{source}, {(took[-1] - took[0]) / len(took):.0f} ns a reading"
    if source in (*_FAST_CLOCKS, "unknown"):
        return Finding("clock", "ok", text, meaning)
    return Finding("clock", "missing", text, meaning, f"echo tsc | sudo tee {_CLOCK}")


def succeeds(*command: str) -> bool:
    """Return whether a command runs here and exits with 0."""
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=10).returncode == 0
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False


def _first_clause(error: Exception | str) -> str:
    """Return the error without the cure, which has its own column."""
    return " ".join(str(error).split()).partition("; ")[0]


def can_run(findings: tuple[Finding, ...]) -> bool:
    """Return whether the container testbed can run: no necessary feature is missing."""
    return all(finding.status == "ok" for finding in findings if finding.needed)


def is_root() -> bool:
    """Return whether the findings are those that root would get."""
    return os.geteuid() == 0
