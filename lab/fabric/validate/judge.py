"""Compares the twin's failover with the testbed's: medians and 95th percentiles of gaps.

For: the results page and `twinbed validate` of a fabric scenario. The gaps are computed here for both
backends. RULE is printed before every result and was fixed before the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from control.fabric import Direction, FaultKind, PlannedFault
from lab.fabric.real.settings import AFTER_S, GROUPS_GONE_S, STEADY_S, Road, Setting, What
from lab.fabric.real.store import MeasuredFault
from lab.runs.formats import Column, Record, Result
from twin.fabric import probe
from twin.fabric.failover import failover
from twin.fabric.false_downs import false_downs, without_path
from twin.fabric.model import ControlPlane, Handling, Scheme, Stalls, Topology
from twin.fabric.topology import dual_tor

MEDIAN_LIMIT, P95_LIMIT = 0.15, 0.25
LEAST_FAULTS = 20
"""Smallest number of faults for a 95th percentile."""

RESOLUTION_S = 0.004
"""Resolution of a gap, s: two intervals of the probes, on both sides."""

RULE = (
    "The gap is the time between a flow's last datagram before the fault and its first after it, of the "
    "worst of 8 flows in each direction. The twin agrees where its median differs by at most "
    f"{MEDIAN_LIMIT:.0%} from the testbed's and its 95th percentile by at most {P95_LIMIT:.0%}, or either by "
    f"at most {RESOLUTION_S * 1e3:g} ms, two of the probes' intervals; of at least {LEAST_FAULTS} faults. "
    "Calibrated is on settings that are not among those compared; the twin is also told how often and for "
    "how long every CPU stood still while a setting was measured."
)

LEFT_OUT = (
    "Both break links of two hosts, in one rack of two ToRs or, with spines, in two. The scenario's other "
    "hosts and ToRs, its job and the times of its faults are left out."
)

WAYS = {"out": "out of the host", "into": "into the host"}


@dataclass(frozen=True, slots=True)
class Compared:
    """One quantity of one cell, s. what: `median` or `p95`; way: a key of WAYS; n: number of faults."""

    cell: str
    way: str
    what: str
    n: int
    twin_s: float
    testbed_s: float

    @property
    def limit(self) -> float:
        """The largest relative error that agrees."""
        return MEDIAN_LIMIT if self.what == "median" else P95_LIMIT

    @property
    def error(self) -> float:
        """The error relative to the testbed's value."""
        return (self.twin_s - self.testbed_s) / self.testbed_s

    @property
    def badness(self) -> float:
        """The error divided by the limit: 1 is at the limit."""
        allowed_s = max(self.limit * self.testbed_s, RESOLUTION_S)
        return abs(self.twin_s - self.testbed_s) / allowed_s

    @property
    def agrees(self) -> bool:
        """Whether the twin's value agrees with the testbed's."""
        return self.badness <= 1.0


def compared(cell: str, testbed: Gaps, twin: Gaps) -> list[Compared]:
    """Return medians and 95th percentiles of both directions, where there are enough faults."""
    return [
        Compared(cell, way, what, size, float(np.percentile(ours, share)), float(np.percentile(real, share)))
        for way, real, ours, size in _sides(testbed, twin)
        for what, share in (("median", 50), ("p95", 95))
        if size >= LEAST_FAULTS and ours.size
    ]


def agree(comparisons: Sequence[Compared]) -> bool:
    """Return whether all quantities agree. Without any, nothing was shown to agree: too few faults hit a
    flow."""
    return bool(comparisons) and all(comparison.agrees for comparison in comparisons)


def _sides(testbed: Gaps, twin: Gaps) -> Iterator[tuple[str, Floats, Floats, int]]:
    for way in WAYS:
        real: Floats = getattr(testbed, way)
        yield way, real, getattr(twin, way), real.size


_COLUMNS = (
    Column("cell", "Setting"),
    Column("way", "Direction"),
    Column("what", "Quantity"),
    Column("n", "Faults", decimals=0),
    Column("twin_ms", "Twin", "ms", 1),
    Column("testbed_ms", "Testbed", "ms", 1),
    Column("error", "Error", "1", 1, percent=True),
    Column("verdict", "Verdict"),
)


def result(comparisons: Sequence[Compared], notes: Sequence[str] = ()) -> Result:
    """Return the comparisons as a table, the worst first."""
    return Result(
        _COLUMNS,
        tuple(
            _row(comparison) for comparison in sorted(comparisons, key=lambda comparison: -comparison.badness)
        ),
        notes=tuple(notes),
        nothing=f"nothing to compare: fewer than {LEAST_FAULTS} faults hit a flow; give more --repeats",
    )


def _row(comparison: Compared) -> Record:
    return {
        "cell": comparison.cell, "way": WAYS[comparison.way], "what": comparison.what, "n": comparison.n,
        "twin_ms": comparison.twin_s * 1e3, "testbed_ms": comparison.testbed_s * 1e3,
        "error": comparison.error, "verdict": "agrees" if comparison.agrees else "outside",
    }  # fmt: skip


Floats = NDArray[np.float64]

STALL_S = 0.02
"""Longest stall of the machine, s, with which a fault still counts where stalls are excluded."""

FLOWS, RATE_PER_S = 8, 500.0
_TWIN_FAULTS, _APART_S, _DOWN_S = 4000, 60.0, 20.0


