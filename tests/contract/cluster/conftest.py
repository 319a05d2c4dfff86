"""The backends that can run on this machine: the twin always, real jobs where root may make cgroups."""

from __future__ import annotations

import pytest

from tests.contract.cluster.cluster_backends import Backend, Testbed, Twin

CANNOT = {
    ("testbed", "test_the_same_seed_gives_the_same_log_to_the_bit"): "processes take as long as they take",
}
"""(backend, case) → why the backend cannot do it."""


@pytest.fixture(params=["twin", pytest.param("testbed", marks=(pytest.mark.root, pytest.mark.slow))])
def cluster_backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "twin":
        return Twin()
    request.getfixturevalue("cgroups")
    return Testbed()


@pytest.fixture(autouse=True)
def _declared_here(request: pytest.FixtureRequest) -> None:
    """Mark cases that a backend cannot do, as CANNOT says, as expected failures."""
    callspec = getattr(request.node, "callspec", None)
    name = None if callspec is None else callspec.params.get("cluster_backend")
    reason = CANNOT.get((name, request.node.originalname))
    if reason is not None:
        request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))
