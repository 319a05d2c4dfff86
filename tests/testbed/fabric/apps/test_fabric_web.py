"""HTTP and iperf3 during a fault: there is no error."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from control.fabric import Fault, FaultKind
from testbed.fabric import up
from testbed.fabric.apps import streams, web
from testbed.fabric.apps.cycle import Cycle
from testbed.fabric.apps.streams import Streams
from testbed.fabric.model import Fabric

WITHIN_S = 60.0


@pytest.mark.root
@pytest.mark.slow
def test_every_request_is_answered_though_a_path_is_lost(fabric: Fabric, tmp_path: Path) -> None:
    client, server = (host.endpoints[0] for host in fabric.hosts)
    with (
        web.server(server, tmp_path),
        web.Clients(client, server.address, clients=8) as clients,
        Cycle(fabric, [Fault(FaultKind.TOR, tor=0)], down_s=1.0, up_s=0.2) as cycle,
    ):
        _until(lambda: len(cycle.struck) == 1)
        cleared_ns = cycle.struck[0].cleared_ns
        _until(lambda: bool((clients.requests().began_ns > cleared_ns).any()))
    up.wait_converged(fabric, WITHIN_S)
    measured = clients.requests()
    assert measured.errors == ()
    assert (measured.began_ns < cycle.struck[0].at_ns).any()
    assert measured.longest_s == measured.took_s.max()


@pytest.mark.root
@pytest.mark.slow
def test_streams_have_a_rate_and_no_error(fabric: Fabric) -> None:
    source, destination = (host.endpoints[0] for host in fabric.hosts)
    measured = streams.measure(source, destination, seconds=1, streams=2, rate_bps=10e6)
    assert measured.error == ""
    assert measured.rate_bps.sum() > 0
    assert len(measured.rate_bps) == len(measured.begin_s)


def test_a_stall_is_the_longest_row_of_intervals_with_next_to_nothing() -> None:
    rate_bps = np.array([10, 10, 0, 0.1, 9, 0, 12, 11, 10, 0.6]) * 1e6
    measured = Streams(np.arange(10) * 0.1, rate_bps, 3, "")
    assert measured.median_bps == 9.5e6
    assert measured.longest_stall_s == pytest.approx(0.2)


def _until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)
