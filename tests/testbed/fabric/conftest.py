"""Fixtures for tests of the real fabric: a machine that can have one, and a fabric that is up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.fabric import doctor, leftovers
from testbed.fabric.model import Fabric, Plan
from twinbed import BackendError


@pytest.fixture(scope="session")
def fabric_machine() -> None:
    """Skip the test if no fabric can be made here."""
    try:
        doctor.require()
    except BackendError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def fabric(fabric_machine: None) -> Iterator[Fabric]:
    """A fabric of 2 hosts and 2 ToRs that is up. A test that breaks something repairs it and waits."""
    # The VM, which makes no such fabric, takes seconds to load this.
    from testbed.fabric.up import up

    name = "tested"
    yield up(Plan(name=name))
    leftovers.down(name)
