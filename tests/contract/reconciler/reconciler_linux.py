"""A real kernel as a backend of the reconciler's contract: its own namespace, and an agent in this process.

One second of a case is `pace` real seconds. Events may come late, so timings decide nothing here.
"""

from __future__ import annotations

import os
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from control.reconciler.model import Rules
from control.reconciler.ports import Add, Cause, Delete, Dump, Event, Instruction, Reason, RuleController
from testbed.fabric.agent import Agent
from testbed.fabric.devices import NTF_MASTER, NUD_NOARP
from testbed.fabric.links import in_namespace
from testbed.fabric.rules.bpf import ROOM, BpfRules
from testbed.fabric.rules.flower import FlowerRules
from testbed.fabric.rules.ingress import WAY_OUT
from testbed.fabric.rules.port import Applier
from tests.contract.reconciler.kernel_tables import Row
from tests.contract.reconciler.reconciler_backends import (
    OWNER,
    REPRESENTOR,
    STRANGER,
    TUNNEL,
    UPLINKS,
    VNI,
    gateway,
    mac,
    vtep,
)
from twinbed import BackendError

HERE = (10 << 24) | 0xFFFF00
"""This host's VTEP address."""

LATE_S = 8.0
"""Additional time to wait for an event, s; less than a case's long timeout."""

_BRIDGE = 20
_SETUP = f"""
link set lo up
link add index {_BRIDGE} name br0 type bridge
link set br0 up
link add index {REPRESENTOR} name vf0 type veth peer index 110 name eth0
link set vf0 master br0 up
link set eth0 up
link add index {TUNNEL} name vx0 type vxlan id {VNI} dstport 4789 local {{here}} nolearning
link set vx0 master br0 up
"""


def dotted(address: int) -> str:
    return ".".join(str(byte) for byte in address.to_bytes(4, "big"))


def colons(address: int) -> str:
    return ":".join(f"{byte:02x}" for byte in address.to_bytes(6, "big"))


@contextmanager
def namespace() -> Iterator[None]:
    """Enter a namespace with a tunnel, a representor and uplinks, numbered as in the twin."""
    name = f"tb-contract{os.getpid()}-h0"
    lines = _SETUP.format(here=dotted(HERE)).splitlines()
    for link in UPLINKS:
        lines += [
            f"link add index {link} name up{link} type veth peer index {100 + link} name far{link}",
            f"link set up{link} up",
            f"link set far{link} up",
            f"address add {dotted(gateway(link) + 100)}/32 dev up{link}",
        ]
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-netns", name, "-batch", "-"], input="\n".join(lines), text=True, check=True)
        with in_namespace(name):
            yield
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


