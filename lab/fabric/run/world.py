"""A fabric scenario in the twin's terms: topology, calibrated delays, fault plan.

For: the common inputs of all measurements. Not for: the measurements (sends.py, collective.py, …).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import TypeVar

import numpy as np
import pyarrow as pa

from control.fabric import Direction, FaultKind, PlannedFault
from lab.ask.scenario import RunSpec
from lab.fabric import nccl
from lab.fabric.calibrate import values as calibration
from lab.fabric.calibrate.values import Fabric
from lab.fabric.input import FabricInput, FaultsInput, NcclInput, fabric_of
from twin.fabric.failover import failover
from twin.fabric.faults import EdgeRates, check_faults, random_edge, round_robin, starts_s
from twin.fabric.model import Delay, Flags, Floats, Outages, Scheme, Topology, Whole
from twin.fabric.port_failover import PortFailover, PortOutage, Story, story
from twin.fabric.rdma import NO_OUTAGES, Link, stall_s, wire_bytes
from twin.fabric.steps import BY_NCCL
from twin.fabric.topology import check, dual_tor, paths
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of a measurement.

    metrics: values by key of lab.fabric.metrics.METRICS; metrics without a meaning here are left out.
    tables: tables by name.
    censored: keys of metrics whose value is a lower bound.
    """

    metrics: Mapping[str, float]
    tables: Mapping[str, pa.Table]
    censored: frozenset[str] = frozenset()


def of_outages(
    outages: Outages,
    metrics: Mapping[str, float],
    series: Mapping[str, Floats],
    more: Mapping[str, Mapping[str, Floats]] | None = None,
    censored: frozenset[str] = frozenset(),
) -> Measured:
    """Return a measurement with its outages (metrics and a table), its series over time, and more tables."""
    values = dict(metrics) | {"outages": float(len(outages.fault))}
    if len(outages.fault):
        values |= {"gap_p50_s": float(np.median(outages.gap_s)), "gap_max_s": float(outages.gap_s.max())}
    columns = {column.name: pa.array(getattr(outages, column.name)) for column in fields(outages)}
    tables = {"series": series} | dict(more or {})
    plain = {name: pa.table(dict(columns)) for name, columns in tables.items()}
    return Measured(values, {"outages": pa.table(columns), **plain}, censored)


_DAY_S = 86_400.0
_MOST = 64
"""Largest multiple of its undisturbed time for which a measurement is followed."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class World:
    """The inputs of a run.

    network, measure: seeds of the network's events and of the measurement. They are the same for every
    scheme, so that schemes meet the same chance events as far as they draw the same numbers.
    """

    asked: FabricInput
    scheme: Scheme
    fabric: Fabric
    topology: Topology
    network: np.random.SeedSequence
    measure: np.random.SeedSequence

    @property
    def header_bytes(self) -> int:
        """Bytes of all headers of a packet on the wire, including the overlay's."""
        return wire_bytes(0, self.scheme)

    @property
    def rate_bps(self) -> float:
        """Rate of a host's uplink, or of its kernel if that does the overlay and is slower, bit/s."""
        rate_bps = self.topology.rate_bps
        return min(rate_bps, self.fabric.software_rate_bps) if self._in_software else rate_bps

    def rtt_s(self, source: int, destination: int) -> float:
        """Return the propagation time there and back between two hosts, s."""
        shared = np.intersect1d(self.topology.tor_of[source], self.topology.tor_of[destination]).size
        spine_s = 0.0 if shared else self.topology.spine_delay_s
        host_s = self.fabric.software_delay_s if self._in_software else 0.0
        return 4 * (self.topology.delay_s + spine_s + host_s)

    @property
    def port_failover(self) -> PortFailover | None:
        """NCCL's own failover between a host's two ports, or None under other schemes. Raises ScenarioError
        for a version without it, and for queue pairs whose error it would never see."""
        if self.scheme not in BY_NCCL:
            return None
        if np.isinf(self.fabric.queue_pair.ladder.error_s):
            raise ScenarioError(
                f"queue_pair.timeout: 0 never ends in the error that {self.scheme} waits for; give 1 to 31"
            )
        given = self.asked.nccl or NcclInput()
        made = nccl.failover_of(
            given.version,
            given.variables,
            recovery=self.scheme is Scheme.NCCL_RECOVERY,
            receiver_lag_s=given.receiver_lag_s,
        )
        return replace(made, ports=self.topology.uplinks, probe_rtt_s=self.rtt_s(0, 1))

    @property
    def _in_software(self) -> bool:
        return self.scheme is Scheme.THORN_SOFTWARE

    def path(self, source: int, destination: int, random: np.random.Generator) -> Whole:
        """Return a path as in topology.paths, int64[3]. It is one at random, as a flow's hash picks it, or
        the first one without a scheme."""
        candidates = paths(self.topology, source, destination)
        chosen: Whole = candidates[0 if self.scheme is Scheme.NONE else random.integers(len(candidates))]
        return chosen

    def outages(self, faults: list[PlannedFault], pairs: Whole | None = None) -> Outages:
        """Return the effects of the faults on flows between `pairs` (int64[m, 2]; None: all). Raise
        ScenarioError."""
        return failover(self.topology, faults, self.fabric.handling(self.scheme), self.network, pairs=pairs)


