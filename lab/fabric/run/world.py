"""A fabric scenario's words as the twin's own: topology, calibrated delays, fault plan.

For: what every measure needs. Not for: the measures (sends.py, collective.py, …).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lab.ask.scenario import RunSpec
from lab.fabric.calibrate import values as calibration
from lab.fabric.calibrate.values import Fabric
from lab.fabric.input import FabricInput, FaultsInput, fabric_of
from twin.fabric.ecmp import paths
from twin.fabric.failover import failover
from twin.fabric.faults import EdgeRates, check_faults, flapping, random_edge, round_robin
from twin.fabric.model import Delay, Direction, Fault, FaultKind, Floats, Outages, Scheme, Topology, Whole
from twin.fabric.overlay import wire_bytes
from twin.fabric.topology import check, dual_tor

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class World:
    """What a run is about. network, measure: seeds of what the network does and of what is measured; the same
    for every scheme, so that schemes meet the same luck as far as they draw the same."""

    asked: FabricInput
    scheme: Scheme
    fabric: Fabric
    topology: Topology
    network: np.random.SeedSequence
    measure: np.random.SeedSequence

    @property
    def header_bytes(self) -> int:
        """On the wire besides a packet's payload, the overlay's own included."""
        return wire_bytes(0, self.scheme)

    @property
    def rate_bps(self) -> float:
        """Of a host's uplink, or of its kernel where that does the overlay and is slower."""
        rate_bps = self.topology.rate_bps
        return min(rate_bps, self.fabric.software_rate_bps) if self._in_software else rate_bps

    def rtt_s(self, source: int, destination: int) -> float:
        """Propagation there and back between two hosts."""
        shared = np.intersect1d(self.topology.tor_of[source], self.topology.tor_of[destination]).size
        spine_s = 0.0 if shared else self.topology.spine_delay_s
        host_s = self.fabric.software_delay_s if self._in_software else 0.0
        return 4 * (self.topology.delay_s + spine_s + host_s)

    @property
    def _in_software(self) -> bool:
        return self.scheme is Scheme.THORN_SOFTWARE

    def path(self, source: int, destination: int, random: np.random.Generator) -> Whole:
        """int64[3], as ecmp.paths: the path that a flow's hash picks, as good as at random; without a scheme
        there is only the first."""
        found = paths(self.topology, source, destination)
        chosen: Whole = found[0 if self.scheme is Scheme.NONE else random.integers(len(found))]
        return chosen

    def outages(self, faults: list[Fault], pairs: Whole | None = None) -> Outages:
        """What the faults do to flows between `pairs` (int64[m, 2]; None: all). Raises ScenarioError."""
        return failover(
            self.topology,
            faults,
            self.scheme,
            self.fabric.control,
            self.fabric.timers,
            self.network,
            bond=self.fabric.bond,
            reroute=self.fabric.reroute,
            pairs=pairs,
        )


def world(spec: RunSpec) -> World:
    """The run's world; raises ScenarioError for a topology that its scheme cannot work on."""
    asked = fabric_of(spec.scenario)
    fabric = calibration.fabric(spec.calibration, asked.values, fast_path=asked.fast_path)
    given = asked.topology
    topology = dual_tor(
        given.hosts,
        tors=given.tors,
        uplinks=given.uplinks,
        rate_bps=fabric.rate_bps,
        delay_s=fabric.delay_s,
        spines=given.spines,
        nics=given.nics,
    )
    scheme = Scheme(spec.policy.name)
    check(topology, scheme)
    network, measure = np.random.SeedSequence(spec.seed).spawn(2)
    return World(asked, scheme, fabric, topology, network, measure)


def plan(world: World, lasts_s: float, *, uplink: int = 0) -> list[Fault]:
    """The faults of a measurement that lasts so long and takes `uplink`. Raises ScenarioError for a place
    that does not exist."""
    faults, topology = world.asked.faults, world.topology
    first_s = faults.up_s if faults.at_s is None else faults.at_s
    uplink = uplink if faults.uplink is None else faults.uplink
    match faults.kind:
        case "none":
            return []
        case "single":
            return [_single(faults, topology, lasts_s / 2 if faults.at_s is None else faults.at_s, uplink)]
        case "flapping":
            return flapping(
                len(np.arange(first_s, lasts_s, faults.down_s + faults.up_s)),
                at_s=first_s,
                down_s=faults.down_s,
                up_s=faults.up_s,
                host=faults.host,
                uplink=uplink,
                silent=faults.silent,
            )
        case "random":
            rates = {f"{what}_per_s": often / _DAY_S for what, often in faults.per_day.items()}
            repair = Delay(faults.down_s, faults.down_s)
            edge = EdgeRates(repair, **rates, silent_share=float(faults.silent))
            return random_edge(topology, lasts_s, edge, world.network.spawn(1)[0])
        case "round_robin":
            return round_robin(
                topology,
                lasts_s,
                down_s=faults.down_s,
                up_s=faults.up_s,
                first_s=first_s,
                silent=faults.silent,
            )


def _single(faults: FaultsInput, topology: Topology, at_s: float, uplink: int) -> Fault:
    fault = Fault(
        FaultKind(faults.what),
        at_s,
        faults.down_s,
        faults.host,
        uplink,
        silent=faults.silent,
        one_way=None if faults.one_way is None else Direction[faults.one_way.upper()],
    )
    check_faults(topology, [replace(fault, kind=FaultKind.PORT)])
    return replace(fault, tor=int(topology.tor_of[faults.host, uplink]))


def outages_on(outages: Outages, source: int, destination: int, path: Whole) -> Floats:
    """float64[k, 2], begin and end of the times in which flows between these hosts on `path` lose packets."""
    mine = (outages.source == source) & (outages.destination == destination)
    mine &= (outages.uplink == path[0]) & (outages.last_uplink == path[2])
    return np.column_stack((outages.begin_s[mine], outages.end_s[mine]))
