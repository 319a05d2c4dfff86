"""Fault plans: what breaks, when and for how long, and which links are then dead.

For: round-robin faults of ports, and random faults of the edge at given rates. Not for: the effect of a fault
on flows (failover.py), nor measured rates of fleets (lab).
Source: the fault model of the THORN-ML chapter (chapter 3 of a doctoral thesis): ports fail in turn, 20 s
down and 20 s up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.fabric import Direction, FaultKind, PlannedFault
from twin.fabric.model import Delay, Flags, Floats, Topology, Whole
from twinbed import ScenarioError

FAULTS_AT_MOST = 1_000_000
"""Largest number of faults of a plan. Most larger plans are milliseconds given as seconds."""


@dataclass(frozen=True, slots=True)
class EdgeRates:
    """Rates of random faults.

    repair: duration of a fault.
    port_per_s, link_per_s, nic_per_s, tor_per_s: faults per second of one ToR port, one cable, one adapter,
    one ToR.
    silent_share: share of the faults after which carriers stay.
    """

    repair: Delay
    port_per_s: float = 0.0
    link_per_s: float = 0.0
    nic_per_s: float = 0.0
    tor_per_s: float = 0.0
    silent_share: float = 1.0


@dataclass(frozen=True, slots=True)
class DeadLinks:
    """The links at the edge that faults take down, one row each.

    fault, host, uplink: int64[n], index of the fault in the plan, and the link.
    out, into: bool[n], whether the host's outgoing and incoming direction is lost.
    begin_s, repair_s: float64[n], s.
    """

    fault: Whole
    host: Whole
    uplink: Whole
    out: Flags
    into: Flags
    begin_s: Floats
    repair_s: Floats


def round_robin(
    topology: Topology,
    until_s: float,
    *,
    down_s: float = 20.0,
    up_s: float = 20.0,
    first_s: float = 20.0,
    silent: bool = True,
) -> list[PlannedFault]:
    """Plan faults of one port after another, host by host: down for down_s, then all up for up_s.

    Faults begin before until_s. The default times are those of the THORN-ML chapter's evaluation.
    """
    return [
        PlannedFault(
            FaultKind.PORT,
            host=turn // topology.uplinks % topology.hosts,
            uplink=turn % topology.uplinks,
            silent=silent,
            at_s=float(at_s),
            down_s=down_s,
        )
        for turn, at_s in enumerate(starts_s(first_s, until_s, down_s, up_s))
    ]


def starts_s(first_s: float, until_s: float, down_s: float, up_s: float) -> Floats:
    """Return the starts before until_s of faults that follow one another: down for down_s, up for up_s, s.

    Raises ScenarioError for a cycle that cannot be, and for too many faults.
    """
    if not (down_s > 0.0 and up_s >= 0.0 and np.isfinite(down_s + up_s)):
        raise ScenarioError(
            f"faults: a cycle of {down_s} s down and {up_s} s up: give finite ones, down above 0"
        )
    _countable((until_s - first_s) / (down_s + up_s), until_s, "give longer down_s and up_s, in seconds")
    return np.arange(first_s, until_s, down_s + up_s)


def _countable(faults: float, until_s: float, cure: str) -> None:
    if faults > FAULTS_AT_MOST:
        raise ScenarioError(
            f"faults: {faults:.3g} in {until_s:.4g} s, at most {FAULTS_AT_MOST:,} can be followed: {cure}"
        )


def random_edge(
    topology: Topology, until_s: float, rates: EdgeRates, seed: np.random.SeedSequence
) -> list[PlannedFault]:
    """Plan faults of all edge devices in [0, until_s), Poisson at `rates`, in order of time."""
    random = np.random.default_rng(seed)
    links, adapters = topology.hosts * topology.uplinks, int(topology.nic_of.max()) + 1
    faults = []
    for kind, per_s, devices in (
        (FaultKind.PORT, rates.port_per_s, links),
        (FaultKind.LINK, rates.link_per_s, links),
        (FaultKind.NIC, rates.nic_per_s, topology.hosts * adapters),
        (FaultKind.TOR, rates.tor_per_s, topology.tors),
    ):
        _countable(per_s * devices * until_s, until_s, "give fewer per day")
        count = random.poisson(per_s * devices * until_s)
        at_s = random.uniform(0.0, until_s, count)
        down_s = rates.repair.draw(count, random)
        silent = random.random(count) < rates.silent_share
        device = random.integers(0, devices, count)
        faults += [
            _at(topology, kind, int(number), *when)
            for number, *when in zip(device, at_s.tolist(), down_s.tolist(), silent.tolist(), strict=True)
        ]
    return sorted(faults, key=lambda fault: fault.at_s)


def check_faults(topology: Topology, faults: list[PlannedFault]) -> None:
    """Raise ScenarioError for a fault of something that does not exist, or at an impossible time."""
    for index, fault in enumerate(faults):
        where = f"faults[{index}]"
        if not (np.isfinite(fault.at_s) and fault.at_s >= 0.0 and fault.down_s > 0.0):
            raise ScenarioError(
                f"{where}: at_s {fault.at_s}, down_s {fault.down_s}: give at_s from 0 and down_s above 0"
            )
        if fault.kind is FaultKind.TOR:
            if not 0 <= fault.tor < topology.tors:
                raise ScenarioError(
                    f"{where}: tor: {fault.tor} does not exist: give 0 to {topology.tors - 1}"
                )
            if fault.one_way is not None:
                raise ScenarioError(f"{where}: one_way: a ToR loses both directions: leave the key out")
            continue
        if not 0 <= fault.host < topology.hosts:
            raise ScenarioError(f"{where}: host: {fault.host} does not exist: give 0 to {topology.hosts - 1}")
        if not 0 <= fault.uplink < topology.uplinks:
            raise ScenarioError(
                f"{where}: uplink: host {fault.host} has no link {fault.uplink}: 0 to {topology.uplinks - 1}"
            )


def dead_links(topology: Topology, faults: list[PlannedFault]) -> DeadLinks:
    """Return the links that `faults` take down, in the plan's order. Raises ScenarioError as check_faults
    does."""
    check_faults(topology, faults)
    at_tor = [np.argwhere(topology.tor_of == tor) for tor in range(topology.tors)]
    links_of = [_links(topology, fault, at_tor) for fault in faults]
    counts = np.array([len(rows) for rows in links_of], np.int64)
    links = np.concatenate(links_of) if links_of else np.empty((0, 2), np.int64)
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
