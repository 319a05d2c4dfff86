"""The backends that this machine has: the twin always, real jobs where root may make cgroups and networks."""

from __future__ import annotations

import pytest

from tests.contract.market.market_backends import Backend, Testbed, Twin


@pytest.fixture(params=["twin", pytest.param("testbed", marks=(pytest.mark.root, pytest.mark.slow))])
def market_backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "twin":
        return Twin()
    request.getfixturevalue("cgroups")
    return Testbed()