def build_world(spec: RunSpec) -> World:
    """Return the run's world. Raises ScenarioError for a topology on which its scheme cannot work."""
    asked = fabric_of(spec.scenario)
    fabric = calibration.fabric(
        spec.calibration, asked.replaced, retries=asked.retry_profile, fast_path=asked.fast_path
    )
    scheme = Scheme(spec.policy.name)
    try:
        topology = dual_tor(
            asked.topology.hosts,
            tors=asked.topology.tors,
            uplinks=asked.topology.uplinks,
            rate_bps=fabric.rate_bps,
            delay_s=fabric.delay_s,
            spines=asked.topology.spines,
            nics=asked.topology.nics,
        )
        check(topology, scheme)
    except ScenarioError as error:
        raise ScenarioError(f"fabric.{error}") from None
    network, measure = np.random.SeedSequence(spec.seed).spawn(2)
    return World(asked, scheme, fabric, topology, network, measure)


def through(
    world: World,
    undisturbed_s: float,
    run: Callable[[Outages], tuple[T, float]],
    *,
    pairs: Whole | None = None,
    uplink: int = 0,
) -> tuple[Outages, T]:
    """Return the outages that a measurement meets, and its result.

    undisturbed_s: length of the measurement without faults, s. run: outages → (result, end of the
    measurement, s). pairs, uplink: as in World.outages and plan. Faults continue until the end of the
    measurement, which they delay.
    Raises ScenarioError for a measurement that they delay without end.
    """
    until_s = undisturbed_s
    while until_s <= _MOST * undisturbed_s:
        faults = plan(world, undisturbed_s, until_s=until_s, uplink=uplink)
        outages = world.outages(faults, pairs)
        result, end_s = run(outages)
        # What stands still for ever meets no further fault.
        met_s = until_s if np.isinf(end_s) else max(until_s, end_s)
        if len(plan(world, undisturbed_s, until_s=met_s, uplink=uplink)) == len(faults):
            return before(outages, end_s), result
        until_s *= 2
    raise ScenarioError(
        f"fabric.faults: after {_MOST} times its undisturbed {undisturbed_s:.4g} s the measurement has not "
        "ended: give faults more distance (`up_s`), or queue pairs a shorter timeout"
    )


def before(outages: Outages, end_s: float) -> Outages:
    """Return the outages that begin before end_s."""
    met = outages.begin_s < end_s
    return Outages(**{column.name: getattr(outages, column.name)[met] for column in fields(outages)})


def plan(
    world: World, lasts_s: float, *, until_s: float | None = None, uplink: int = 0
) -> list[PlannedFault]:
    """Return the faults before until_s (None: lasts_s) of a measurement that lasts lasts_s without them and
    takes `uplink`. Raises ScenarioError naming the key, for a place that does not exist as well."""
    try:
        return _planned(world, lasts_s, lasts_s if until_s is None else until_s, uplink)
    except ScenarioError as error:
        # A scenario has one section of faults, not a list of them.
        raise ScenarioError(f"fabric.{str(error).replace('faults[0]: ', 'faults.', 1)}") from None


def _planned(world: World, lasts_s: float, until_s: float, uplink: int) -> list[PlannedFault]:
    faults, topology = world.asked.faults, world.topology
    first_s = faults.up_s if faults.at_s is None else faults.at_s
    uplink = uplink if faults.uplink is None else faults.uplink
    match faults.kind:
        case "none":
            return []
        case "single":
            return [_single(faults, topology, lasts_s / 2 if faults.at_s is None else faults.at_s, uplink)]
        case "flapping":
            times_s = starts_s(first_s, until_s, faults.down_s, faults.up_s).tolist()
            return [_single(faults, topology, at_s, uplink) for at_s in times_s]
        case "random":
            rates = {f"{kind}_per_s": per_day / _DAY_S for kind, per_day in faults.per_day.items()}
            repair = Delay(faults.down_s, faults.down_s)
            edge = EdgeRates(repair, **rates, silent_share=float(faults.silent))
            return _random(world, edge, lasts_s, until_s)
        case "round_robin":
            return round_robin(
                topology,
                until_s,
                down_s=faults.down_s,
                up_s=faults.up_s,
                first_s=first_s,
                silent=faults.silent,
            )


