"""The backends that this machine has, and reconcilers to start on them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reconciler_backends import OWNER, REPRESENTORS, Backend, Twin

from control.reconciler.reconciler import Reconciler
from control.reconciler.settings import ReconcilerSettings


@pytest.fixture(params=["twin"])
def kernel(request: pytest.FixtureRequest) -> Backend:
    return Twin()


@pytest.fixture
def reconciler() -> Callable[..., Reconciler]:
    def make(**settings) -> Reconciler:
        return Reconciler(REPRESENTORS, ReconcilerSettings(owner=OWNER, **{"timeout_s": 1.0, **settings}))

    return make
