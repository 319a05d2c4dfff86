"""Topologies of the edge, whether a scheme can work on one, and the paths between two hosts.

For: hosts with uplinks to ToRs in groups, with or without spines; equal-cost paths, and per-flow hashing as
switches and kernels do it, so that all packets of a flow take the same path. Not for: which paths work
(failover.py).
Source: RFC 2992 for the hashing of flows; the finalizer of SplitMix64 for its bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twin.fabric.model import NO_SPINE, Flags, Scheme, Topology, Whole
from twinbed import ScenarioError

NO_SPINE_USED = -1
"""The spine of a path with only one ToR."""

HOSTS_AT_MOST = 4096
"""Largest number of hosts all of whose pairs are followed. Their paths take a few GiB."""

_REDUNDANT = tuple(scheme for scheme in Scheme if scheme is not Scheme.NONE)
_TO_TWO_TORS = (Scheme.BOND, Scheme.THORN_SOFTWARE, Scheme.THORN)


def dual_tor(
    hosts: int,
    *,
    tors: int = 2,
    uplinks: int = 2,
    rate_bps: float = 100e9,
    delay_s: float = 1e-6,
    spines: int = NO_SPINE,
    nics: int = 1,
) -> Topology:
    """Return hosts in groups. The uplinks of a group go to as many ToRs of its own (two: dual-ToR).

    tors: total number of ToRs, a multiple of `uplinks`. Groups need spines to reach each other.
    nics: adapters that share a host's uplinks (1: one dual-port adapter).
    Raises ScenarioError for numbers that do not fit together.
    """
    _positive(hosts=hosts, tors=tors, uplinks=uplinks, nics=nics)
    if tors % uplinks:
        raise ScenarioError(
            f"topology: tors: {tors} do not form groups of {uplinks}: give a multiple of uplinks"
        )
    if uplinks % nics:
        raise ScenarioError(f"topology: nics: {nics} cannot share {uplinks} uplinks evenly")
    groups = tors // uplinks
    if hosts < groups:
        raise ScenarioError(
            f"topology: tors: {groups} groups of ToRs for {hosts} hosts: a group would be empty"
        )
    group = np.arange(hosts) * groups // hosts
    column = np.arange(uplinks)
    return Topology(
        tor_of=group[:, None] * uplinks + column,
        nic_of=np.tile(column * nics // uplinks, (hosts, 1)),
        rate_bps=rate_bps,
        delay_s=delay_s,
        spines=spines,
    )


def check(topology: Topology, scheme: Scheme) -> None:
    """Raise ScenarioError, with the cure, for an impossible topology or one that `scheme` cannot work on."""
    _shape(topology)
    tor_of = np.sort(topology.tor_of, axis=1)
    missing = np.setdiff1d(np.arange(topology.tors), tor_of)
    if missing.size:
        raise ScenarioError(f"topology: tor {missing[0]} has no host: number the ToRs without a gap")
    if scheme in _REDUNDANT and topology.uplinks < 2:
        raise ScenarioError(
            f"topology: hosts have one uplink, but scheme {scheme} needs two: give each rack another of "
            "`tors`, or take the policy none"
        )
    if scheme in _TO_TWO_TORS and (tor_of[:, 0] == tor_of[:, -1]).any():
        host = int(np.argmax(tor_of[:, 0] == tor_of[:, -1]))
        raise ScenarioError(
            f"topology: host {host}: all uplinks end at tor {tor_of[host, 0]}, but scheme {scheme} needs two "
            f"ToRs: move one"
        )
    sets, first = np.unique(tor_of, axis=0, return_index=True)
    if topology.spines == NO_SPINE or scheme is Scheme.BOND:
        shared = (sets[:, None, :, None] == sets[None, :, None, :]).any(axis=(2, 3))
        _reachable(topology, shared, first)
        if scheme is Scheme.BOND:
            _pairs_for_bonds(topology, shared, first)


def all_pairs(topology: Topology) -> Whole:
    """Return int64[H·(H-1), 2]: all pairs of different hosts. Raises ScenarioError for too many."""
    if topology.hosts > HOSTS_AT_MOST:
        raise ScenarioError(
            f"topology: hosts: {topology.hosts:,}: the flows between all hosts can be followed for at most "
            f"{HOSTS_AT_MOST:,}: give fewer, or measure sends"
        )
    source, destination = np.nonzero(~np.eye(topology.hosts, dtype=np.bool_))
    return np.stack([source, destination], axis=1).astype(np.int64)


def paths(topology: Topology, source: int, destination: int) -> Whole:
    """Return int64[P, 3], one row per shortest path: the source's uplink, the spine (NO_SPINE_USED: one ToR
    connects the hosts) and the destination's uplink. P is 0 if there is no path."""
    same = topology.tor_of[source][:, None] == topology.tor_of[destination][None, :]
    if same.any():
        first, last = np.nonzero(same)
        return np.stack([first, np.full(len(first), NO_SPINE_USED), last], axis=1)
    uplinks, spines = np.arange(topology.uplinks), np.arange(max(topology.spines, NO_SPINE))
    grid = np.meshgrid(uplinks, spines, uplinks, indexing="ij")
    return np.stack([axis.ravel() for axis in grid], axis=1)


