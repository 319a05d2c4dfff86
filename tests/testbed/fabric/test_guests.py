"""A tap in a host's bridge is an endpoint like others. The tests imitate the VM behind it."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from testbed.fabric import guests, links
from testbed.fabric.model import Fabric
from testbed.vm import Completed, Machine
from twinbed import BackendError

VNET_HEADER = bytes(10)
EXPERIMENTAL = b"\x88\xb5"
"""An Ethernet type that nobody answers to (IEEE 802)."""


class PlayedVm:
    """An imitated VM: the test reads and writes its tap."""

    def __init__(self, machine: Machine, *, environment: Mapping[str, str]) -> None:
        self.tap = machine.nics[0].tap
        self.environment = environment

    def __enter__(self) -> PlayedVm:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def run(self, argv: Sequence[str], timeout_s: float, **_: object) -> Completed:
        return Completed(0, "", "", 0.0)


@pytest.fixture
def pair(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    monkeypatch.setattr(guests, "Vm", PlayedVm)
    with guests.guests(fabric, fabric.hosts) as (one, other):
        yield one, other


def arrives(sender: Any, receiver: Any, within_s: float) -> bool:
    """Return whether a frame that is sent repeatedly arrives."""
    frame = bytes.fromhex((receiver.mac + sender.mac).replace(":", "")) + EXPERIMENTAL + b"hello".ljust(46)
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        os.write(sender.vm.tap, VNET_HEADER + frame)
        while select.select([receiver.vm.tap], [], [], 0.05)[0]:
            if frame in os.read(receiver.vm.tap, 2_048):
                return True
    return False


def drained(guest: Any) -> None:
    while select.select([guest.vm.tap], [], [], 0.1)[0]:
        os.read(guest.vm.tap, 2_048)


@pytest.mark.root
@pytest.mark.slow
def test_two_vms_reach_each_other_over_the_overlay(fabric: Fabric, pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert one.vm.environment["TWINBED_FABRIC"] == fabric.plan.name
    assert arrives(one, other, 20)
    assert arrives(other, one, 20)


@pytest.mark.root
@pytest.mark.slow
def test_one_that_is_silenced_is_heard_again_afterwards(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert arrives(one, other, 20)
    with guests.silenced(one):
        drained(other)
        assert not arrives(one, other, 0.3)
        assert arrives(other, one, 20)
    assert arrives(one, other, 20)


@pytest.mark.root
@pytest.mark.slow
def test_a_host_has_one_vm_at_a_time_and_keeps_nothing_of_it(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    def everything() -> list[str]:
        # Messages about the other host's representor are ignored, because they come at any time.
        own = ("ip", "neigh", "show", "nud", "permanent")
        asked = (("ip", "-br", "link"), ("nft", "list", "ruleset"), own)
        outputs = [links.run_in(fabric.hosts[0].namespace, command).stdout for command in asked]
        return [line for output in outputs for line in output.splitlines() if "extern_learn" not in line]

    monkeypatch.setattr(guests, "Vm", PlayedVm)
    before = everything()
    with (
        guests.guests(fabric, fabric.hosts[:1]),
        pytest.raises(BackendError, match="a host can have one VM at a time"),
        guests.guests(fabric, fabric.hosts[:1]),
    ):
        pass
    assert everything() == before
