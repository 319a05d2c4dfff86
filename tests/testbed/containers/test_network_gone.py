"""A network that somebody removes while it is counted is an error of ours, and names the link."""

from __future__ import annotations

import pytest

from testbed.containers.network import Endpoint
from twinbed import BackendError


def test_counters_that_cannot_be_read_name_the_link() -> None:
    endpoint = Endpoint.__new__(Endpoint)
    endpoint.link, endpoint._rx, endpoint._tx = "tb-0123-1", -1, -1
    with pytest.raises(BackendError, match="tb-0123-1: its counters cannot be read"):
        endpoint.read()
