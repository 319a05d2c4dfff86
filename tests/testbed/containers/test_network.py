"""Own networks on this kernel: reach, counters, removal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.containers import network, ownership
from testbed.containers.network import Endpoint, Network
from testbed.containers.ownership import new_run
from tests.testbed.containers.dead_runs import dead_run
from twinbed import BackendError

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("root_network")]

SERVE = (
    "import socket, sys\n"
    "server = socket.create_server((sys.argv[1], 7000)); print(flush=True)\n"
    "peer, _ = server.accept(); left = int(sys.argv[2])\n"
    "while left: left -= len(peer.recv(65536))\n"
    "peer.sendall(b'k')"
)
SEND = (
    "import socket, sys\n"
    "peer = socket.create_connection((sys.argv[1], 7000))\n"
    "peer.sendall(bytes(int(sys.argv[2]))); peer.recv(1)"
)


@pytest.fixture
def pair() -> Iterator[tuple[Endpoint, Endpoint]]:
    made = Network(new_run(), ["left", "right"])
    try:
        yield made.endpoints[0], made.endpoints[1]
    finally:
        made.remove()


def start(endpoint: Endpoint, program: str, *arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, preexec_fn=endpoint.enter, stdout=subprocess.PIPE)


def test_nothing_is_counted_before_anything_is_sent(pair: tuple[Endpoint, Endpoint]) -> None:
    assert [endpoint.read() for endpoint in pair] == [(0, 0), (0, 0)]


def test_containers_reach_each_other_and_their_bytes_are_counted(pair: tuple[Endpoint, Endpoint]) -> None:
    left, right = pair
    size = 1 << 20
    with start(right, SERVE, right.address, size) as server:
        assert server.stdout is not None
        server.stdout.readline()
        with start(left, SEND, right.address, size):
            pass
    assert server.returncode == 0
    sent, received = left.read(), right.read()
    # The payload, and at most a tenth of it in headers.
    assert size <= sent.tx_bytes <= 1.1 * size
    assert size <= received.rx_bytes <= 1.1 * size
    assert sent.rx_bytes < 0.1 * size


def test_the_host_is_not_reached_and_keeps_its_routes(pair: tuple[Endpoint, Endpoint]) -> None:
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    assert "198.18" not in routes
    program = "import socket; socket.create_connection(('192.0.2.1', 9), timeout=5)"
    with subprocess.Popen(
        [sys.executable, "-c", program], preexec_fn=pair[0].enter, stderr=subprocess.PIPE
    ) as process:
        _, errors = process.communicate()
    assert b"Network is unreachable" in errors


def test_everything_is_removed(leftovers: Callable[[int], list[str]]) -> None:
    run = new_run()
    made = Network(run, ["only"])
    mine = int(run.split("-")[1])
    assert len([each for each in leftovers(mine) if "run/netns" in each]) == 1
    assert len([each for each in leftovers(mine) if "class/net" in each]) == 2
    made.remove()
    made.remove()
    assert leftovers(mine) == []


def test_leftovers_of_a_dead_recorder_are_swept_and_foreign_links_are_not() -> None:
    dead = dead_run()
    Network(dead, ["orphan"])
    subprocess.run(["ip", "link", "add", "tb-foreign", "type", "bridge"], check=True)
    try:
        assert dead in network.sweep()
        assert Path("/sys/class/net/tb-foreign").exists()
    finally:
        subprocess.run(["ip", "link", "delete", "tb-foreign"], check=True)
    assert not list(Path("/run/netns").glob(f"tb-{dead}*"))
    ownership.forget_dead()


def test_what_was_made_before_a_failure_is_removed(leftovers: Callable[[int], list[str]]) -> None:
    run = new_run()
    # The second namespace has the first one's name, which the kernel refuses.
    with pytest.raises(BackendError, match="ip netns add"):
        Network(run, ["same", "same"])
    assert leftovers(int(run.split("-")[1])) == []


def test_without_the_ip_command_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(BackendError, match="install it: sudo apt install iproute2"):
        Network(new_run(), ["only"])
