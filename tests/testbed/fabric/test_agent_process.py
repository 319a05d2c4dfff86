"""The agent as a process: its reports, also when representors come."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel.tunnel import Tunnel
from testbed.fabric.links import popen_in
from testbed.fabric.netlink import Socket
from testbed.fabric.rules import bpf
from tests.testbed.fabric.small_host import REPRESENTOR, bridge, ip, small_host
from twinbed import BackendError

pytestmark = [pytest.mark.root, pytest.mark.slow]

WITHIN_S = 30.0
ANOTHER = 60


@pytest.fixture
def namespace() -> Iterator[str]:
    try:
        Tunnel.load(1).close()
    except BackendError as error:
        pytest.skip(str(error))
    with small_host() as name:
        ip(
            "route add 10.0.0.1/32 via 192.0.2.2 dev tor0",
            "neigh add 192.0.2.2 lladdr 02:00:00:00:00:99 dev tor0",
        )
        bridge("fdb append 02:00:00:00:00:01 dev vx0 dst 10.0.0.1")
        yield name


@pytest.fixture
def status(namespace: str, tmp_path: Path) -> Iterator[Path]:
    """Run an agent, yield the file of its last report, and end the agent."""
    file = tmp_path / "status.json"
    words = ("--rules", "bpf", "--status", str(file), "--every-s", "0.05")
    process = popen_in(namespace, [sys.executable, "-m", "testbed.fabric.agent", *words])
    yield file
    process.terminate()
    assert process.wait(WITHIN_S) == 0


def until(done: Callable[[], bool], what: str, said: list[dict]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not done():
        assert time.monotonic() < deadline, f"never: {what}; said last: {said[-1:]}"
        time.sleep(0.01)


def test_counts_go_on_when_a_representor_comes(status: Path) -> None:
    said: list[dict] = []

    def rules_at(*devices: int) -> bool:
        if status.exists():
            said.append(json.loads(status.read_text()))
        with Socket() as netlink:
            return bpf.installed(netlink, devices).device.tolist() == list(devices)

    until(lambda: rules_at(REPRESENTOR) and bool(said), "a rule at the first representor, and a report", said)
    ip(
        f"link add index {ANOTHER} name vf1 type veth peer index 160 name eth1",
        "link set vf1 master br0 up",
        "link set eth1 up",
    )
    until(lambda: rules_at(REPRESENTOR, ANOTHER), "a rule at the second", said)
    until(lambda: rules_at(REPRESENTOR, ANOTHER) and said[-1]["added"] == 2, "both counted", said)

    # The successor adopted the first rule and added the second; the first one's counts are still there.
    assert said[-1]["adopted"] == 1
    for name in ("dumps", "messages", "added", "rule_changes", "dump_s", "slowest_dump_s"):
        counts = [report[name] for report in said]
        assert counts == sorted(counts), name
