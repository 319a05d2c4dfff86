"""Runs a fabric scenario on both backends and compares the gaps that its fault leaves.

For: `twinbed validate` of a fabric scenario. Not for: sends, collectives, training and fleets, which run on
the twin only. The testbed's part of a scenario is its fault, its timers and its road.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from math import inf
from pathlib import Path

from lab.ask.kind import Progress
from lab.ask.scenario import RunSpec, Scenario, expand
from lab.fabric.calibrate import values as calibration
from lab.fabric.calibrate.retries import RetryProfile
from lab.fabric.calibrate.values import Fabric
from lab.fabric.input import FabricInput, fabric_of
from lab.fabric.real import campaign
from lab.fabric.real.plan import Planned
from lab.fabric.real.settings import Road, Setting, What
from lab.fabric.real.store import Store
from lab.fabric.validate.judge import (
    LEAST_FAULTS,
    Compared,
    compared,
    measured,
    simulated,
    under_stalls,
)
from twin.fabric.model import Scheme
from twin.fabric.steps import OVERLAYS
from twinbed import ScenarioError

_NAME = "validated"
_MS, _CLOSE = 1e3, 1e-6


def validate(scenario: Scenario, repeats: int, progress: Progress) -> list[Compared]:
    """Return the comparison for every policy and variant, with LEAST_FAULTS faults on the testbed per repeat.
    Only the first seed counts, on the twin.

    Raises ScenarioError, before anything is measured, for settings that the testbed does not have, and
    BackendError.
    """
    asked: dict[tuple[str, str], RunSpec] = {}
    for spec in expand(scenario):
        asked.setdefault((spec.variant, spec.policy.text), spec)
    cells = [(spec, *asked_of(spec)) for spec in asked.values()]
    comparisons: list[Compared] = []
    for spec, setting, fabric in cells:
        with tempfile.TemporaryDirectory(prefix="twinbed-") as folder:
            store, wanted = Store(Path(folder)), Planned(setting, repeats * LEAST_FAULTS)
            done = partial(_done, progress, spec.label, wanted.faults, count(1))
            campaign.measure(wanted, store, _NAME, inf, done)
            name = f"{spec.label}: {setting.key}"
            rows = store.faults(setting)
            twin = simulated(setting, under_stalls(fabric.control, rows), spec.seed)
            comparisons += compared(name, measured(setting, rows), twin)
    return comparisons


def asked_of(spec: RunSpec) -> tuple[Setting, Fabric]:
    """Return the testbed's setting for this run, and the twin's fabric beside it.

    Raises ScenarioError for settings that the testbed does not have.
    """
    asked = fabric_of(spec.scenario)
    scheme = Scheme(spec.policy.name)
    if scheme not in OVERLAYS:
        raise ScenarioError(
            f"policies: {scheme}: the testbed has the overlay alone; validate {' or '.join(OVERLAYS)}"
        )
    # The testbed's only RDMA is soft RoCE. It has the plain timer, whatever profile the scenario asks of the
    # twin.
    fabric = calibration.fabric(
        spec.calibration, asked.replaced, retries=RetryProfile.PLAIN, fast_path=asked.fast_path
    )
    interval_ms = round(fabric.timers.interval_s * _MS)
    if abs(fabric.timers.interval_s * _MS - interval_ms) > _CLOSE:
        raise ScenarioError(
            f"bfd.interval_s: {fabric.timers.interval_s:g}: FRR counts whole milliseconds; give "
            f"{max(interval_ms, 1) / _MS:g}"
        )
    road = Road.FAST if asked.fast_path else Road.REAL_TIME
    timers = fabric.timers
    return Setting(road, timers.multiplier, interval_ms, _what(asked), spines=asked.topology.spines), fabric


def _what(asked: FabricInput) -> What:
    faults, topology = asked.faults, asked.topology
    if asked.fleet is not None:
        raise ScenarioError("fleet: no testbed has one; validate a scenario of sends, collective or training")
    two = (topology.racks, topology.tors, topology.spines > 0) == (2, 4, True)
    if not two and (topology.racks, topology.spines) != (1, 0):
        raise ScenarioError(
            "topology: the testbed validates one rack without spines, or two racks of two ToRs with spines"
        )
    if faults.kind in ("none", "random") or faults.what not in ("port", "link"):
        raise ScenarioError(
            f"faults: {faults.kind} {faults.what}: the testbed validates single faults of a port or a link, "
            "flapping ones, and round_robin"
        )
    if faults.one_way is not None and not faults.silent:
        raise ScenarioError("faults.one_way: a carrier is lost both ways: give silent: true, or leave it out")
    if not faults.silent:
        return What.CARRIER
    return What.BOTH if faults.one_way is None else What(faults.one_way)


def _done(progress: Progress, label: str, faults: int, numbers: Iterator[int], _: str) -> None:
    """Report that one more of the faults is measured."""
    progress(label, next(numbers) / faults)