@dataclass(frozen=True, slots=True)
class Gaps:
    """The worst flow's gap in each fault, s.

    out, into: float64[k], flows that the host at the fault sent and received, for faults that hit such a
        flow.
    worst: float64[k], the longer of both.
    """

    out: Floats
    into: Floats
    worst: Floats


def measured(setting: Setting, rows: Sequence[MeasuredFault], *, with_stalls: bool = True) -> Gaps:
    """Return the testbed's gaps. with_stalls: include faults that met a stall of the machine.

    A lost carrier that cost no datagram is a gap of one interval, as every flow has it. Every other fault
    that hits a flow costs at least one datagram.
    """
    kept = [row for row in rows if with_stalls or row.stall_s < STALL_S]
    out = np.array([max(row.out_s, row.out_later_s) for row in kept], np.float64)
    into = np.array([max(row.in_s, row.in_later_s) for row in kept], np.float64)
    if setting.what is What.CARRIER:
        out, into = np.maximum(out, 1 / RATE_PER_S), np.maximum(into, 1 / RATE_PER_S)
    worst = np.maximum(out, into)
    return Gaps(out[out > 0.0], into[into > 0.0], worst[worst > 0.0])


def simulated(setting: Setting, control: ControlPlane, seed: int = 0) -> Gaps:
    """Return the twin's gaps on the testbed's own topology, with its probes. control: calibrated for the
    setting's road, with its fast path. Its stalls bring sessions down, but none of our own data plane."""
    topology = dual_tor(2, tors=4, spines=setting.spines) if setting.spines else dual_tor(2)
    one_way = {What.OUT: Direction.OUT, What.IN: Direction.IN}.get(setting.what)
    faults = [
        PlannedFault(
            FaultKind.PORT,
            host=turn % 2,
            uplink=turn // 2 % 2,
            silent=setting.what is not What.CARRIER,
            one_way=one_way,
            at_s=_APART_S * turn + phase_s,
            down_s=_DOWN_S,
        )
        for turn, phase_s in enumerate(np.random.default_rng(seed).uniform(1.0, 2.0, _TWIN_FAULTS).tolist())
    ]
    used = control if setting.road is Road.FAST else replace(control, fast=None)
    network, probes, stalls = np.random.SeedSequence(seed).spawn(3)
    handling = Handling(Scheme.THORN, used, setting.timers)
    outages = failover(topology, faults, handling, network)
    pairs = np.array([[0, 1], [1, 0]], np.int64)
    results = probe.probe(topology, outages, pairs, probes, flows=FLOWS, rate_per_s=RATE_PER_S)
    sides = []
    for way in Direction:
        longest = np.zeros(_TWIN_FAULTS)
        mine = outages.direction[results.outage] == way
        np.maximum.at(longest, outages.fault[results.outage][mine], results.gap_s[mine])
        sides.append(longest)
    if setting.road is not Road.PLANE:
        _lengthen(sides, setting, topology, faults, handling, stalls)
    worst = np.maximum(*sides)
    return Gaps(*(gaps[gaps > 0.0] for gaps in (*sides, worst)))


def under_stalls(control: ControlPlane, rows: Sequence[MeasuredFault]) -> ControlPlane:
    """Return the control plane with the stalls of the machine while these faults were measured; without
    stalls if a fault has no record of them."""
    lasted_s = sum(row.lasted_s for row in rows)
    lengths_s = [length_s for row in rows for length_s in row.stalls_s or ()]
    if not lengths_s or not lasted_s or any(row.stalls_s is None for row in rows):
        return replace(control, stalls=replace(control.stalls, per_s=0.0))
    excess_s = max(float(np.mean(lengths_s)) - STALL_S, 1e-5)
    return replace(control, stalls=Stalls(len(lengths_s) / lasted_s, STALL_S, excess_s))


def _lengthen(
    sides: Sequence[Floats],
    setting: Setting,
    topology: Topology,
    faults: Sequence[PlannedFault],
    handling: Handling,
    seed: np.random.SeedSequence,
) -> None:
    """Lengthen gaps where stalls bring other sessions down before the testbed's next fault.

    A link is out of use from its fault until the testbed has repaired it and its session is up again.
    """
    network, stalls = seed.spawn(2)
    back_s = handling.control.session_up_s.draw(len(faults), np.random.default_rng(network))
    repaired_s = np.maximum(*sides) + AFTER_S + setting.strands_groups * GROUPS_GONE_S
    at_s = np.array([fault.at_s for fault in faults])
    unused_s = repaired_s + back_s
    lasts_s = unused_s + STEADY_S[setting.what is What.CARRIER]
    downs = false_downs(topology, handling, at_s, lasts_s, stalls)
    spans = zip(downs.begin_s.tolist(), downs.end_s.tolist(), strict=True)
    rows = list(zip(downs.host.tolist(), downs.uplink.tolist(), spans, strict=True))
    for window in np.unique(downs.window):
        begin, end = np.searchsorted(downs.window, (window, window + 1))
        fault, fault_s = faults[window], at_s[window]
        own = fault.host, fault.uplink, (fault_s, fault_s + unused_s[window])
        for span in without_path(topology, 0, 1, [own, *rows[begin:end]]):
            for gaps in sides:
                # A gap that began during the fault's own gap lengthens it. A later gap is another gap.
                begins_s = fault_s if span[0] <= fault_s + gaps[window] else span[0]
                gaps[window] = max(gaps[window], span[1] - begins_s)
