"""A fabric that this machine has no room for is refused with the limit and the number that would fit."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from control.fabric import BfdTimers
from testbed.fabric import capacity, doctor, ownership, up
from testbed.fabric.model import Plan
from twinbed import BackendError


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Return the free resources of a machine, by name. A test may change them."""
    free = {scarce.name: 1e9 for scarce in capacity._RESOURCES}
    resources = tuple(
        replace(scarce, free=lambda name=scarce.name: free[name]) for scarce in capacity._RESOURCES
    )
    monkeypatch.setattr(capacity, "_RESOURCES", resources)
    return free


@pytest.mark.parametrize(
    ("resource", "free", "fits"),
    [
        # 200 hosts with two uplinks send 200 * 2 * 2 / 0.05 s = 16,000 packets/s of 0.65 ms.
        ("cores for BFD", 1.7, 32),
        ("MiB of memory", 1000.0, 37),
        ("processes and threads", 1200.0, 98),
        ("network namespaces", 100.0, 49),
        ("network namespaces", 4.0, 0),
        ("open files", 204.0, 50),
    ],
)
def test_a_limit_is_named_with_the_number_of_hosts_that_fit(
    machine: dict[str, float], resource: str, free: float, fits: int
) -> None:
    machine[resource] = free
    with pytest.raises(BackendError) as refused:
        capacity.require(Plan(hosts=200))
    said = str(refused.value)
    assert resource in said
    assert f"; {fits or 'not even 2'} would fit" in said
    if fits:
        capacity.require(Plan(hosts=fits))
        with pytest.raises(BackendError):
            capacity.require(Plan(hosts=fits + 1))


def test_our_own_data_plane_leaves_room_for_larger_fabrics(machine: dict[str, float]) -> None:
    # 12 hosts at 8 ToRs send 3,840 packets/s: 2.5 cores of bfdd, and 0.31 of ours with 0.16 for 20 processes.
    machine["cores for BFD"] = 0.5
    capacity.require(Plan(hosts=12, tors=8, bfd_plane=True))
    with pytest.raises(BackendError, match=r"need 2\.496 cores for BFD"):
        capacity.require(Plan(hosts=12, tors=8))


def test_the_scarcest_resource_is_named(machine: dict[str, float]) -> None:
    machine |= {"cores for BFD": 5.0, "MiB of memory": 50.0}
    with pytest.raises(BackendError, match="hosts: 200 need 5,150 MiB of memory, and this machine has 50 to"):
        capacity.require(Plan(hosts=200))


def test_slower_timers_need_fewer_cores(machine: dict[str, float]) -> None:
    machine["cores for BFD"] = 1.7
    capacity.require(Plan(hosts=60, bfd=BfdTimers(0.1, 3)))


def test_two_hundred_hosts_are_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "require", lambda: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    before = ownership.fabrics()
    with pytest.raises(
        BackendError, match=r"hosts: 200 need 10\.4 cores for BFD, .* 1\.7 to spare; 32 would"
    ):
        up.up(Plan(name="large", hosts=200))
    assert ownership.fabrics() == before
    assert not Path("/run/twinbed/fabric/large").exists()
