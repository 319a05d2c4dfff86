"""Summarises measured faults as gaps, and computes the same gaps on the twin.

For: the results page and the judgement. Not for: measuring (lab.fabric.real.campaign).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from control.fabric import Direction, FaultKind, PlannedFault
from lab.fabric.real.settings import Road, Setting, What
from lab.fabric.real.store import Measured
from twin.fabric import probe
from twin.fabric.failover import failover
from twin.fabric.model import ControlPlane, Handling, Scheme
from twin.fabric.topology import dual_tor

Floats = NDArray[np.float64]

STALL_S = 0.02
"""Longest stall of the machine, s, with which a fault still counts where stalls are excluded."""

FLOWS, RATE_PER_S = 8, 500.0
_TWIN_FAULTS, _APART_S, _DOWN_S = 4000, 60.0, 20.0


@dataclass(frozen=True, slots=True)
class Gaps:
    """The worst flow's gap in each fault, s.

    out, into: float64[k], flows that the host at the fault sent and received, for faults that hit such a
    flow; worst: float64[k], the longer of both.
    """

    out: Floats
    into: Floats
    worst: Floats


def measured(setting: Setting, rows: Sequence[Measured], *, with_stalls: bool = True) -> Gaps:
    """Returns the testbed's gaps. with_stalls: include faults that met a stall of the machine.

    A lost carrier that cost no datagram is a gap of one interval, as every flow has it. No other fault that
    hits can cost none.
    """
    kept = [row for row in rows if with_stalls or row.stall_s < STALL_S]
    out = np.array([max(row.out_s, row.out_later_s) for row in kept], np.float64)
    into = np.array([max(row.in_s, row.in_later_s) for row in kept], np.float64)
    if setting.what is What.CARRIER:
        out, into = np.maximum(out, 1 / RATE_PER_S), np.maximum(into, 1 / RATE_PER_S)
    worst = np.maximum(out, into)
    return Gaps(out[out > 0.0], into[into > 0.0], worst[worst > 0.0])


def simulated(setting: Setting, control: ControlPlane, seed: int = 0) -> Gaps:
    """Returns the twin's gaps on the testbed's own topology, with its probes. control: calibrated for the
    setting's road, with its fast path."""
    topology = dual_tor(2)
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
    network, probes = np.random.SeedSequence(seed).spawn(2)
    outages = failover(topology, faults, Handling(Scheme.THORN, used, setting.timers), network)
    pairs = np.array([[0, 1], [1, 0]], np.int64)
    results = probe.probe(topology, outages, pairs, probes, flows=FLOWS, rate_per_s=RATE_PER_S)
    sides = []
    for way in Direction:
        longest = np.zeros(_TWIN_FAULTS)
        mine = outages.direction[results.outage] == way
        np.maximum.at(longest, outages.fault[results.outage][mine], results.gap_s[mine])
        sides.append(longest)
    worst = np.maximum(*sides)
    return Gaps(*(gaps[gaps > 0.0] for gaps in (*sides, worst)))
