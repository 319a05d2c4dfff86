"""The kernel's notifications: whose request it was, which tables changed, and that messages were lost."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from control.reconciler.model import Table
from control.reconciler.ports import Changed, Overflowed
from testbed.fabric.monitor import Monitor
from testbed.fabric.netlink import Socket
from tests.testbed.fabric.small_host import bridge, ip, small_host

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")]


@pytest.fixture
def host() -> Iterator[str]:
    with small_host() as name:
        yield name


def tables(events) -> set[Table]:
    return {table for event in events for table in event.tables}


def test_each_table_is_told_from_the_others(host: str) -> None:
    monitor = Monitor(())
    monitor.read(0.0)
    for change, table in (
        ("route add 10.0.0.1/32 via 192.0.2.2", Table.ROUTES),
        ("neigh add 192.0.2.2 lladdr 02:00:00:00:00:aa dev tor0", Table.NEIGHBOURS),
    ):
        ip(change)
        assert tables(monitor.read(0.0)) == {table}
    bridge("fdb add 02:00:00:00:00:01 dev vf0 master static")
    assert tables(monitor.read(0.0)) == {Table.BRIDGE_FDB}
    bridge(
        "fdb append 02:00:00:00:00:02 dev vx0 dst 10.0.0.1", "fdb del 02:00:00:00:00:02 dev vx0 dst 10.0.0.1"
    )
    assert monitor.read(3.0) == [Changed(3.0, frozenset({Table.EVPN_FDB}))]
    assert monitor.read(0.0) == []
    monitor.close()


def test_after_an_overflow_it_says_so_once_and_listens_on(host: str) -> None:
    monitor = Monitor((), lambda: Socket(4096))
    bridge(*(f"fdb append 02:00:00:00:{n >> 8:02x}:{n & 255:02x} dev vx0 dst 10.0.0.1" for n in range(500)))

    assert monitor.read(1.0) == [Overflowed(1.0)]
    assert (monitor.read(2.0), monitor.overflows) == ([], 1)
    bridge("fdb append 02:00:00:00:ff:01 dev vx0 dst 10.0.0.1")
    assert tables(monitor.read(3.0)) == {Table.EVPN_FDB}
    monitor.close()
