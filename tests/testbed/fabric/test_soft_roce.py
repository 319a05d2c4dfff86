"""perftest's tools between two VMs: their output is parsed, and a queue pair survives a fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from testbed.fabric import soft_roce
from testbed.fabric.guests import Guest
from testbed.vm import TIMED_OUT, Completed
from twinbed import BackendError

HEADING = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]\n"
SAMPLES = "#, usec\n1, 512.25\n2, 213475\n3, 1.2e+06\n"


@dataclass
class FakeVm:
    """A VM that prints the given output."""

    says: str
    rc: int = 0
    asked: list[Sequence[str]] = field(default_factory=list)

    def run(
        self, argv: Sequence[str], timeout_s: float, *, on_output: Callable[[str, bytes], None]
    ) -> Completed:
        self.asked.append(argv)
        on_output("stdout", self.says.encode())
        return Completed(self.rc, self.says, "", 0.1)


def guest(says: str, rc: int = 0, address: str = "10.0.2.200") -> Guest:
    vm: Any = FakeVm(says, rc)
    return Guest(vm, cast(Any, SimpleNamespace(namespace="tb-x-h0")), address, "")


def test_latencies_are_halves_of_rounds() -> None:
    client, server = guest(HEADING + SAMPLES), guest("listening\n")
    pings = soft_roce.ping_pong(client, server, 3, timeout_s=1, timeout=10)

    assert pings.error is None
    assert pings.round_s == pytest.approx([1.0245e-3, 0.42695, 2.4])
    assert np.diff(pings.at_ns) == pytest.approx([1_024_500, 426_950_000])
    asked = cast(FakeVm, client.vm).asked[0][-1]
    assert "-n 3 -s 2 -U -u 10 10.0.2.200" in asked


def test_a_queue_pair_in_error_is_no_exception() -> None:
    broken = HEADING + " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n"
    pings = soft_roce.ping_pong(guest(broken, rc=1), guest("listening\n", rc=1), 3, timeout_s=1)
    assert pings.error == soft_roce.RETRIES_USED_UP
    assert pings.round_s.size == pings.at_ns.size == 0


def test_a_side_that_waits_for_ever_is_told_from_a_queue_pair_in_error() -> None:
    pings = soft_roce.ping_pong(guest(HEADING, TIMED_OUT), guest("listening\n"), 3, timeout_s=1)
    assert pings.error == "no error until the test's time was over; the other side may have failed"


def test_two_that_do_not_find_each_other_are_an_error() -> None:
    with pytest.raises(BackendError, match="ib_send_lat in the VM of tb-x-h0: Couldn't connect"):
        soft_roce.ping_pong(guest("Couldn't connect\n", 1), guest("listening\n"), 3, timeout_s=1)
    with pytest.raises(BackendError, match="ib_send_lat in the VM of tb-x-h0: no device"):
        soft_roce.ping_pong(guest(HEADING), guest("no device\n", 1), 3, timeout_s=1)
