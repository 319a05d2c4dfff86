"""A fabric that is up: applications reach each other during every fault that leaves a path."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from control.fabric import Direction, Fault, FaultKind
from testbed.fabric import faults, frr, leftovers
from testbed.fabric.links import in_namespace, run_in
from testbed.fabric.model import Daemon, DaemonFault, Endpoint, Fabric, Plan
from testbed.fabric.rtnetlink import Rtnetlink
from testbed.fabric.up import converged, load, up, wait_converged
from twinbed import BackendError, ScenarioError

pytestmark = [pytest.mark.root, pytest.mark.slow]

WITHIN_S = 30.0


def until(done: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not done():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


def send_and_receive(fabric: Fabric, sender: int, receiver: int) -> bool:
    """Return whether one of a few datagrams between the first endpoints of two hosts arrives."""
    return reaches(fabric.hosts[sender].endpoints[0], fabric.hosts[receiver].endpoints[0])


def reaches(near: Endpoint, far: Endpoint, tries: int = 10) -> bool:
    """Return whether one of a few datagrams between two endpoints arrives."""
    with in_namespace(far.namespace):
        inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        inbox.bind((far.address, 0))
    with in_namespace(near.namespace):
        outbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inbox, outbox:
        inbox.settimeout(0.2)
        for _ in range(tries):
            outbox.sendto(b"x", inbox.getsockname())
            try:
                return inbox.recv(1) == b"x"
            except TimeoutError:
                continue
    return False


def links_of(fabric: Fabric, host: int) -> str:
    return run_in(fabric.hosts[host].namespace, ("ip", "link", "show")).stdout


def test_endpoints_reach_each_other_and_nothing_is_missing(fabric: Fabric) -> None:
    assert converged(fabric) == []
    assert load(fabric.plan.name) == fabric
    assert send_and_receive(fabric, 0, 1)
    assert send_and_receive(fabric, 1, 0)


def test_no_end_of_a_cable_has_the_others_index(fabric: Fabric) -> None:
    # Otherwise the kernel tells of a lost carrier up to a second late.
    for host in fabric.hosts:
        links = json.loads(run_in(host.namespace, ("ip", "-j", "link", "show", "type", "veth")).stdout)
        assert len(links) == len(host.uplinks) + len(host.endpoints)
        assert all(link["ifindex"] != link["link_index"] for link in links)


def test_a_request_that_the_kernel_refuses_names_the_device_the_reason_and_the_cure(fabric: Fabric) -> None:
    host = fabric.hosts[0]
    with Rtnetlink(host.namespace) as kernel:
        for device, message in (("tor0", "File exists; twinbed testbed"), ("tor9", "no such device; is the")):
            with pytest.raises(BackendError, match=f"{device} in {host.namespace}: {message}"):
                kernel("addr", "add", device, address=host.uplinks[0].address, prefixlen=31)


def test_a_neighbour_is_known_without_asking_it(fabric: Fabric) -> None:
    """EVPN carries the applications' addresses, so that no broadcast needs to."""
    host, other = fabric.hosts[0], fabric.hosts[1].endpoints[0]
    known = run_in(host.namespace, ("ip", "neigh", "show", "dev", host.segments[0].bridge)).stdout
    assert f"{other.address} lladdr {other.mac} extern_learn" in known


def test_daemons_run_at_the_priorities_that_were_asked_for(fabric: Fabric) -> None:
    pids = {daemon: frr.pid_of(fabric.hosts[0].namespace, daemon) or 0 for daemon in Daemon}
    assert os.sched_getscheduler(pids[Daemon.BFDD]) == os.SCHED_FIFO
    assert os.getpriority(os.PRIO_PROCESS, pids[Daemon.BGPD]) == -15


