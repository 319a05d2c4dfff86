"""The backends that can run on this machine: the twin and plain processes always, emulated machines where
root may make cgroups and networks."""

from __future__ import annotations

import pytest

from tests.contract.market.market_backends import Backend, Processes, Testbed, Twin


@pytest.fixture(
    params=[
        "twin",
        pytest.param("processes", marks=pytest.mark.slow),
        pytest.param("testbed", marks=(pytest.mark.root, pytest.mark.slow)),
    ]
)
def market_backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "twin":
        return Twin()
    if request.param == "processes":
        return Processes()
    request.getfixturevalue("cgroups")
    return Testbed()
