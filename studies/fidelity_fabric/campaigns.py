"""Measures the missing settings of the plan on real fabrics, several at once, and writes the results page.

For: `python -m studies fidelity-fabric`. Not for: the page's text (page.py), a fault
(lab.fabric.real.campaign) nor the plan (lab.fabric.real.plan). Measurements are stored, with one store per
version of the code on which they depend. So an interrupted campaign (Ctrl-C or SIGTERM, at any time)
continues where it stopped: unfinished faults are not stored, and all fabrics are removed.

Each fabric of a round has its own process, so that the waiting times of their faults overlap. All fabrics
come up before the first fault, because that needs the CPUs; then each is measured until it is complete. All
settings of a round are busy or none is, because the load is the machine's.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from multiprocessing.synchronize import Event
from pathlib import Path

from lab.ask.calibration import Calibration
from lab.fabric.calibrate.measure import calibrated
from lab.fabric.calibrate.values import fabric
from lab.fabric.real import campaign, plan
from lab.fabric.real.bench import Bench, bench, load
from lab.fabric.real.plan import Planned
from lab.fabric.real.settings import Road, setting
from lab.fabric.real.store import Store
from lab.fabric.validate.judge import compared, measured, simulated, under_stalls
from studies import harness
from studies.fidelity_fabric import application_rows
from studies.fidelity_fabric.page import Measurements, document
from studies.harness import Asked, say
from testbed.containers import machine
from testbed.containers.interrupts import Interrupts
from testbed.fabric import sentinel
from twinbed import BackendError, TwinbedError
from twinbed.text import counted

NAME = "measured"
"""The fabrics' name, before a number. Others may be up under other names."""

CODE = ("control/fast_path", "testbed/fabric/fast_path", "testbed/fabric/probe.py", "testbed/fabric/frr.py")
"""Files and folders on which a failover depends, beside its setting."""

_WATCH_S = 10.0
"""Length of the pieces in which a time without faults is stored, s."""

_UP_S, _POLL_S = 90.0, 0.2
_TRIES = 3
"""Number of attempts: a fabric that fails to come back is made anew."""

_forking = multiprocessing.get_context("fork")


def make(asked: Asked) -> int:
    """Measure round after round, and write the page. Exit code: 130 if stopped, 2 if a fabric gave up."""
    store = Store(asked.store or harness.store_of_code("fidelity-fabric", CODE))
    rounds = [[_chosen(text) for text in asked.only]] if asked.only else plan.ROUNDS
    until_s, code = time.monotonic() + asked.minutes * 60.0, 0
    try:
        with Interrupts():
            for planned in () if asked.page_only else rounds:
                try:
                    measure(planned, store, until_s)
                except BackendError as error:
                    say(f"fidelity-fabric: {error}")
                    code = 2
    except KeyboardInterrupt:
        say("stopped; the same command continues")
        code = 130
    if asked.note is not None:
        store.note = asked.note
    _write(asked, store)
    return code


def _chosen(text: str) -> Planned:
    """Return the planned setting of a text such as `fast-5x50-both` or `fast-5x50-both:20` (faults)."""
    key, _, faults = text.partition(":")
    chosen = setting(key)
    planned = next((known for known in plan.ALL if known.setting == chosen), Planned(chosen))
    return replace(planned, faults=int(faults)) if faults else planned


def measure(planned: Sequence[Planned], store: Store, until_s: float) -> None:
    """Measure until the round is complete, or until until_s (time.monotonic).

    Raises KeyboardInterrupt when it was stopped, BackendError when one of the fabrics gave up.
    """
    parts = fabrics_of([item for item in planned if lacks(item, store)])
    if not parts or time.monotonic() >= until_s:
        return
    stopped = _forking.Event()
    ready = [_forking.Event() for _ in parts]
    with tempfile.TemporaryDirectory(prefix="twinbed-") as folder:
        stalls = Path(folder) / "stalls.txt"
        busy = any(item.setting.busy for item in planned)
        with sentinel.sentinel(stalls), load() if busy else nullcontext():
            processes = [
                _forking.Process(
                    target=_Fabric(part, store, until_s, stopped).run,
                    args=(_Seat(f"{NAME}-{index}", ready, index), stalls),
                )
                for index, part in enumerate(parts)
            ]
            try:
                for process in processes:
                    process.start()
                for process in processes:
                    process.join()
            except BaseException:
                stopped.set()
                for process in processes:
                    process.join()
                raise
    if failed := sum(process.exitcode != 0 for process in processes):
        raise BackendError(f"{failed} of {len(parts)} fabrics gave up; their own words are above")


def lacks(planned: Planned, store: Store) -> bool:
    """Return whether a part of this setting is not measured yet."""
    return len(store.faults(planned.setting)) < planned.faults or unwatched_s(planned, store) > 1.0


