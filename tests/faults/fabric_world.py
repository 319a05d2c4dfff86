"""A fabric in the enclosure, with other programs' things beside and inside it, and what must hold after
faults.

For: fabric_campaign.py. Not for: faults (fabric_steps.py). Where possible, checks do not use the code under
test: they look at files, namespaces, links, processes, rules in force, and datagrams that arrive.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from control.reconciler.model import Rules
from control.reconciler.ports import Add, Cause, Delete, Reason, Reasons
from control.reconciler.settings import ReconcilerSettings
from testbed.fabric import faults, leftovers, place
from testbed.fabric.agent_process import Agents
from testbed.fabric.links import in_namespace, run_in
from testbed.fabric.model import Fabric, Host, Plan
from testbed.fabric.rules.bpf import BpfRules
from testbed.fabric.rules.seen import installed
from testbed.fabric.up import up, wait_converged
from tests.faults.fault_world import DEADLINE_S, ViolationError, World, until

NAME = "victim"
FOREIGN_ROUTE = "203.0.113.0/24"
_FRR = (Path("/etc/frr"), Path("/var/tmp/frr"))
_OWNER = ReconcilerSettings().owner
_FOREIGN_OWNER, _FOREIGN_RULE_MAC = 0xF0F0, 0x02_77_00_00_00_01
CAUSE = Cause(Reason.PERIODIC, 0.0)

Rule = tuple[int, int, int]
"""Destination MAC, VNI and remote address, as numbers."""


class FabricWorld(World):
    """The enclosure, with its own folders for FRR."""

    def __init__(self) -> None:
        for folder in _FRR:
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], check=True)
            folder.chmod(0o755)
        # FRR's package makes this folder.
        Path("/run/frr").mkdir()
        super().__init__()
        # A fabric does not depend on the date, so its daemons need not be slowed down when they read it.
        os.environ.pop("LD_PRELOAD", None)

    def _found(self) -> set[str]:
        files = {f"file {path}" for folder in _FRR for path in folder.rglob("*")}
        tables = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
        return super()._found() | files | {f"table {line}" for line in tables.splitlines()}


class Episode:
    """A fabric that is up, with an agent in every host and other programs' things in its namespaces."""

    def __init__(self, hosts: int, tors: int) -> None:
        # Real-time priorities are refused in the enclosure's cgroups.
        self.fabric: Fabric = up(Plan(NAME, hosts=hosts, tors=tors, real_time=False))
        self.agents = Agents(self.fabric, kind="bpf", timeout_s=0.5)
        self.agents.__enter__()
        for host in self.fabric.hosts:
            _plant(host)
        self._foreign = {host.index: _foreign(host) for host in self.fabric.hosts}
        self.check()

    def end(self) -> None:
        """End the agents and remove the fabric. The world then looks for leftovers."""
        self.agents.end()
        leftovers.down(NAME)

    def heal(self) -> None:
        """Repair everything, wait for convergence, and check what must hold then."""
        faults.clear_all(self.fabric)
        wait_converged(self.fabric, DEADLINE_S)
        self.check()

    def check(self) -> None:
        """Check the rules, datagrams between all neighbours, and that others' things are unchanged."""
        for host in self.fabric.hosts:
            wanted = self.wanted(host)
            _until_equal(lambda: self.rules(host), wanted, f"rules of {host.namespace}")  # noqa: B023
            if _foreign(host) != self._foreign[host.index]:
                raise ViolationError(f"foreign things in {host.namespace}: {_foreign(host)}")
        count = len(self.fabric.hosts)
        for index in range(count):
            self._exchange(index, (index + 1) % count)

    def wanted(self, host: Host) -> set[Rule]:
        """Return a rule for every address behind every other host, whoever put the address there."""
        vni = self.fabric.plan.tenants[0]
        return {
            (int(mac.replace(":", ""), 16), vni, _number(other.loopback))
            for other in self.fabric.hosts
            if other is not host
            for mac in (_foreign_mac(other), *(end.mac for end in other.endpoints))
        }

    def rules(self, host: Host) -> set[Rule]:
        """Return our rules that are in force."""
        ours = rules_of(host, _OWNER)
        return set(zip(ours.mac.tolist(), ours.vni.tolist(), ours.remote.tolist(), strict=True))

    def _exchange(self, sender: int, receiver: int) -> None:
        source, destination = (self.fabric.hosts[index].endpoints[0] for index in (sender, receiver))
        with in_namespace(destination.namespace):
            inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            inbox.bind((destination.address, 0))
        with in_namespace(source.namespace):
            outbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with inbox, outbox:
            inbox.settimeout(0.1)
            until(lambda: _arrives(outbox, inbox), f"datagram {source.address} to {destination.address}")


