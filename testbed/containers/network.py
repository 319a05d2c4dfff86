"""Give each container a network of its own: a namespace on a bridge of the run, with byte counters.

For: making and removing namespaces, veth pairs and the bridge, and reading the bytes that crossed each pair.
Not for: emulating links, or routes to the outside. The containers of a run reach only each other. The `ip`
command (iproute2) makes them, once per run and before any measurement. Counters come from sysfs. The bridge
has no address, so no route of the host changes; addresses are from 198.18.0.0/16, which is reserved for
benchmarks (RFC 2544).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from testbed.containers.ownership import LINK_PREFIX, MARK, is_dead, is_run, leave
from twinbed import BackendError

MAX_CONTAINERS = 1_000
"""Largest number of containers of a run. A Linux bridge takes 1,024 ports."""

_NETNS = Path("/run/netns")
_CLASS = Path("/sys/class/net")
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class Traffic(NamedTuple):
    """Bytes that a container received and sent since its network was made."""

    rx_bytes: int
    tx_bytes: int


class Endpoint:
    """One container's end of the network. namespace: its network namespace. link: the host's end of its veth
    pair. address: its IPv4 address. The counters' files stay open. Raises BackendError if the counters are
    not visible."""

    def __init__(self, namespace: str, link: str, address: str) -> None:
        self.namespace = namespace
        self.link = link
        self.address = address
        statistics = _CLASS / link / "statistics"
        # What the container receives, the host's end of the pair sends.
        paths = (statistics / "tx_bytes", statistics / "rx_bytes", _NETNS / namespace)
        self._descriptors: list[int] = []
        try:
            for path in paths:
                self._descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            self.close()
            raise BackendError(
                f"{path}: cannot be read ({error.strerror}); own networks need /sys and /run of the same "
                "network namespace: record on the host itself"
            ) from error
        self._rx, self._tx, self._door = self._descriptors

    def enter(self) -> None:
        """Move the calling process into the namespace. Call it between fork and exec."""
        if _libc.setns(self._door, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    def read(self) -> Traffic:
        """Return the counters now. Raises BackendError if somebody removed the network."""
        try:
            return Traffic(int(os.pread(self._rx, 32, 0)), int(os.pread(self._tx, 32, 0)))
        except (OSError, ValueError) as error:
            raise BackendError(
                f"{self.link}: its counters cannot be read ({error}); did somebody remove the network?"
            ) from error

    def close(self) -> None:
        """Close the files. Idempotent."""
        while self._descriptors:
            os.close(self._descriptors.pop())


class Network:
    """The bridge of one run and its endpoints, one per container, in order. Raises BackendError if `ip` is
    missing or the kernel refuses; objects made so far are then removed."""

    def __init__(self, run: str, names: Sequence[str]) -> None:
        if len(names) > MAX_CONTAINERS:
            raise BackendError(f"{len(names)} containers: one bridge takes {MAX_CONTAINERS}")
        self._run = run
        self.endpoints: list[Endpoint] = []
        try:
            self._make(names)
        except BaseException:
            self.remove()
            raise

    def _make(self, names: Sequence[str]) -> None:
        stem = _link_stem(self._run)
        self._make_link(stem, "type bridge stp_state 0 mcast_snooping 0", "")
        for index, name in enumerate(names):
            namespace, link = f"{LINK_PREFIX}{self._run}-{name}", f"{stem}-{index}"
            address = f"198.18.{(index + 1) // 256}.{(index + 1) % 256}"
            batch("ip", f"netns add {namespace}")
            self._make_link(link, f"type veth peer name eth0 netns {namespace}", f"master {stem}")
            batch(
                "ip",
                "link set lo up",
                "link set eth0 addrgenmode none up",
                f"address add {address}/16 dev eth0",
                namespace=namespace,
            )
            self.endpoints.append(Endpoint(namespace, link, address))

    def _make_link(self, link: str, kind: str, master: str) -> None:
        # The kernel ignores an alias given at creation, so the mark is set in the same batch.
        batch("ip", f"link add {link} {kind}", f"link set {link} alias {MARK}:{self._run} {master}")
        # An IPv6-enabled host end would announce itself, and these bytes would count as the container's.
        if (quiet := Path(f"/proc/sys/net/ipv6/conf/{link}/disable_ipv6")).exists():
            quiet.write_text("1")
        batch("ip", f"link set {link} up")

    def remove(self) -> None:
        """Close the counters, and remove links and namespaces. Idempotent."""
        while self.endpoints:
            self.endpoints.pop().close()
        remove_run(self._run)


def runs() -> list[str]:
    """Return the run of every link and every namespace of ours, once each."""
    marked = [_run_of_link(link) for link in _our_links()]
    marked += [_run_of_namespace(namespace) for namespace in _our_namespaces()]
    return [run for run in marked if is_run(run)]


def sweep() -> list[str]:
    """Remove links and namespaces of runs whose owner is known to be dead; return the names of those runs,
    sorted."""
    dead = sorted(run for run in set(runs()) if is_dead(run))
    for run in dead:
        remove_run(run)
    return dead


def remove_run(run: str) -> None:
    """Remove the links and namespaces of a run. Links are removed first, so that both ends of each pair
    disappear at once. Otherwise the kernel would remove them later, with the namespace."""
    commands = [f"link delete {thing}" for thing in links_of(run)]
    commands += [f"netns delete {thing}" for thing in _namespaces_of(run)]
    if not commands:
        return
    try:
        batch("ip", *commands)
    except BackendError:
        # The kernel may already have removed a link; only an object that still exists is an error.
        if left := links_of(run) + _namespaces_of(run):
            leave(run)
            raise BackendError(f"{left[0]}: cannot be removed; the next recording tries again") from None


def links_of(run: str) -> list[str]:
    """Return the names of a run's links on this machine."""
    return [link for link in _our_links() if _run_of_link(link) == run]


