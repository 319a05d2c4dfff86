"""Break ports, links, switches and daemons of a fabric that is up, and repair them.

For: breaking one thing at a known moment. Not for: deciding when and how often (campaigns, measurements).
Source: nft(8), netdevice(7). A silent fault is an element of an nftables set, and a lost carrier is a flag of
the ToR's port. So a fault takes effect within a fraction of a millisecond.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from control.fabric import Direction, Fault, FaultKind
from testbed.fabric import devices, frr, nftables
from testbed.fabric.devices import LOST_IN, LOST_OUT, TABLE
from testbed.fabric.links import in_namespace, output_of, run_in
from testbed.fabric.model import Daemon, DaemonFault, Fabric, Host, Injected, Tor
from twinbed import BackendError, ScenarioError

_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1
"""netdevice(7): SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP."""

_INTERFACE_REQUEST = struct.Struct("16sH22x")
_Part = TypeVar("_Part")
_HELD_PACKETS = 100_000
"""Largest number of packets that a delayed link holds: 80 ms of small packets at 1 Gbit/s."""

_DRAWS = 100_000_000
"""Number of steps of a share of lost packets. A step is a millionth of a per cent, the least that can be
asked for."""

_SET_OF = {Direction.OUT: LOST_OUT, Direction.IN: LOST_IN}


def inject(fabric: Fabric, fault: Fault | DaemonFault) -> Injected:
    """Inject a fault. Injecting one that is already in force changes nothing.

    Raises ScenarioError for a fault that this fabric cannot have, BackendError if the machine refuses.
    """
    if isinstance(fault, DaemonFault):
        router = _router(fabric, fault)
        asked_ns = time.monotonic_ns()
        frr.kill(router.namespace, fault.daemons)
        return Injected(fault, asked_ns, time.monotonic_ns())
    tor, ports = _ports(fabric, fault)
    with in_namespace(tor.namespace):
        asked_ns = time.monotonic_ns()
        if fault.silent:
            nftables.run(_elements("add", fault, ports))
        else:
            _set_carrier(ports, up=False)
        return Injected(fault, asked_ns, time.monotonic_ns())


def clear(fabric: Fabric, fault: Fault | DaemonFault) -> int:
    """Repair what a fault broke, even if another fault broke it, too. Unbroken parts do not change.

    Returns the time of the repair (CLOCK_MONOTONIC, ns). Routes come back later (up.wait_converged). Raises
    as inject does.
    """
    if isinstance(fault, DaemonFault):
        _restart(fabric, _router(fabric, fault))
        return time.monotonic_ns()
    tor, ports = _ports(fabric, fault)
    with in_namespace(tor.namespace):
        if fault.silent:
            # nftables refuses to delete an element that is not in the set, so it is added first.
            nftables.run(_elements("add", fault, ports) + _elements("delete", fault, ports))
        else:
            _set_carrier(ports, up=True)
    return time.monotonic_ns()


def lose(fabric: Fabric, fault: Fault, share: float) -> None:
    """Drop a share (0 to 1) of the packets of a silent fault's ports, drawn by the kernel, until `mend`.

    Raises ScenarioError for a share outside 0 to 1 or a fault that this fabric cannot have, BackendError if
    the machine refuses.
    """
    if not 0.0 < share <= 1.0:
        raise ScenarioError(f"loss: {share:g} is no share of packets; take more than 0 and at most 1")
    tor, ports = _ports(fabric, fault)
    # The kernel draws a whole number below _DRAWS, and refuses a comparison that is always true.
    draws = max(round(share * _DRAWS), 1)
    drop = "drop" if draws == _DRAWS else f"numgen random mod {_DRAWS} < {draws} drop"
    hooks = {Direction.OUT: "ingress", Direction.IN: "egress"}
    chains = "".join(
        f"chain {_lossy(port)}_{hook} {{ type filter hook {hook} device {port} priority 0; {drop}; }}; "
        for port in ports
        for way, hook in hooks.items()
        if fault.one_way in (None, way)
    )
    mend(fabric, fault)
    with in_namespace(tor.namespace):
        nftables.run(f"table netdev {_lossy(ports[0])} {{ {chains} }}\n")


def degrade(fabric: Fabric, fault: Fault, delay_s: float, corrupt: float) -> None:
    """Delay the packets of a silent fault's link, and corrupt a share of them (0 to 1), until `mend`.

    Both ends of the link delay what they send. Raises ScenarioError for a fault that this fabric cannot have,
    BackendError if the machine refuses: it needs a kernel with netem.
    """
    netem = f"netem delay {delay_s * 1e6:.0f}us corrupt {corrupt:.6%} limit {_HELD_PACKETS}"
    for way, namespace, device in _link_ends(fabric, *_ports(fabric, fault)):
        if fault.one_way in (None, way):
            leaves = devices.LEAVES if fabric.plan.rate_bps else ("root",)
            lines = (f"qdisc replace dev {device} {leaf} {netem}\n" for leaf in leaves)
            output_of(namespace, ("tc", "-batch", "-"), text="".join(lines))


def mend(fabric: Fabric, fault: Fault) -> None:
    """End the loss, delay and corruption of `lose` and `degrade`, if there are any. Raises as they do."""
    _mend(fabric, *_ports(fabric, fault))


def _mend(fabric: Fabric, switch: Tor, ports: Sequence[str]) -> None:
    for _, namespace, device in _link_ends(fabric, switch, ports):
        if "netem" in run_in(namespace, ("tc", "qdisc", "show", "dev", device)).stdout:
            output_of(namespace, ("tc", "-batch", "-"), text=devices.whole(fabric.plan, device))
    with in_namespace(switch.namespace):
        for table in map(_lossy, ports):
            # nftables refuses to delete a table that is not there, so it is added first.
            nftables.run(f"add table netdev {table}\ndelete table netdev {table}\n")


def clear_all(fabric: Fabric) -> None:
    """Repair all faults, whatever caused them. Raises BackendError if the machine refuses."""
    for switch in fabric.switches:
        with in_namespace(switch.namespace):
            nftables.run("".join(f"flush set netdev {TABLE} {name}\n" for name in _SET_OF.values()))
            _set_carrier(switch.devices, up=True)
        _mend(fabric, switch, switch.devices)
    for router in fabric.routers:
        _restart(fabric, router)


def _restart(fabric: Fabric, router: Host | Tor) -> None:
    """Restart dead daemons. If zebra has died, restart all of them, as FRR's watchdog does."""
    dead = [daemon for daemon in Daemon if frr.pid_of(router.namespace, daemon) is None]
    # zebra writes the routes that the other daemons know into the kernel.
    if Daemon.ZEBRA in dead:
        frr.kill(router.namespace, tuple(Daemon))
        dead = list(Daemon)
    frr.start(fabric.plan, router.namespace, dead)