class Linux(ABC):
    """A real kernel, used inside `namespace`. pace: real seconds per second of a case."""

    def __init__(self, pace: float) -> None:
        self.pace = pace
        self.dumps = self.rule_changes = 0
        self._ip = IPRoute()
        self._agent: Agent | None = None
        self._room = ROOM
        self._ours = self.applier(OWNER)
        self._theirs: Applier | None = None
        self._entries: dict[int, set[int]] = {}  # address → hosts
        for link in UPLINKS:
            self.uplink(link, alive=True)

    @abstractmethod
    def applier(self, owner: int) -> Applier:
        """Return the object that makes and removes an owner's rules."""

    def close(self) -> None:
        self.crash()
        self._ours.close()
        if self._theirs is not None:
            self._theirs.close()
        self._ip.close()

    # --- the agent -----------------------------------------------------------------------------------

    def start(self, controller: RuleController) -> None:
        self.crash()
        self._agent = Agent(controller, self._ours, self._watch)
        self._agent.start()

    def _watch(self, event: Event, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Dump):
                self.dumps += 1
            elif hasattr(instruction, "rules"):
                self.rule_changes += len(instruction.rules.mac)

    def crash(self) -> None:
        if self._agent is not None:
            self._agent.close()
            # The next agent opens the map that the dead agent left.
            self._ours = self.applier(OWNER)
        self._agent = None

    def until(self, condition: Callable[[], bool], within_s: float) -> float:
        began_s = time.monotonic()
        while not condition():
            assert time.monotonic() < began_s + within_s + LATE_S, f"not within {within_s} s"
            self._pass(0.01)
        return time.monotonic() - began_s

    def pass_time(self, seconds: float) -> None:
        self._pass(seconds * self.pace)

    def _pass(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            if self._agent is None:
                time.sleep(left_s)
            else:
                self._agent.step(left_s)

    # --- what routing does ---------------------------------------------------------------------------

    def learn(self, address: int, host: int) -> None:
        for other in self._entries.pop(address, set()):
            if other != host:
                self._entry("del", address, other)
        self._entry("append", address, host)
        self._entries.setdefault(address, set()).add(host)

    def withdraw(self, address: int, host: int) -> None:
        self._entries.get(address, set()).discard(host)
        self._entry("del", address, host)

    def _entry(self, command: str, address: int, host: int) -> None:
        with suppress(NetlinkError):
            self._ip.fdb(command, ifindex=TUNNEL, lladdr=colons(mac(address)), dst=dotted(vtep(host)))

    def route(self, host: int, *, present: bool = True) -> None:
        hops = [{"gateway": dotted(gateway(link)), "oif": link, "flags": ["onlink"]} for link in UPLINKS]
        command = "replace" if present else "del"
        self._ip.route(command, dst=f"{dotted(vtep(host))}/32", multipath=hops if present else None)

    def uplink(self, uplink: int, *, alive: bool) -> None:
        self._ip.neigh(
            "replace",
            dst=dotted(gateway(uplink)),
            lladdr=colons(mac(900 + uplink)),
            ifindex=uplink,
            state="permanent" if alive else "failed",
        )

    def local(self, address: int, *, present: bool = True) -> None:
        self._ip.fdb(
            "add" if present else "del",
            ifindex=REPRESENTOR,
            lladdr=colons(mac(address)),
            flags=NTF_MASTER,
            state=NUD_NOARP,
        )

    # --- rules ---------------------------------------------------------------------------------------

    def strangers_rule(self, address: int, host: int) -> None:
        self._theirs = self._theirs or self.applier(STRANGER)
        row = (REPRESENTOR, mac(address), VNI, vtep(host), 5000 + host, 0, STRANGER)
        assert self._theirs.carry_out(Add(1, _rule(row), _WHY, _CAUSE)) is None

    def lose_our_rule(self, address: int) -> None:
        row = (REPRESENTOR, mac(address), VNI, 0, 0, self.handles()[address], OWNER)
        assert self._ours.carry_out(Delete(1, _rule(row), _WHY, _CAUSE)) is None

    def lose_messages(self, lost: bool) -> None:
        assert self._agent is not None
        self._agent.monitor.deaf(lost)

    def _rows(self) -> list[Row]:
        rules = self._ours.read().rules
        return list(zip(*(getattr(rules, name).tolist() for name in rules.__slots__), strict=True))

    def rules(self) -> dict[int, int]:
        return {row[1] & 0xFFFF: row[3] & 0xFFFF for row in self._rows() if row[6] == OWNER}

    def handles(self) -> dict[int, int]:
        return {row[1] & 0xFFFF: row[5] for row in self._rows() if row[6] == OWNER}

    def strangers(self) -> set[Row]:
        return {row for row in self._rows() if row[6] != OWNER}


class LinuxBpf(Linux):
    """Rules in a BPF map."""

    def applier(self, owner: int) -> Applier:
        return BpfRules(owner, [REPRESENTOR], HERE, room=self._room)

    def take_only(self, rules: int) -> None:
        self._room = rules
        self._ours.make_room(rules)


class LinuxFlower(Linux):
    """Rules of tc's flower."""

    def applier(self, owner: int) -> Applier:
        return FlowerRules(owner, [REPRESENTOR], HERE)

    def strangers_rule(self, address: int, host: int) -> None:
        # Another program's rule needs another preference, because one preference takes an address only once.
        words = (
            f"filter add dev vf0 ingress protocol all pref 9 flower dst_mac {colons(mac(address))} action "
            f"tunnel_key set src_ip {dotted(HERE)} dst_ip {dotted(vtep(host))} id {VNI} dst_port 4789 pipe "
            f"index {5000 + host} action mirred egress redirect dev {WAY_OUT}"
        )
        subprocess.run(["tc", *words.split()], check=True)

    def take_only(self, rules: int) -> None:
        raise BackendError(f"flower: no kernel stops at {rules} rules")


_WHY = np.array([Reason.NEW_ENTRY], np.uint8)
_CAUSE = Cause(Reason.NEW_ENTRY, 0.0)


def _rule(row: Row) -> Rules:
    return Rules(*np.array(row, np.int64)[:, None])
