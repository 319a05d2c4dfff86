"""Two data planes that run, or the reason why none can."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.fabric.bfd_plane.pair import End, pair
from testbed.fabric.bfd_plane.program import program
from twinbed import BackendError


@pytest.fixture
def ends(fabric_machine: None) -> Iterator[tuple[End, End]]:
    try:
        program()
    except BackendError as error:
        pytest.skip(str(error))
    with pair() as made:
        yield made
