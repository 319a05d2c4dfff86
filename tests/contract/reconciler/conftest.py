"""The backends that this machine has, and reconcilers to start on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from reconciler_backends import OWNER, REPRESENTORS, Backend, Twin
from reconciler_linux import LinuxBpf, namespace

from control.reconciler.reconciler import Reconciler
from control.reconciler.settings import ReconcilerSettings
from kernel.tunnel import Tunnel
from twinbed import BackendError

PACE = 0.2


@pytest.fixture(params=["twin", pytest.param("linux-bpf", marks=[pytest.mark.root, pytest.mark.slow])])
def kernel(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "twin":
        yield Twin()
        return
    if os.geteuid() != 0:
        pytest.skip("rules in a real kernel need root")
    try:
        Tunnel.load(1).close()
    except BackendError as error:
        pytest.skip(str(error))
    with namespace():
        backend = LinuxBpf(PACE)
        try:
            yield backend
        finally:
            backend.close()


@pytest.fixture
def reconciler(kernel: Backend) -> Callable[..., Reconciler]:
    def make(timeout_s: float = 1.0, **settings) -> Reconciler:
        timeout_s *= getattr(kernel, "pace", 1.0)
        return Reconciler(REPRESENTORS, ReconcilerSettings(owner=OWNER, timeout_s=timeout_s, **settings))

    return make
