"""Fault plans: what breaks, when and for how long, and which links that takes away.

For: single faults, round-robin over ports as in the source's evaluation, flapping ports, and random faults of
the edge at given rates. Not for: what a fault does to flows (failover.py), nor measured fleet rates (lab).
Source: SPEC §2, fault model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.fabric import Direction, FaultKind, PlannedFault
from twin.fabric.delays import draw
from twin.fabric.model import Delay, Flags, Floats, Topology, Whole
from twinbed import ScenarioError

AT_A_PORT = (FaultKind.PORT, FaultKind.LINK)


@dataclass(frozen=True, slots=True)
class EdgeRates:
    """Faults per second of one device each: of every ToR port, cable, adapter and ToR. silent_share: how many
    of them give no carrier signal; repair: how long one lasts."""

    repair: Delay
    port_per_s: float = 0.0
    link_per_s: float = 0.0
    nic_per_s: float = 0.0
    tor_per_s: float = 0.0
    silent_share: float = 1.0


@dataclass(frozen=True, slots=True)
class DeadLinks:
    """Edge links that faults take away, a row each: fault, host, uplink: int64[n]; out, into: bool[n], the
    host's lost directions; begin_s, repair_s: float64[n]."""

    fault: Whole
    host: Whole
    uplink: Whole
    out: Flags
    into: Flags
    begin_s: Floats
    repair_s: Floats


def single(
    at_s: float, *, host: int = 0, uplink: int = 0, down_s: float = np.inf, silent: bool = True
) -> list[PlannedFault]:
    """One port that goes down at at_s, by default for good."""
    return [PlannedFault(FaultKind.PORT, host=host, uplink=uplink, silent=silent, at_s=at_s, down_s=down_s)]


def round_robin(
    topology: Topology,
    until_s: float,
    *,
    down_s: float = 20.0,
    up_s: float = 20.0,
    first_s: float = 20.0,
    silent: bool = True,
) -> list[PlannedFault]:
    """Port after port, host by host: down for down_s, then all up for up_s, as long as one begins before
    until_s. Source: the evaluation's 20 s down, 20 s up."""
    _cycle(down_s, up_s)
    starts = np.arange(first_s, until_s, down_s + up_s)
    return [
        PlannedFault(
            FaultKind.PORT,
            host=turn // topology.uplinks % topology.hosts,
            uplink=turn % topology.uplinks,
            silent=silent,
            at_s=float(at_s),
            down_s=down_s,
        )
        for turn, at_s in enumerate(starts)
    ]


def flapping(
    times: int,
    *,
    at_s: float,
    down_s: float,
    up_s: float,
    host: int = 0,
    uplink: int = 0,
    silent: bool = True,
) -> list[PlannedFault]:
    """One port that goes down `times` times, up_s after it came back."""
    _cycle(down_s, up_s)
    cycle_s = down_s + up_s
    return [
        PlannedFault(
            FaultKind.PORT, host=host, uplink=uplink, silent=silent, at_s=at_s + turn * cycle_s, down_s=down_s
        )
        for turn in range(times)
    ]


def random_edge(
    topology: Topology, until_s: float, rates: EdgeRates, seed: np.random.SeedSequence
) -> list[PlannedFault]:
    """Faults of all edge devices in [0, until_s), Poisson at `rates`, in the order of time."""
    random = np.random.default_rng(seed)
    links, adapters = topology.hosts * topology.uplinks, int(topology.nic_of.max()) + 1
    found = []
    for kind, per_s, devices in (
        (FaultKind.PORT, rates.port_per_s, links),
        (FaultKind.LINK, rates.link_per_s, links),
        (FaultKind.NIC, rates.nic_per_s, topology.hosts * adapters),
        (FaultKind.TOR, rates.tor_per_s, topology.tors),
    ):
        count = random.poisson(per_s * devices * until_s)
        at_s = random.uniform(0.0, until_s, count)
        down_s = draw(rates.repair, count, random)
        silent = random.random(count) < rates.silent_share
        device = random.integers(0, devices, count)
        found += [
            _at(topology, kind, int(where), *when)
            for where, *when in zip(device, at_s.tolist(), down_s.tolist(), silent.tolist(), strict=True)
        ]
    return sorted(found, key=lambda fault: fault.at_s)