def unwatched_s(planned: Planned, store: Store) -> float:
    """Return the seconds without a fault that are still lacking."""
    return planned.watched_s - sum(row.lasted_s for row in store.watched(planned.setting))


def fabrics_of(planned: Sequence[Planned]) -> list[list[Planned]]:
    """Group the settings that can share a fabric."""

    def key(item: Planned) -> tuple[str, int, int, bool, bool, bool]:
        setting = item.setting
        timers = setting.multiplier, setting.interval_ms
        return setting.road, *timers, setting.busy, item.hurried, setting.strands_groups

    return [list(group) for _, group in groupby(sorted(planned, key=key), key)]


@dataclass(frozen=True, slots=True)
class _Seat:
    """A fabric's name, and its place among those that come up together."""

    name: str
    ready: Sequence[Event]
    index: int

    def up(self) -> None:
        """Report that this fabric is up. Return when all are, or when one of them takes too long."""
        self.ready[self.index].set()
        deadline = time.monotonic() + _UP_S
        while not all(event.is_set() for event in self.ready) and time.monotonic() < deadline:
            time.sleep(_POLL_S)


class _Fabric:
    """The work of one fabric's process."""

    def __init__(self, part: Sequence[Planned], store: Store, until_s: float, stopped: Event) -> None:
        self._part, self._store, self._until_s, self._stopped = part, store, until_s, stopped

    def run(self, seat: _Seat, stalls: Path) -> None:
        """Measure everything; exit code 2 if the fabric gave up."""
        # An interrupt is handled by the parent process, which sets `stopped`.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        first, failed = self._part[0], 0
        while failed < _TRIES and not self._over():
            try:
                with bench(first.setting, seat.name, hurried=first.hurried, stalls=stalls) as standing:
                    seat.up()
                    self._break(standing)
                    self._watch(standing)
                    return
            except TwinbedError as error:
                say(f"{first.setting.key}: {error}")
                failed += 1
        seat.ready[seat.index].set()
        sys.exit(2 if failed else 0)

    def _break(self, standing: Bench) -> None:
        """Measure faults of all its settings in turn."""
        have = {item.setting: len(self._store.faults(item.setting)) for item in self._part}
        while lacking := [item for item in self._part if have[item.setting] < item.faults]:
            setting = min(lacking, key=lambda item: have[item.setting] / item.faults).setting
            if self._over():
                return
            row = campaign.fault(standing, setting, have[setting])
            if self._stopped.is_set():
                # The measuring processes may have been stopped, too.
                return
            have[setting] += 1
            self._store.add(setting, row)
            say(campaign.told(setting, have[setting], row))

    def _watch(self, standing: Bench) -> None:
        """Measure times without a fault, in pieces."""
        for item in self._part:
            while (lacking_s := unwatched_s(item, self._store)) > 1.0 and not self._over():
                row = campaign.watched(standing, min(lacking_s, _WATCH_S))
                if self._stopped.is_set():
                    return
                self._store.add(item.setting, row)
                say(f"{item.setting.key}: {counted(row.downs, 'down')} in {row.lasted_s:.0f} s")

    def _over(self) -> bool:
        return self._stopped.is_set() or time.monotonic() >= self._until_s


def _write(asked: Asked, store: Store) -> None:
    settings = [item.setting for item in (*plan.ALL, *plan.WATCHED)]
    faults = {setting: rows for setting in settings if (rows := store.faults(setting))}
    if not faults:
        raise BackendError("nothing is measured yet; run it as root, without --page-only")
    calibrations: dict[Road, Calibration] = {}
    for road in Road:
        # An interrupted campaign may lack the settings that a part of the page needs.
        with suppress(BackendError):
            calibrations[road] = calibrated(store, road)
    others = {item.setting for item in plan.OTHERS}
    comparisons = [
        comparison
        for setting, rows in sorted(faults.items())
        if setting in others and setting.road in calibrations
        for comparison in compared(
            setting.key,
            measured(setting, rows),
            simulated(
                setting,
                under_stalls(fabric(calibrations[setting.road], {}, fast_path=True).control, rows),
            ),
        )
    ]
    measurements = Measurements(
        faults=faults,
        watched={setting: times for setting in settings if (times := store.watched(setting))},
        calibrations=calibrations,
        compared=comparisons,
        machine=machine.facts(),
        lacking=_lacking(store),
        note=store.note,
    )
    applications = application_rows.section(calibrations=calibrations)
    harness.publish("fidelity-fabric", document(measurements, applications), asked.out)


def _lacking(store: Store) -> list[str]:
    faults = {item.setting.key: item.faults - len(store.faults(item.setting)) for item in plan.ALL}
    minutes = {item.setting.key: unwatched_s(item, store) / 60 for item in plan.WATCHED}
    return [
        *(f"{key} ({counted(count, 'fault')})" for key, count in faults.items() if count > 0),
        *(f"{key} ({rest:.0f} min without a fault)" for key, rest in minutes.items() if rest > 1 / 60),
    ]
