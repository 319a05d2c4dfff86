"""The backends that can run on this machine: the twin always, and real cgroups of the machine's version."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.containers.cgroup.drivers import detect
from tests.contract.contract_backends import Backend, Linux, Twin
from twinbed import BackendError


def _linux_version() -> int | None:
    try:
        return detect().version
    except BackendError:
        return None


VERSION = _linux_version() or 1
REAL = tuple(f"linux{which}-v{VERSION}" for which in ("", "-remote", "-podman"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every case that takes a backend on all backends."""
    if "backend" in metafunc.fixturenames:
        real = [pytest.param(name, marks=pytest.mark.root) for name in REAL]
        chosen = [pytest.param("twin"), *real]
        metafunc.parametrize("backend", chosen, indirect=True, scope="session")


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    if request.param == "twin":
        yield Twin()
        return
    if os.geteuid() != 0 or _linux_version() is None:
        pytest.skip("real cgroups need root and a cpu and a memory controller mounted for writing")
    found = _kind(request.param)(detect(), Path(tmp_path_factory.mktemp("contract")))
    yield found
    found.close()


def _kind(name: str) -> type[Linux]:
    """Return the class of a real backend. The VM runs only one, and takes long to load the others."""
    if "remote" in name:
        from tests.contract.remote_backend import LinuxRemote

        return LinuxRemote
    if "podman" in name:
        from tests.contract.pod_backend import LinuxPod

        return LinuxPod
    return Linux


@pytest.fixture(autouse=True)
def _declared(request: pytest.FixtureRequest) -> None:
    """Mark cases that a backend is declared not to do as expected failures."""
    table = getattr(request.module, "CANNOT", {})
    callspec = getattr(request.node, "callspec", None)
    name = None if callspec is None else callspec.params.get("backend")
    reason = table.get((name, request.node.originalname))
    if reason is not None:
        request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))
