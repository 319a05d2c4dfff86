"""A host's kernel without routing: a namespace with a tunnel, a representor and an uplink."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.fabric.links import in_namespace

VNI = 100
UPLINK, BRIDGE, TUNNEL, REPRESENTOR = 2, 3, 4, 5
LOCAL = (10 << 24) | 9
NAME = f"tb-small{os.getpid()}-h0"

_LINES = f"""
link set lo up
link add index {UPLINK} name tor0 type veth peer index 102 name far0
link set tor0 up
link set far0 up
address add 192.0.2.1/24 dev tor0
link add index {BRIDGE} name br0 type bridge
link set br0 up
link add index {TUNNEL} name vx0 type vxlan id {VNI} dstport 4789 local 10.0.0.9 nolearning
link set vx0 master br0 up
link add index {REPRESENTOR} name vf0 type veth peer index 105 name eth0
link set vf0 master br0 up
link set eth0 up
"""
_CARRYING = {"tor0", "far0", "br0", "vf0", "eth0"}
"""Links whose state depends on a carrier; the others have no such state."""


@contextmanager
def small_host() -> Iterator[str]:
    """Make the namespace, keep this thread in it until the block ends, and yield its name."""
    subprocess.run(["ip", "netns", "add", NAME], check=True)
    try:
        with in_namespace(NAME):
            # Its own messages would be learned by the bridge.
            Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
            ip(*_LINES.splitlines())
            _wait_until_announced()
            yield NAME
    finally:
        subprocess.run(["ip", "netns", "delete", NAME], check=True)


def _wait_until_announced(deadline_s: float = 30.0) -> None:
    """Wait until the kernel has announced that links are up; on a busy machine it does so late."""
    end_s = time.monotonic() + deadline_s
    while waiting := _CARRYING - _up():
        assert time.monotonic() < end_s, f"not up after {deadline_s:g} s: {waiting}"
        time.sleep(0.01)
    ip("link set lo up")  # Needs the lock under which the worker announces the last one.


def _up() -> set[str]:
    shown = subprocess.run(["ip", "-json", "link"], stdout=subprocess.PIPE, check=True).stdout
    return {link["ifname"] for link in json.loads(shown) if link["operstate"] == "UP"}


def ip(*commands: str) -> None:
    """Run commands of `ip` in this thread's namespace."""
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)


def bridge(*commands: str) -> None:
    """Run commands of `bridge` in this thread's namespace."""
    subprocess.run(["bridge", "-batch", "-"], input="\n".join(commands), text=True, check=True)
