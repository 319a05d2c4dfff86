"""Fixtures for every test: public data sets, cgroups, BPF tracing and the VM, or why they are not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.containers.cgroup import hooks
from testbed.vm import Vm, available

REAL = (
    "contract",
    "faults",
    "kernel",
    "testbed",
    "lab/containers/real",
    "lab/containers/calibrate",
    "studies/fidelity_fabric",
)
"""Where tests run on the machine's own kernel and clock, which others use, too."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs on the real machine runs alone (`-m real`); the rest may run side by side (`-m 'not real'
    -n 2`). What is real, and what drives a browser, is tried once more when it fails, which the summary tells
    of (RERUN): such a machine may stand still for longer than any deadline that is of use. What runs in the
    VM is tried three times more: an emulated kernel stops for good now and then, and is booted anew. Files
    with long tests come first: at the end nobody waits for the last one's."""
    here = Path(__file__).parent
    folders = [here / each for each in REAL]
    for item in items:
        kinds = {mark.name for mark in item.iter_markers()}
        real = kinds & {"root", "vm"} or any(item.path.is_relative_to(each) for each in folders)
        if real:
            item.add_marker(pytest.mark.real)
        if real or "browser" in kinds:
            item.add_marker(pytest.mark.flaky(reruns=3 if "vm" in kinds else 1))
    lengths: dict[Path, int] = {}
    for item in items:
        kinds = {mark.name for mark in item.iter_markers()}
        length = 0 if "real" in kinds else 2 if kinds & {"browser", "slow"} else 1
        lengths[item.path] = max(length, lengths.get(item.path, 0))
    items.sort(key=lambda item: -lengths[item.path])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why something was tried again: nobody reads what passed in the end."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"RERUN {report.nodeid}")
        terminalreporter.line(report.longreprtext)


@pytest.fixture(scope="session")
def public_data() -> Callable[[str], Path]:
    """A function: name of a public data set → its folder; skips the test where the data is not there."""
    given = os.environ.get("TWINBED_DATA")
    root = Path(given) if given else Path(__file__).parents[2] / "shared" / "data"

    def folder(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"public data set {name} is not in {root} (set TWINBED_DATA to its parent folder)")
        return root / name

    return folder


@pytest.fixture(scope="session")
def cgroups() -> None:
    """Skips the test where no cgroup can be made, found out without the code that is under test."""
    mount = Path("/sys/fs/cgroup")
    there = (mount / "memory").is_dir() or (mount / "cgroup.controllers").exists()
    if os.geteuid() != 0 or not there or not os.access(mount, os.W_OK):
        pytest.skip("making cgroups needs root and /sys/fs/cgroup mounted for writing")


@pytest.fixture(scope="session")
def tracing(cgroups: None) -> None:
    """Skips the test where the kernel does not let BPF programs be attached; they are tested in the VM."""
    there, reason = hooks.available()
    if not there:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def kept_vm() -> Iterator[Vm]:
    """A VM with Debian's stock kernel, not started yet; skips where there is none to be had."""
    there, reason = available()
    if not there:
        pytest.skip(f"no VM here: {reason}")
    if Path(__file__).resolve().is_relative_to("/tmp"):
        pytest.skip("the VM has a /tmp of its own, so a tree that lies under /tmp is not to be seen in it")
    kept = Vm()
    yield kept
    kept.stop()


@pytest.fixture
def vm(kept_vm: Vm) -> Vm:
    """The session's VM, up; booted again where the test before lost it."""
    if kept_vm.pid is None:
        kept_vm.stop()
        kept_vm.start()
    return kept_vm