def check_faults(topology: Topology, faults: list[PlannedFault]) -> None:
    """Raises ScenarioError for a fault of something that does not exist, or at a time that is none."""
    for index, fault in enumerate(faults):
        where = f"faults[{index}]"
        if not (np.isfinite(fault.at_s) and fault.at_s >= 0.0 and fault.down_s > 0.0):
            raise ScenarioError(
                f"{where}: at_s {fault.at_s}, down_s {fault.down_s}: begin at zero or later, last above zero"
            )
        if fault.kind is FaultKind.TOR:
            if not 0 <= fault.tor < topology.tors:
                raise ScenarioError(f"{where}: tor: {fault.tor} does not exist: 0 to {topology.tors - 1} do")
            if fault.one_way is not None:
                raise ScenarioError(f"{where}: one_way: a ToR fails both ways: leave it out")
            continue
        if not 0 <= fault.host < topology.hosts:
            raise ScenarioError(f"{where}: host: {fault.host} does not exist: 0 to {topology.hosts - 1} do")
        if not 0 <= fault.uplink < topology.uplinks:
            raise ScenarioError(
                f"{where}: uplink: host {fault.host} has no link {fault.uplink}: 0 to {topology.uplinks - 1}"
            )


def dead_links(topology: Topology, faults: list[PlannedFault]) -> DeadLinks:
    """The links that `faults` take away, in the plan's order. Raises ScenarioError as check_faults."""
    check_faults(topology, faults)
    at_tor = [np.argwhere(topology.tor_of == tor) for tor in range(topology.tors)]
    where = [_links(topology, fault, at_tor) for fault in faults]
    counts = np.array([len(each) for each in where], np.int64)
    links = np.concatenate(where) if where else np.empty((0, 2), np.int64)
    begin_s = np.array([fault.at_s for fault in faults])
    return DeadLinks(
        fault=np.repeat(np.arange(len(faults)), counts),
        host=links[:, 0].copy(),
        uplink=links[:, 1].copy(),
        out=np.repeat(np.array([fault.one_way is not Direction.IN for fault in faults], np.bool_), counts),
        into=np.repeat(np.array([fault.one_way is not Direction.OUT for fault in faults], np.bool_), counts),
        begin_s=np.repeat(begin_s, counts),
        repair_s=np.repeat(begin_s + np.array([fault.down_s for fault in faults]), counts),
    )


def _links(topology: Topology, fault: PlannedFault, at_tor: list[Whole]) -> Whole:
    if fault.kind is FaultKind.TOR:
        return at_tor[fault.tor]
    if fault.kind is FaultKind.NIC:
        adapter = topology.nic_of[fault.host, fault.uplink]
        uplinks = np.flatnonzero(topology.nic_of[fault.host] == adapter)
        return np.stack([np.full(len(uplinks), fault.host), uplinks], axis=1)
    return np.array([[fault.host, fault.uplink]])


def _at(
    topology: Topology, kind: FaultKind, device: int, at_s: float, down_s: float, silent: bool
) -> PlannedFault:
    if kind is FaultKind.TOR:
        return PlannedFault(kind, tor=device, silent=silent, at_s=at_s, down_s=down_s)
    if kind is FaultKind.NIC:
        host, adapter = divmod(device, int(topology.nic_of.max()) + 1)
        uplink = int(np.argmax(topology.nic_of[host] == adapter))
    else:
        host, uplink = divmod(device, topology.uplinks)
    return PlannedFault(kind, host=host, uplink=uplink, silent=silent, at_s=at_s, down_s=down_s)


def _cycle(down_s: float, up_s: float) -> None:
    if not (down_s > 0.0 and up_s >= 0.0 and np.isfinite(down_s + up_s)):
        raise ScenarioError(
            f"faults: a cycle of {down_s} s down and {up_s} s up: both finite, down above zero"
        )