@pytest.mark.parametrize(
    "fault",
    [
        Fault(FaultKind.PORT, host=1, uplink=1, one_way=Direction.IN),
        Fault(FaultKind.TOR, tor=0, silent=False),
    ],
    ids=lambda fault: fault.kind,
)
def test_a_fault_is_noticed_survived_and_forgotten(fabric: Fabric, fault: Fault) -> None:
    injected = faults.inject(fabric, fault)
    try:
        assert injected.asked_ns < injected.at_ns
        faults.inject(fabric, fault)
        until(lambda: converged(fabric), "the lost way is noticed")
        assert ("NO-CARRIER" in links_of(fabric, 0)) == (not fault.silent)
        until(lambda: send_and_receive(fabric, 0, 1), "what is left carries on")
    finally:
        faults.clear(fabric, fault)
    faults.clear(fabric, fault)
    wait_converged(fabric, WITHIN_S)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(FaultKind.PORT, host=7, uplink=0), "host 7: this fabric has hosts 0 to 1"),
        (Fault(FaultKind.TOR, tor=-1), "tor -1: this fabric has tors 0 to 1"),
        (DaemonFault(), "give one of host and tor"),
        (Fault(FaultKind.NIC, host=0, uplink=0), "the testbed has no adapters"),
        (
            Fault(FaultKind.LINK, host=0, uplink=0, silent=False, one_way=Direction.OUT),
            "one_way: only a silent fault",
        ),
    ],
)
def test_faults_that_cannot_be_are_refused(fabric: Fabric, fault: Fault, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        faults.inject(fabric, fault)


def test_a_name_that_is_in_use_is_refused_and_what_is_up_stays(fabric: Fabric) -> None:
    with pytest.raises(BackendError, match="a fabric tested is up already; take another name"):
        up(fabric.plan)
    assert converged(fabric) == []


def test_another_fabric_stands_beside_it_shaped_and_stock(fabric: Fabric) -> None:
    settings = [Path("/proc/sys/net/core/rmem_max"), Path("/proc/sys/net/ipv4/tcp_rmem")]
    before = [path.read_text() for path in settings]
    beside = up(Plan(name="beside", rate_bps=1e9, stock=True, rto_min_s=0.01))
    try:
        assert [path.read_text() for path in settings] == before
        assert send_and_receive(beside, 0, 1)
        host = beside.hosts[0].namespace
        shaped = run_in(host, ("tc", "-s", "class", "show", "dev", "tor0", "classid", "1:1")).stdout
        assert "ceil 1Gbit" in shaped
        assert " Sent 0 bytes" not in shaped, "routing has a class of its own"
        route = run_in(beside.hosts[0].endpoints[0].namespace, ("ip", "route")).stdout
        assert "rto_min" in route
        assert os.sched_getscheduler(frr.pid_of(beside.hosts[0].namespace, Daemon.BFDD) or 0) == 0
    finally:
        leftovers.down("beside")
    assert converged(fabric) == []


def test_a_lossy_link_loses_its_share_and_is_mended(fabric: Fabric) -> None:
    fault = Fault(FaultKind.PORT, host=0, uplink=0)
    uplink, sent = fabric.hosts[0].uplinks[0], 200

    def received() -> int:
        with in_namespace(fabric.tors[0].namespace):
            inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            inbox.bind((uplink.gateway, 0))
        with in_namespace(fabric.hosts[0].namespace):
            outbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with inbox, outbox:
            for _ in range(sent):
                outbox.sendto(b"x", inbox.getsockname())
            inbox.settimeout(0.2)
            count = 0
            with suppress(TimeoutError):
                while inbox.recv(1):
                    count += 1
        return count

    faults.lose(fabric, fault, 0.3)
    try:
        # 140 ± 6.5 arrive: these bounds are six standard deviations away.
        assert 100 < received() < 180
    finally:
        faults.mend(fabric, fault)
        wait_converged(fabric, WITHIN_S)
    assert received() == sent
    with pytest.raises(ScenarioError, match="share"):
        faults.lose(fabric, fault, 0.0)


def test_a_lossy_link_is_repaired_with_everything_else(fabric: Fabric) -> None:
    faults.lose(fabric, Fault(FaultKind.PORT, host=1, uplink=0), 1.0)
    faults.clear_all(fabric)
    tables = run_in(fabric.tors[0].namespace, ("nft", "list", "tables")).stdout
    assert "loss" not in tables
    wait_converged(fabric, WITHIN_S)
