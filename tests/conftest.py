"""Fixtures for every test: public data sets, cgroups, BPF tracing and the VM, or why they are not there."""

from __future__ import annotations

import gc
import inspect
import os
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path

import pytest

from testbed.containers.cgroup import hooks
from testbed.vm import StoppedError, Vm, available
from tests import ci

# Tests start processes with preexec_fn beside gRPC's threads, whose handlers of fork() may abort the child.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

REAL = (
    "contract",
    "faults",
    "kernel",
    "testbed",
    "lab/containers/real",
    "lab/containers/calibrate",
)
"""Folders of tests that use the machine's own kernel and clock, which others use, too."""

PARTS: dict[str, Callable[[bool, str], bool]] = {
    "not real": lambda real, text: not real,
    "real and not vm": lambda real, text: real or "mark.root" in text,
    "vm": lambda real, text: "mark.vm" in text,
}
"""Parts of `tools/test` by their marks: whether a file has tests of one, by its being REAL and its text."""

LONGEST_ID = 100
"""Characters of a text that becomes part of a test's name."""

MOST_STOPS = 3
"""A test at which the guest stops this often is red: that is no chance."""

stops: list[tuple[str, str]] = []
"""Tests at which the VM stopped, and what it said."""


def pytest_configure(config: pytest.Config) -> None:
    """Register CI's further demands on a run, and keep Hypothesis from failing slow examples."""
    config.pluginmanager.register(ci)
    # Hypothesis is not loaded in the VM, whose CPU lacks instructions that it needs.
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import HealthCheck, settings

        # A folder may be the same for all examples, and a busy machine makes examples slowly.
        unasked = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
        settings.register_profile("any time", deadline=None, suppress_health_check=unasked)
        settings.load_profile("any time")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files without tests of the chosen part of `tools/test`. Otherwise every part would import all
    files."""
    asked = config.option.markexpr
    if asked not in PARTS or _has_tests_of(asked, collection_path):
        return None
    return True


@cache
def _has_tests_of(part: str, path: Path) -> bool:
    if path.is_dir():
        return any(_has_tests_of(part, file) for file in path.rglob("test_*.py"))
    return path.suffix == ".py" and PARTS[part](_is_real(path), path.read_text(encoding="utf-8"))


@cache
def _is_real(path: Path) -> bool:
    return any(path.is_relative_to(Path(__file__).parent / folder) for folder in REAL)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes and long texts by their argument. Bytes may hold a time, and two workers then disagree."""
    return argname if isinstance(val, bytes) or (isinstance(val, str) and len(val) > LONGEST_ID) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep Python's collector of garbage from what the imports made, all of which stays until the end.

    The collector would walk through millions of these objects again and again, here and in the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks and orders the tests.

    Tests of the real machine run alone (`-m real`): those in the folders REAL, in the VM, and with root's
    rights unless they stay `apart`. The others may run side by side (`-m 'not real' -n 2`). `tools/test`
    tries what failed once more, alone. Files with long tests come first, so that nobody waits for the last
    one at the end.
    Tests named in TWINBED_DONE are left out: they ran in a VM that stopped later.
    """
    done = os.environ.get("TWINBED_DONE", "").splitlines()
    items[:] = [item for item in items if item.nodeid not in done]
    lengths: dict[Path, int] = {}
    for item in items:
        kinds = {mark.name for mark in item.iter_markers()}
        real = "vm" in kinds or ("root" in kinds and "apart" not in kinds)
        real = real or _is_real(item.path)
        part = "vm" if "vm" in kinds else "real and not vm" if real else "not real"
        if not _has_tests_of(part, item.path):
            raise pytest.UsageError(f"{item.path}: no part of tools/test reads it for {item.name}")
        if real:
            item.add_marker(pytest.mark.real)
        length = 0 if real else 2 if kinds & {"browser", "slow"} else 1
        lengths[item.path] = max(length, lengths.get(item.path, 0))
    items.sort(key=lambda item: -lengths[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test. If the test's guest stopped, boot the guest again and repeat the test."""
    vm = pyfuncitem.funcargs.get("vm")
    if not isinstance(vm, Vm):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    while True:
        try:
            pyfuncitem.obj(**arguments)
        except StoppedError as error:
            stops.append((pyfuncitem.nodeid, str(error)))
            if [test for test, _ in stops].count(pyfuncitem.nodeid) == MOST_STOPS:
                raise
            vm.start()
        else:
            return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why a test was repeated, because nobody reads the output of a test that passed in the end."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"RERUN {report.nodeid}")
        terminalreporter.line(report.longreprtext)
    for test, reason in stops:
        terminalreporter.section(f"VM STOPPED, BOOTED ANEW: {test}")
        terminalreporter.line(reason)


@pytest.fixture(scope="session")
def public_data() -> Callable[[str], Path]:
    """Return a function: name of a public data set → its folder. It skips the test if the data is
    missing."""
    root = Path(os.environ.get("TWINBED_DATA") or Path(__file__).parents[2] / "shared" / "data")

    def folder(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"public data set {name} is not in {root} (set TWINBED_DATA to its parent folder)")
        return root / name

    return folder


@pytest.fixture(scope="session")
def cgroups() -> None:
    """Skip the test if no cgroup can be made. This check does not use the code under test."""
    mount = Path("/sys/fs/cgroup")
    mounted = (mount / "memory").is_dir() or (mount / "cgroup.controllers").exists()
    if os.geteuid() != 0 or not mounted or not os.access(mount, os.W_OK):
        pytest.skip("making cgroups needs root and /sys/fs/cgroup mounted for writing")


@pytest.fixture(scope="session")
def tracing(cgroups: None) -> None:
    """Skip the test if the kernel does not let BPF programs be attached. Such tests run in the VM."""
    allowed, reason = hooks.available()
    if not allowed:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def kept_vm() -> Iterator[Vm]:
    """Return a VM with Debian's stock kernel, not started yet. Skips the test if none can be booted here."""
    bootable, reason = available()
    if not bootable:
        pytest.skip(f"no VM here: {reason}")
    if Path(__file__).resolve().is_relative_to("/tmp"):
        pytest.skip("the VM has its own /tmp, so it cannot see a tree that lies under /tmp")
    kept = Vm()
    yield kept
    kept.stop()


@pytest.fixture
def vm(kept_vm: Vm) -> Vm:
    """Return the session's VM, running. The VM is booted again if the test before stopped it."""
    if kept_vm.pid is None:
        kept_vm.stop()
        kept_vm.start()
    return kept_vm