def flow_hash(flows: Whole, paths: int, seed: int) -> Whole:
    """Return int64[n]: the path, 0 … paths - 1, that each flow takes.

    flows: int64[n, k], the fields that a switch hashes (addresses, ports). seed: seed of the switch.
    """
    mixed = np.full(len(flows), np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15), np.uint64)
    for column in np.atleast_2d(flows.T).astype(np.uint64):
        mixed = _mix(mixed ^ column)
    # The high bits are scaled, because a remainder would favour the first paths.
    return np.asarray(((mixed >> np.uint64(32)) * np.uint64(paths)) >> np.uint64(32), np.int64)


def _shape(topology: Topology) -> None:
    tor_of, nic_of = topology.tor_of, topology.nic_of
    if tor_of.ndim != 2 or not tor_of.size or tor_of.shape != nic_of.shape:
        raise ScenarioError(
            f"topology: tor_of is {tor_of.shape} and nic_of {nic_of.shape}: both are hosts × uplinks"
        )
    without = (tor_of < 0) | (nic_of < 0)
    if without.any():
        host = int(np.argmax(without.any(axis=1)))
        raise ScenarioError(
            f"topology: asymmetric: host {host} has {int((~without[host]).sum())} uplinks where others have "
            f"{topology.uplinks}: give every host as many"
        )
    for name in ("rate_bps", "delay_s", "spine_delay_s"):
        value = getattr(topology, name)
        if not (np.isfinite(value) and value > 0.0):
            raise ScenarioError(f"topology: {name}: {value} is not a finite number above zero")
    if topology.spines < NO_SPINE:
        raise ScenarioError(f"topology: spines: {topology.spines} is below zero")


def _reachable(topology: Topology, shared: Flags, first: Whole) -> None:
    if topology.spines == NO_SPINE and not shared.all():
        one, other = first[np.argwhere(~shared)[0]].tolist()
        raise ScenarioError(
            f"topology: disconnected: hosts {one} and {other} have no ToR in common and there are no spines: "
            f"add spines"
        )


def _pairs_for_bonds(topology: Topology, shared: Flags, first: Whole) -> None:
    """Check that both switches of an MLAG pair serve the same hosts."""
    apart = shared & ~np.eye(len(shared), dtype=np.bool_)
    if apart.any():
        one, other = first[np.argwhere(apart)[0]].tolist()
        raise ScenarioError(
            f"topology: asymmetric: hosts {one} and {other} share one ToR but not the other; bond needs "
            f"ToRs in pairs ({topology.tors} ToRs here): give both hosts the same pair"
        )


def _positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ScenarioError(f"topology: {name}: {count} is below one")


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
