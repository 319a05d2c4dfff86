"""Rules in a BPF map: handles, room, filters that were removed, and other owners' rules."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator

import numpy as np
import pytest
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether

from control.reconciler.model import Rules, Table
from control.reconciler.ports import Add, Cause, Delete, Reason, Replace, RuleChange
from kernel.tunnel import Tunnel
from testbed.fabric.apps.wire import ETH_P_ALL
from testbed.fabric.model import VXLAN_PORT
from testbed.fabric.monitor import Monitor
from testbed.fabric.netlink import Socket
from testbed.fabric.rules import bpf
from testbed.fabric.rules.bpf import BpfRules
from testbed.fabric.rules.ingress import WAY_OUT
from testbed.fabric.rules.port import Refused
from tests.patience import PATIENCE_S
from tests.testbed.fabric.small_host import LOCAL, REPRESENTOR, VNI, ip, small_host
from twinbed import BackendError

pytestmark = pytest.mark.root

OURS, THEIRS = 0xB0B, 0xA11CE
MARK = b"which checksum does it have?"
WITHIN_S = 5.0


@pytest.fixture
def host() -> Iterator[str]:
    if os.geteuid() != 0:
        pytest.skip("namespaces need root")
    try:
        Tunnel.load(1).close()
    except BackendError as error:
        pytest.skip(str(error))
    with small_host() as name:
        yield name


def some(count: int, *, remote: int = 1, owner: int = OURS, first: int = 0) -> Rules:
    one = np.ones(count, np.int64)
    mac = (2 << 40) + first + np.arange(count)
    return Rules(REPRESENTOR * one, mac, VNI * one, remote * one, 7 * one, 0 * one, owner * one)


def change(kind: type[RuleChange], rules: Rules) -> RuleChange:
    return kind(1, rules, np.ones(len(rules.mac), np.uint8), Cause(Reason.STARTED, 0.0))


def test_what_was_added_is_read_and_a_replacement_keeps_its_handle(host: str) -> None:
    rules = BpfRules(OURS, [REPRESENTOR], LOCAL)
    assert rules.carry_out(change(Add, some(3))) is None
    before = rules.read().rules
    assert (before.mac & 0xFF).tolist() == [0, 1, 2]
    assert (before.cookie.tolist(), before.vni.tolist()) == ([OURS] * 3, [VNI] * 3)
    assert len(set(before.handle.tolist())) == 3

    assert rules.carry_out(change(Replace, before.take(slice(1)))) is None
    assert rules.carry_out(change(Replace, some(2, remote=9))) is None
    after = rules.read().rules
    assert after.handle.tolist() == before.handle.tolist()
    assert after.remote.tolist() == [9, 9, 1]

    assert rules.carry_out(change(Delete, after.take(slice(2)))) is None
    assert rules.carry_out(change(Delete, after)) is None
    assert rules.read().rules.mac.size == 0
    rules.close()


def test_a_full_map_refuses_the_rest_and_more_room_keeps_what_there_is(host: str) -> None:
    rules = BpfRules(OURS, [REPRESENTOR], LOCAL, room=5)
    refused = rules.carry_out(change(Add, some(8)))
    assert isinstance(refused, Refused)
    assert (refused.rows.tolist(), refused.full) == ([5, 6, 7], True)
    assert refused.why == "E2BIG: the map has room for 5 rules"
    before = rules.read().rules

    with pytest.raises(BackendError, match="5 are installed, more than room for 2"):
        rules.make_room(2)
    rules.make_room(20)

    assert rules.read().rules.handle.tolist() == before.handle.tolist()
    assert rules.carry_out(change(Add, some(8, first=100))) is None
    assert len(rules.read().rules.mac) == 13
    rules.close()


def test_a_successor_has_the_rules_and_their_handles(host: str) -> None:
    first = BpfRules(OURS, [REPRESENTOR], LOCAL)
    first.carry_out(change(Add, some(3)))
    before = first.read().rules
    first.close()

    second = BpfRules(OURS, [REPRESENTOR], LOCAL)
    assert second.read().rules.handle.tolist() == before.handle.tolist()
    assert second.carry_out(change(Add, some(1, first=50))) is None
    assert second.read().rules.handle[-1] not in before.handle
    second.close()


def test_owners_do_not_see_each_others_hands(host: str) -> None:
    ours = BpfRules(OURS, [REPRESENTOR], LOCAL)
    theirs = BpfRules(THEIRS, [REPRESENTOR], LOCAL)
    assert theirs.carry_out(change(Add, some(2, owner=THEIRS))) is None
    assert ours.carry_out(change(Add, some(2))) is None

    assert ours.carry_out(change(Delete, some(2))) is None

    assert ours.read().rules.cookie.tolist() == [THEIRS] * 2
    with Socket() as netlink:
        assert bpf.installed(netlink, [REPRESENTOR]).cookie.tolist() == [THEIRS] * 2
    ours.close()
    theirs.close()


def test_rules_behind_a_program_that_was_taken_off_are_none(host: str) -> None:
    rules = BpfRules(OURS, [REPRESENTOR], LOCAL)
    rules.carry_out(change(Add, some(2)))
    subprocess.run(["tc", "qdisc", "del", "dev", "vf0", "clsact"], check=True)
    assert rules.read().rules.mac.size == 0

    assert rules.carry_out(change(Add, some(1, first=50))) is None
    assert (rules.read().rules.mac & 0xFF).tolist() == [50]
    rules.close()


def test_with_the_last_filter_all_is_gone(host: str) -> None:
    rules = BpfRules(OURS, [REPRESENTOR], LOCAL)
    program = rules.tunnel.program_id
    rules.close()
    held = Tunnel.adopt(program)
    assert held is not None
    held.close()

    subprocess.run(["tc", "qdisc", "del", "dev", "vf0", "clsact"], check=True)

    deadline = time.monotonic() + PATIENCE_S
    while (left := Tunnel.adopt(program)) is not None:
        # The kernel takes its time to free it.
        left.close()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_strangers_device_of_our_name_is_not_taken(host: str) -> None:
    ip(f"link add {WAY_OUT} type bridge")
    with pytest.raises(BackendError, match=f"{WAY_OUT}: a device of this name exists"):
        BpfRules(OURS, [REPRESENTOR], LOCAL)


def test_a_device_that_takes_no_program_is_named(host: str) -> None:
    with pytest.raises(BackendError, match="clsact on device 4711: refused"):
        BpfRules(OURS, [4711], LOCAL)


@pytest.mark.parametrize("checksum", ["complete", "left to the adapter"])
def test_a_frame_leaves_with_the_usual_port_and_no_outer_checksum(host: str, checksum: str) -> None:
    # A reset, an echo's answer or an ARP reply comes with its checksum; the kernel's own segments do not.
    ip(
        "address add 10.0.0.9/32 dev lo",
        "route add 10.0.0.1/32 via 192.0.2.2 dev tor0",
        "neigh add 192.0.2.2 lladdr 02:00:00:00:00:99 dev tor0",
        "address add 10.1.0.1/24 dev eth0",
        "neigh add 10.1.0.2 lladdr 02:00:00:00:00:00 dev eth0",
    )
    rules = BpfRules(OURS, [REPRESENTOR], LOCAL)
    assert rules.carry_out(change(Add, some(1, remote=(10 << 24) | 1))) is None
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as wire:
        wire.bind(("far0", ETH_P_ALL))
        wire.settimeout(WITHIN_S)
        if checksum == "complete":
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
                raw.bind(("eth0", ETH_P_ALL))
                raw.send(bytes.fromhex("0200000000000200000000ff88b5") + MARK)
        else:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(MARK, ("10.1.0.2", 9))
        while MARK not in (frame := wire.recv(2048)):
            pass
    rules.close()
    outer = Ether(frame)[UDP]
    assert (outer.dport, outer.chksum) == (VXLAN_PORT, 0)


def test_putting_the_program_back_is_no_news_to_us(host: str) -> None:
    rules = BpfRules(OURS, [REPRESENTOR], LOCAL)
    ours, theirs = Monitor(rules.ports), Monitor(())
    subprocess.run(["tc", "qdisc", "del", "dev", "vf0", "clsact"], check=True)
    for monitor in (ours, theirs):
        monitor.read(0.0)

    assert rules.carry_out(change(Add, some(1))) is None

    # The kernel may still send messages about routes of the devices that were just made.
    assert not any(Table.RULES in said.tables for said in ours.read(0.0))
    assert [said.tables - {Table.ROUTES} for said in theirs.read(0.0)] == [{Table.RULES}]
    for monitor in (ours, theirs, rules):
        monitor.close()
