"""Fixtures of tests on the real kernel, and checks that nothing is left behind."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from testbed.containers.cgroup.drivers import V1, V2, Group, detect
from testbed.containers.ownership import new_run
from tests.testbed.containers.real_groups import folders

UVLOOP = ("services", "load")
"""Folders of tests of programs that run on uvloop."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    if pyfuncitem.path.parent.name in UVLOOP:
        import uvloop

        uvloop.run(test)
    else:
        asyncio.run(test)
    return True


@pytest.fixture
def driver(cgroups: None) -> V1 | V2:
    """Return this machine's cgroup driver."""
    return detect()


@pytest.fixture
def group(driver: V1 | V2) -> Iterator[Group]:
    """An empty group of this machine, removed afterwards."""
    run = new_run()
    made = driver.create(run, "probe")
    try:
        yield made
    finally:
        made.remove()
        driver.finish(run)


@pytest.fixture(scope="session")
def root_network() -> None:
    """Skips the test where `ip` cannot make a network namespace and work in it."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    probe = f"probe-{os.getpid()}"
    try:
        for words in (("netns", "add", probe), ("-netns", probe, "link")):
            done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"no network namespaces here: {done.stderr.strip()}")
    finally:
        subprocess.run(["ip", "netns", "delete", probe], capture_output=True, check=False)


@pytest.fixture
def leftovers() -> Callable[[int], list[str]]:
    """A function: process id of a recorder → every cgroup, link and namespace that carries its mark."""

    def find(pid: int) -> list[str]:
        mark = f"run-{pid}-"
        namespaces = [str(path) for path in Path("/run/netns").glob(f"tb-{mark}*")]
        links = []
        for path in Path("/sys/class/net").glob("tb-*"):
            with suppress(FileNotFoundError):  # It was removed in the meantime.
                links += [str(path)] if mark in (path / "ifalias").read_text() else []
        return folders(mark) + namespaces + links

    return find
