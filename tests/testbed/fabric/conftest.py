"""What tests of the real fabric need: a machine that can have one, and one that is up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.fabric import doctor, leftovers
from testbed.fabric.model import Fabric, Plan
from testbed.fabric.up import up
from twinbed import BackendError


@pytest.fixture(scope="session")
def fabric_machine() -> None:
    """Skips the test where no fabric can be made."""
    try:
        doctor.require()
    except BackendError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def fabric(fabric_machine: None) -> Iterator[Fabric]:
    """2 hosts and 2 ToRs, up and whole; who breaks something repairs it and waits."""
    name = "tested"
    yield up(Plan(name=name))
    leftovers.down(name)
