"""The backends that can run on this machine, and reconcilers to start on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from control.reconciler.reconciler import Reconciler
from control.reconciler.settings import ReconcilerSettings
from kernel.tunnel import Tunnel
from testbed.fabric.rules.flower import FlowerRules
from tests.contract.reconciler.reconciler_backends import OWNER, REPRESENTORS, Backend, Twin
from tests.contract.reconciler.reconciler_linux import LinuxBpf, LinuxFlower, namespace
from twinbed import BackendError

BACKENDS = {"linux-bpf": (LinuxBpf, 0.1), "linux-flower": (LinuxFlower, 0.3)}
"""Class and pace of every backend. flower is tested under emulation, so it is slower."""


_REAL = (pytest.mark.root, pytest.mark.slow)

CANNOT = {
    (
        "linux-flower",
        "test_a_kernel_that_takes_fewer_is_asked_for_one_more_at_a_time",
    ): "tc's flower has no limit of its own; an adapter's would come as ENOSPC",
}
"""(backend, case) → why the backend cannot do it."""


@pytest.fixture(
    params=["twin", pytest.param("linux-bpf", marks=_REAL), pytest.param("linux-flower", marks=_REAL)]
)
def kernel(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "twin":
        yield Twin()
        return
    if os.geteuid() != 0:
        pytest.skip("rules in a real kernel need root")
    reason = _missing(request.param)
    if reason:
        pytest.skip(reason)
    with namespace():
        kind, pace = BACKENDS[request.param]
        backend = kind(pace)
        try:
            yield backend
        finally:
            backend.close()


@cache
def _missing(backend: str) -> str:
    """Return what this machine lacks for a backend; "" if nothing."""
    if backend == "linux-flower":
        lacks = "this kernel has no cls_flower or no act_tunnel_key; see make test-vm"
        return "" if FlowerRules.works() else lacks
    try:
        Tunnel.load(1).close()
    except BackendError as error:
        return str(error)
    return ""


@pytest.fixture(autouse=True)
def _declared_here(request: pytest.FixtureRequest) -> None:
    """Mark cases that a backend cannot do, as CANNOT says, as expected failures."""
    callspec = getattr(request.node, "callspec", None)
    name = None if callspec is None else callspec.params.get("kernel")
    reason = CANNOT.get((name, request.node.originalname))
    if reason is not None:
        request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture
def reconciler(kernel: Backend) -> Callable[..., Reconciler]:
    def make(timeout_s: float = 1.0, **settings) -> Reconciler:
        timeout_s *= getattr(kernel, "pace", 1.0)
        return Reconciler(REPRESENTORS, ReconcilerSettings(owner=OWNER, timeout_s=timeout_s, **settings))

    return make