def _namespaces_of(run: str) -> list[str]:
    return [namespace for namespace in _our_namespaces() if _run_of_namespace(namespace) == run]


def _our_links() -> list[str]:
    return sorted(link.name for link in _CLASS.glob(f"{LINK_PREFIX}*"))


def _our_namespaces() -> list[str]:
    return sorted(namespace.name for namespace in _NETNS.glob(f"{LINK_PREFIX}*"))


def _run_of_link(link: str) -> str:
    """Return the run in the link's alias; empty if the link does not carry our mark."""
    try:
        alias = (_CLASS / link / "ifalias").read_text().strip()
    except OSError:
        return ""
    return alias.removeprefix(f"{MARK}:") if alias.startswith(f"{MARK}:") else ""


def _run_of_namespace(namespace: str) -> str:
    """Return the run of a namespace: `run-<pid>-<digits>` for `tb-run-<pid>-<digits>-<name>`."""
    return "-".join(namespace.removeprefix(LINK_PREFIX).split("-")[:3])


def _link_stem(run: str) -> str:
    """Return a name for the bridge, short enough (IFNAMSIZ is 16) to add a container's number."""
    return LINK_PREFIX + hashlib.blake2s(run.encode(), digest_size=3).hexdigest()


def batch(program: str, *commands: str, namespace: str | None = None) -> None:
    """Run commands of iproute2's `ip` or `tc` in one batch, in a namespace if given. Raises BackendError."""
    place = shutil.which(program)
    if place is None:
        raise BackendError(f"{program}: not installed; install it: sudo apt install iproute2")
    inside = ["-netns", namespace] if namespace else []
    lines = "\n".join(commands) + "\n"
    done = subprocess.run(
        [place, *inside, "-force", "-batch", "-"], input=lines, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        reason = (done.stderr.strip() or "no reason given").splitlines()[0]
        raise BackendError(f"{program} {commands[0]}: {reason}; needs root and CAP_NET_ADMIN")
