"""Dumps show what iproute2 shows."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from control.reconciler.model import Table
from testbed.fabric.dumps import read_links, read_tables, tunnels_of
from testbed.fabric.netlink import Socket
from tests.testbed.containers.waiting import until
from tests.testbed.fabric.small_host import BRIDGE, REPRESENTOR, TUNNEL, UPLINK, VNI, bridge, ip, small_host

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")]

MANY = 3000


def shown(*command: str):
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout or "[]")


def mac(text: str) -> int:
    return int(text.replace(":", ""), 16)


def address(text: str) -> int:
    return int.from_bytes(bytes(map(int, text.split("."))), "big")


def rows(table) -> set[tuple[int, ...]]:
    return set(zip(*(getattr(table, name).tolist() for name in table.__slots__), strict=True))


def test_all_four_tables_are_what_iproute2_shows() -> None:
    with small_host():
        bridge(
            "fdb add 02:00:00:00:00:01 dev vf0 master static",
            "fdb add 02:00:00:00:00:02 dev vf0 master",
            "fdb append 02:00:00:00:00:03 dev vx0 dst 10.0.0.1",
            "fdb append 02:00:00:00:00:03 dev vx0 dst 10.0.0.2",
            "fdb append 02:00:00:00:00:04 dev vx0 dst 10.0.0.2 vni 77",
            "fdb append 00:00:00:00:00:00 dev vx0 dst 10.0.0.3",
        )
        ip(
            "neigh add 192.0.2.2 lladdr 02:00:00:00:00:aa dev tor0",
            "neigh add 192.0.2.3 dev tor0 nud failed",
            "route add 10.0.0.1/32 nexthop via 192.0.2.2 nexthop via 192.0.2.3",
            "route add 10.0.0.2/32 via 192.0.2.2",
            "route add default via 192.0.2.3",
            "route add blackhole 10.9.0.0/16",
            "route add 10.0.0.1/32 via 192.0.2.3 table 77",
        )
        with Socket() as netlink:
            dumped = read_tables(netlink)
        entries, state = shown("bridge", "-json", "fdb"), dumped.state
        devices = {"vf0": REPRESENTOR, "vx0": TUNNEL, "br0": BRIDGE}
        assert rows(state.evpn) == {
            (mac(entry["mac"]), address(entry["dst"]), entry.get("vni", VNI), devices[entry["ifname"]])
            for entry in entries
            if "dst" in entry
        }
        assert rows(state.bridge) == {
            (
                mac(entry["mac"]),
                devices[entry["ifname"]],
                entry.get("vlan", 0),
                int(entry["state"] == "permanent"),
            )
            for entry in entries
            if "master" in entry and "self" not in entry["flags"]
        }
        assert {row for row in rows(state.neighbours) if row[2] == UPLINK} == {
            (
                address(entry["dst"]),
                mac(entry.get("lladdr", "0")),
                UPLINK,
                int("FAILED" not in entry["state"]),
            )
            for entry in shown("ip", "-json", "-4", "neigh")
            if entry["dev"] == "tor0"
        }
        first, second = address("192.0.2.2"), address("192.0.2.3")
        assert {row for row in rows(state.routes) if row[0] != address("192.0.2.0")} == {
            (address("10.0.0.1"), 32, first, UPLINK),
            (address("10.0.0.1"), 32, second, UPLINK),
            (address("10.0.0.2"), 32, first, UPLINK),
            (0, 0, second, UPLINK),
        }
        assert not dumped.interrupted
        assert not dumped.in_parts


def test_next_hops_without_carrier_are_left_out() -> None:
    with small_host(), Socket() as netlink:
        ip("route add 10.0.0.1/32 via 192.0.2.2")
        assert rows(read_tables(netlink).state.routes)
        ip("link set far0 down")
        # The kernel tells the other end of a lost carrier in work of its own, a moment later.
        until(lambda: not rows(read_tables(netlink).state.routes), "the routes are left out")


def test_many_entries_come_in_parts_and_none_is_missing() -> None:
    with small_host(), Socket() as netlink:
        addresses = [f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}" for number in range(MANY)]
        bridge(*(f"fdb append {lladdr} dev vx0 dst 10.0.0.1" for lladdr in addresses))
        dumped = read_tables(netlink)
        assert sorted(dumped.state.evpn.mac.tolist()) == sorted(map(mac, addresses))
        assert dumped.in_parts == {Table.BRIDGE_FDB, Table.EVPN_FDB}


def test_devices_are_known_by_what_they_are() -> None:
    with small_host(), Socket() as netlink:
        ip("link add out0 type vxlan external dstport 4790", "link set out0 alias ours")
        links = {link.name: link for link in read_links(netlink)}
        assert tunnels_of(list(links.values())) == {TUNNEL: VNI}
        assert (links["vx0"].local, links["vx0"].master) == (address("10.0.0.9"), BRIDGE)
        assert (links["out0"].external, links["out0"].alias, links["vf0"].kind) == (True, "ours", "veth")
