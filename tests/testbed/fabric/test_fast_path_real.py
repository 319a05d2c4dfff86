"""The fast path on a real fabric: it steers away, gives back, leaves nothing, and needs the key."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from control.fabric import Fault, FaultKind
from control.fast_path.message import Report, Sealer
from testbed.fabric import faults, leftovers, up
from testbed.fabric.fast_path.daemon import PORT
from testbed.fabric.fast_path.processes import RunningFastPath, start, stop
from testbed.fabric.fast_path.steering import RULE_PRIORITY, TABLE, Hop, Steering
from testbed.fabric.links import in_namespace, run_in
from testbed.fabric.model import Fabric, Plan
from testbed.fabric.ownership import state_folder
from testbed.fabric.reach import Reach
from tests.testbed.fabric.test_fabric_up import until

pytestmark = [pytest.mark.root, pytest.mark.slow]

WITHIN_S = 30.0


@pytest.fixture
def running(fabric: Fabric) -> Iterator[tuple[RunningFastPath, ...]]:
    started = start(fabric)
    until(
        lambda: all(heard(process) == len(process.router.uplinks) for process in started),
        "every session is heard",
    )
    yield started
    stop(started)


def steering(fabric: Fabric, host: int) -> Steering:
    with in_namespace(fabric.hosts[host].namespace):
        uplinks = fabric.hosts[host].uplinks
        return Steering(
            [Hop(socket.if_nametoindex(link.device), int(IPv4Address(link.gateway))) for link in uplinks]
        )


def decisions(running: RunningFastPath) -> list[dict]:
    return [json.loads(line) for line in running.journal.read_text().splitlines()]


def heard(running: RunningFastPath) -> int:
    return sum(row["what"] == "heard" for row in decisions(running))


def rules(fabric: Fabric, host: int) -> str:
    return run_in(fabric.hosts[host].namespace, ("ip", "rule", "show")).stdout


def loopback(fabric: Fabric, host: int) -> int:
    return int(IPv4Address(fabric.hosts[host].loopback))


def test_both_ends_turn_away_from_a_silent_port_and_give_back_when_bgp_has(fabric, running) -> None:
    fault = Fault(FaultKind.PORT, host=0, uplink=0)
    reach = Reach(fabric)
    faults.inject(fabric, fault)
    try:
        until(lambda: reach.without(0, 0), "BGP goes around")
        for process in running:
            until(lambda of=process: any(row["what"] == "release" for row in decisions(of)), "released")
    finally:
        faults.clear(fabric, fault)
        up.wait_converged(fabric, WITHIN_S)
        reach.close()
    near, far = map(decisions, running)
    mine = next(row for row in near if row["what"] == "steer")
    theirs = next(row for row in far if row["what"] == "steer")
    assert (mine["host"], mine["uplinks"], mine["why"]) == (fabric.hosts[1].loopback, [1], "silent")
    assert (theirs["host"], theirs["uplinks"], theirs["why"]) == (fabric.hosts[0].loopback, [1], "reported")
    for rows in (near, far):
        released = next(row for row in rows if row["what"] == "release")
        assert released["why"] == "confirmed"


def test_killed_it_leaves_nothing(fabric, running) -> None:
    table = steering(fabric, 0)
    # A route as the fast path writes it during a fault.
    table.steer({loopback(fabric, 1): {1}}, [])
    assert table.read()[1] == {loopback(fabric, 1): {1}}
    os.kill(running[0].process.pid, signal.SIGKILL)
    until(lambda: str(RULE_PRIORITY) not in rules(fabric, 0), "the rule goes")
    assert table.read()[1] == {}
    assert table.read()[0][loopback(fabric, 1)] == {0, 1}
    table.shut()


def test_ended_it_leaves_nothing_and_a_route_of_a_predecessor_goes(fabric) -> None:
    table = steering(fabric, 0)
    table.open()
    table.open()
    table.steer({loopback(fabric, 1): {0}}, [])
    started = start(fabric)
    until(lambda: table.read()[1] == {}, "the predecessor's route goes")
    stop(started)
    assert f"{TABLE}" not in rules(fabric, 0)
    table.shut()


def test_only_a_report_with_the_key_is_believed_and_that_once(fabric, running) -> None:
    key = (state_folder(fabric.plan.name) / "fast_path.key").read_bytes()
    report = Report(loopback(fabric, 0), frozenset({0}), 1.0)
    forged = Sealer(b"x" * 32).seal(report, time.time_ns())
    sealed = Sealer(key).seal(report, time.time_ns())

    def steers() -> int:
        return sum(row["what"] == "steer" for row in decisions(running[1]))

    with in_namespace(fabric.hosts[0].namespace), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.bind((fabric.hosts[0].loopback, 0))
        address = (fabric.hosts[1].loopback, PORT)
        out.sendto(forged, address)
        out.sendto(sealed, address)
        until(lambda: steers() == 1, "the report is believed")
        until(lambda: decisions(running[1])[-1]["why"] == "expired", "and ends")
        out.sendto(sealed, address)
        # When a later report is believed, the replay has been read.
        mark = Sealer(key).seal(Report(loopback(fabric, 0), frozenset({1}), 1.0), time.time_ns())
        out.sendto(mark, address)
        until(lambda: steers() == 2, "the next report is believed")
    assert decisions(running[1])[-1]["uplinks"] == [0]
    until(lambda: decisions(running[1])[-1]["what"] == "release", "and ends, too")


def test_a_fabric_comes_up_with_it_and_takes_it_along(fabric_machine: None) -> None:
    plan = Plan(name="fast", fast_path=True)
    try:
        fabric = up.up(plan)
        assert up.converged(fabric) == []
        table = steering(fabric, 0)
        until(lambda: table.read()[1] == {}, "nothing is steered")
        table.shut()
        run_in(fabric.hosts[1].namespace, ("ip", "rule", "del", "pref", str(RULE_PRIORITY)))
        assert up.converged(fabric) == ["tb-fast-h1: its fast path"]
    finally:
        (gone,) = leftovers.down(plan.name)
    # Two processes of the fast path at every host, besides FRR's.
    assert gone.processes == 2 * 2 + 4 * 3