def change_rules(host: Host, owner: int, change: Add | Delete) -> None:
    """Add or delete rules of an owner, without the agent that keeps them."""
    with in_namespace(host.namespace):
        served = place.here()
        rules = BpfRules(owner, served.devices, served.local)
        try:
            refused = rules.carry_out(change)
        finally:
            rules.close()
    if refused is not None:
        raise ViolationError(f"rules of {owner:#x} in {host.namespace}: {refused.why}")


def reasons_of(rules: Rules) -> Reasons:
    """Return an unspecific reason for every rule."""
    return np.full(len(rules.mac), Reason.PERIODIC, np.uint8)


def rules_of(host: Host, owner: int) -> Rules:
    """Return the rules of an owner on a host."""
    rules = installed(host.namespace)
    return rules.take(rules.cookie == owner)


def wait_for(seconds: float, done: Callable[[], object]) -> None:
    """Wait until `done` returns something true, at most for `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not done():
        time.sleep(0.01)


def _until_equal(look: Callable[[], set[Rule]], wanted: set[Rule], what: str) -> None:
    try:
        until(lambda: look() == wanted, what)
    except ViolationError as error:
        rules = look()
        raise ViolationError(f"{error}: missing {wanted - rules}, too many {rules - wanted}") from None


def _arrives(outbox: socket.socket, inbox: socket.socket) -> bool:
    outbox.sendto(b"x", inbox.getsockname())
    try:
        return inbox.recv(1) == b"x"
    except TimeoutError:
        return False


def _plant(host: Host) -> None:
    """Make things that a user or another program may have in a host's namespace."""
    commands = (
        f"ip route add {FOREIGN_ROUTE} dev lo proto static",
        f"bridge fdb add {_foreign_mac(host)} dev {host.endpoints[0].representor} master static",
        "nft add table inet theirs",
        "nft add set inet theirs names { type ifname; }",
        f"tc filter add dev {host.endpoints[0].representor} ingress pref 9 protocol ip u32 "
        "match ip dst 203.0.113.9/32",
    )
    for command in commands:
        done = run_in(host.namespace, command.split())
        if done.returncode:
            raise ViolationError(f"{command}: {done.stderr}")
    _plant_rule(host)


def _plant_rule(host: Host) -> None:
    """Install a tunnel rule of another owner."""
    with in_namespace(host.namespace):
        (device, *_) = place.here().devices
    columns = (device, _FOREIGN_RULE_MAC, 9, _number("192.0.2.1"), 1, 0, _FOREIGN_OWNER)
    rule = Rules(*(np.array([value], np.int64) for value in columns))
    change_rules(host, _FOREIGN_OWNER, Add(1, rule, reasons_of(rule), CAUSE))


def _foreign(host: Host) -> str:
    """Return all of these things, as their own tools show them."""
    representor = host.endpoints[0].representor
    commands = (
        f"ip route show {FOREIGN_ROUTE}",
        f"bridge fdb get {_foreign_mac(host)} br {host.segments[0].bridge} dev {representor} master",
        "nft list table inet theirs",
        f"tc filter show dev {representor} ingress pref 9",
    )
    theirs = rules_of(host, _FOREIGN_OWNER)
    rules = [getattr(theirs, name).tolist() for name in Rules.__slots__]
    return "\n".join([str(rules), *(run_in(host.namespace, command.split()).stdout for command in commands)])


def _foreign_mac(host: Host) -> str:
    return f"02:99:00:00:00:{host.index:02x}"


def _number(address: str) -> int:
    return int.from_bytes(socket.inet_aton(address), "big")