def _random(world: World, edge: EdgeRates, lasts_s: float, until_s: float) -> list[PlannedFault]:
    """Return random faults before until_s. They are drawn for lasts_s at a time, so that a later end adds
    faults and changes none."""
    faults: list[PlannedFault] = []
    for turn in range(ceil(until_s / lasts_s)):
        seed = np.random.SeedSequence(world.network.entropy, spawn_key=(*world.network.spawn_key, 1, turn))
        drawn = random_edge(world.topology, lasts_s, edge, seed)
        faults += [replace(fault, at_s=fault.at_s + turn * lasts_s) for fault in drawn]
    return [fault for fault in faults if fault.at_s < until_s]


def _single(faults: FaultsInput, topology: Topology, at_s: float, uplink: int) -> PlannedFault:
    fault = PlannedFault(
        FaultKind(faults.what),
        host=faults.host,
        uplink=uplink,
        silent=faults.silent,
        one_way=None if faults.one_way is None else Direction[faults.one_way.upper()],
        at_s=at_s,
        down_s=faults.down_s,
    )
    check_faults(topology, [replace(fault, kind=FaultKind.PORT)])
    return replace(fault, tor=int(topology.tor_of[faults.host, uplink]))


def story_of(
    world: World, library: PortFailover, outages: Outages, flows: Iterable[tuple[int, int]]
) -> tuple[Story, Floats]:
    """Return the effects of outages on a job with these flows (source, destination), each over all ports of
    its hosts, and float64[d, 2]: times at which the flows of each death stopped and all ports worked again,
    s.

    Port k of one host talks with port k of another. A job that died begins anew with all ports.
    """
    flowing = {
        pair for source, destination in flows for pair in ((source, destination), (destination, source))
    }
    columns = (outages.source, outages.destination, outages.uplink, outages.begin_s, outages.end_s)
    straight = outages.uplink == outages.last_uplink
    rows = zip(*(column[straight].tolist() for column in columns), strict=True)
    met = [PortOutage(*row) for row in rows if (row[0], row[1]) in flowing]
    pair = world.fabric.queue_pair
    link = Link(world.rate_bps, world.rtt_s(0, 1))
    first: Story | None = None
    deaths: list[tuple[float, float]] = []
    while True:
        gaps_s = np.array([outage.end_s - outage.begin_s for outage in met], np.float64)
        told = story(library, met, stall_s(pair, gaps_s, link), pair.ladder.error_s)
        first = first or told
        if np.isinf(told.died_s):
            return first, np.array(deaths, np.float64).reshape(-1, 2)
        back_s = max(outage.end_s for outage in met if outage.begin_s <= told.died_s)
        deaths.append((told.stalls[-1, 0], max(back_s, told.died_s)))
        met = [outage for outage in met if outage.begin_s > back_s]


Paths = Mapping[tuple[int, int], Whole]
"""Source and destination of each flow → its path, as in World.path."""


def first_uplink(world: World, paths: Paths, ranks: int) -> int:
    """Return the uplink by which the fault's host sends to the next of `ranks` hosts; 0 if it does not."""
    host = world.asked.faults.host
    path = paths.get((host, (host + 1) % ranks))
    return 0 if path is None else int(path[0])


def stopped(outages: Outages, paths: Paths) -> dict[tuple[int, int], Floats]:
    """Return for each flow (source, destination) float64[k, 2]: begin and end of the times in which it loses
    packets, s, or the acknowledgements alone, which are assumed to return on its path."""
    spans = {}
    met = set(zip(outages.source.tolist(), outages.destination.tolist(), strict=True))
    for (source, destination), path in paths.items():
        if not {(source, destination), (destination, source)} & met:
            spans[source, destination] = NO_OUTAGES
            continue
        lost = _on(outages, source, destination, path)
        answers = _on(outages, destination, source, path[::-1]) & ~np.isin(outages.fault, outages.fault[lost])
        hit = lost | answers
        spans[source, destination] = np.column_stack((outages.begin_s[hit], outages.end_s[hit]))
    return spans


def outages_on(outages: Outages, source: int, destination: int, path: Whole) -> Floats:
    """Return float64[k, 2]: begin and end of the times in which flows between these hosts on `path` lose
    packets, s."""
    hit = _on(outages, source, destination, path)
    return np.column_stack((outages.begin_s[hit], outages.end_s[hit]))


def _on(outages: Outages, source: int, destination: int, path: Whole) -> Flags:
    ends = (outages.source == source) & (outages.destination == destination)
    return np.asarray(ends & (outages.uplink == path[0]) & (outages.last_uplink == path[2]))