def _router(fabric: Fabric, fault: DaemonFault) -> Host | Tor:
    if (fault.host < 0) == (fault.tor < 0):
        raise ScenarioError("daemons are a host's or a ToR's: give one of host and tor")
    return _at(fabric.hosts, "host", fault.host) if fault.tor < 0 else _at(fabric.tors, "tor", fault.tor)


def _ports(fabric: Fabric, fault: Fault) -> tuple[Tor, Sequence[str]]:
    if fault.kind is FaultKind.NIC:
        raise ScenarioError("kind: the testbed has no adapters; break each of the host's ports")
    if fault.one_way is not None and not (fault.silent and fault.kind in (FaultKind.PORT, FaultKind.LINK)):
        raise ScenarioError("one_way: only a silent fault of a port or a link can lose one direction")
    if fault.kind is FaultKind.TOR:
        tor = _at(fabric.tors, "tor", fault.tor)
        return tor, tor.devices
    if fault.host < 0 and fault.tor >= 0:
        uplink = _at(_at(fabric.tors, "tor", fault.tor).uplinks, "spine", fault.uplink)
        return fabric.spines[uplink.tor], (uplink.tor_device,)
    host = _at(fabric.hosts, "host", fault.host)
    uplink = _at(host.uplinks, "uplink", fault.uplink)
    return fabric.tors[uplink.tor], (uplink.tor_device,)


def _link_ends(fabric: Fabric, switch: Tor, ports: Sequence[str]) -> Iterator[tuple[Direction, str, str]]:
    """Yield (direction in which it sends, namespace, device) of both ends of every link at a switch's
    ports."""
    for router in fabric.routers:
        for uplink, upper in fabric.above(router):
            device = {router: uplink.device, upper: uplink.tor_device}.get(switch)
            if device in ports:
                yield Direction.OUT, router.namespace, uplink.device
                yield Direction.IN, upper.namespace, uplink.tor_device


def _at(parts: Sequence[_Part], key: str, index: int) -> _Part:
    if not 0 <= index < len(parts):
        raise ScenarioError(f"{key} {index}: this fabric has {key}s 0 to {len(parts) - 1}")
    return parts[index]


def _elements(verb: str, fault: Fault, ports: Sequence[str]) -> str:
    directions = tuple(Direction) if fault.one_way is None else (fault.one_way,)
    names = ", ".join(f'"{port}"' for port in ports)
    sets = [_SET_OF[direction] for direction in directions]
    return "".join(f"{verb} element netdev {TABLE} {name} {{ {names} }}\n" for name in sets)


def _lossy(port: str) -> str:
    """Return the name of the table that drops a share of a port's packets."""
    return f"{TABLE}_loss_{port}"


def _set_carrier(ports: Sequence[str], *, up: bool) -> None:
    """Set the flag "up" of ports in this thread's namespace. The cable's other end loses its carrier too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        for port in ports:
            try:
                answer = fcntl.ioctl(channel, _GET_FLAGS, _INTERFACE_REQUEST.pack(port.encode(), 0))
                flags = _INTERFACE_REQUEST.unpack(answer)[1]
                flags = flags | _UP if up else flags & ~_UP
                fcntl.ioctl(channel, _SET_FLAGS, _INTERFACE_REQUEST.pack(port.encode(), flags))
            except OSError as error:
                raise BackendError(
                    f"{port}: cannot be switched ({error.strerror}); is the fabric up?"
                ) from error
