"""The backends that can run on this machine: the twin always, and emulated machines.

Where nobody may make cgroups, plain processes stand for the emulated machines. Both are carried out by the
same code, so that one of them shows all that it does.
"""

from __future__ import annotations

import pytest

from tests.contract.market.market_backends import Backend, Processes, Testbed, Twin


@pytest.fixture(params=["twin", pytest.param("real", marks=pytest.mark.slow)])
def market_backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "twin":
        return Twin()
    try:
        request.getfixturevalue("cgroups")
    except pytest.skip.Exception:
        return Processes()
    return Testbed()
