"""Several fabrics at once, a process each, so that their faults share the time that each of them waits.

For: the rounds of plan.py. Not for: a fault (campaign.py) nor what is in a round. All come up before the
first fault, for that needs the CPUs; then each measures until it lacks nothing. All of a round are busy or
none is: the load is the machine's. It may be stopped at any time by SIGINT or SIGTERM: faults that are not
over are not kept, and all fabrics go.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.context import ForkProcess
from multiprocessing.synchronize import Event
from pathlib import Path

from lab.fabric.real import campaign
from lab.fabric.real.bench import Bench, bench, load
from lab.fabric.real.plan import Planned
from lab.fabric.real.store import Store
from testbed.fabric import sentinel
from twinbed import BackendError, TwinbedError

_WATCH_S = 10.0
"""The least that is kept of a time without a fault, and then the same again."""
_UP_S, _POLL_S = 90.0, 0.2
_TRIES = 3
"""So often a fabric may fail to come back, and is made anew."""

Progress = campaign.Progress

_forking = multiprocessing.get_context("fork")


def measure(planned: Sequence[Planned], store: Store, name: str, until_s: float, say: Progress) -> None:
    """Until nothing of it is lacking, or it is until_s (time.monotonic). name: of the fabrics, before a
    number.

    Raises KeyboardInterrupt when it was stopped, BackendError when one of the fabrics gave up.
    """
    parts = fabrics_of([each for each in planned if lacks(each, store)])
    if not parts or time.monotonic() >= until_s:
        return
    stopped = _forking.Event()
    ready = [_forking.Event() for _ in parts]
    seats = [_Seat(f"{name}-{index}", ready, index) for index in range(len(parts))]
    with tempfile.TemporaryDirectory(prefix="twinbed-") as folder:
        stalls = Path(folder) / "stalls.txt"
        busy = any(each.setting.busy for each in planned)
        with sentinel.sentinel(stalls), load() if busy else nullcontext():
            processes = [
                _forking.Process(target=_Fabric(part, store, until_s, say, stopped).run, args=(each, stalls))
                for each, part in zip(seats, parts, strict=True)
            ]
            _run(processes, stopped)
    if failed := sum(each.exitcode != 0 for each in processes):
        raise BackendError(f"{failed} of {len(parts)} fabrics gave up; their own words are above")


def lacks(planned: Planned, store: Store) -> bool:
    """Whether anything of it is not measured yet."""
    return len(store.faults(planned.setting)) < planned.faults or unwatched_s(planned, store) > 1.0


def unwatched_s(planned: Planned, store: Store) -> float:
    """Seconds without a fault that are still lacking."""
    return planned.watched_s - sum(row.lasted_s for row in store.watched(planned.setting))


def fabrics_of(planned: Sequence[Planned]) -> list[list[Planned]]:
    """What can share a fabric does."""

    def key(each: Planned) -> tuple[str, int, int, bool, bool, bool]:
        setting = each.setting
        timers = setting.multiplier, setting.interval_ms
        return setting.road, *timers, setting.busy, each.hurried, setting.strands_groups

    return [list(group) for _, group in groupby(sorted(planned, key=key), key)]


def _run(processes: Sequence[ForkProcess], stopped: Event) -> None:
    try:
        for each in processes:
            each.start()
        for each in processes:
            each.join()
    except BaseException:
        stopped.set()
        for each in processes:
            each.join()
        raise


@dataclass(frozen=True, slots=True)
class _Seat:
    """A fabric's name, and its place among those that come up together."""

    name: str
    ready: Sequence[Event]
    index: int

    def up(self) -> None:
        """It is there; returns when all are, or one of them takes too long."""
        self.ready[self.index].set()
        deadline = time.monotonic() + _UP_S
        while not all(each.is_set() for each in self.ready) and time.monotonic() < deadline:
            time.sleep(_POLL_S)


class _Fabric:
    """What one does, in its process."""

    def __init__(
        self, part: Sequence[Planned], store: Store, until_s: float, say: Progress, stopped: Event
    ) -> None:
        self._part, self._store, self._until_s, self._say, self._stopped = part, store, until_s, say, stopped

    def run(self, seat: _Seat, stalls: Path) -> None:
        """All of it; exit code 2 where it gave up."""
        # Whoever started it is told, and tells.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        first, failed = self._part[0], 0
        while failed < _TRIES and not self._over():
            try:
                with bench(first.setting, seat.name, hurried=first.hurried, stalls=stalls) as found:
                    seat.up()
                    self._break(found)
                    self._watch(found)
                    return
            except TwinbedError as error:
                self._say(f"{first.setting.key}: {error}")
                failed += 1
        seat.ready[seat.index].set()
        sys.exit(2 if failed else 0)

    def _break(self, found: Bench) -> None:
        """Faults of all its settings in turn."""
        have = {each.setting: len(self._store.faults(each.setting)) for each in self._part}
        while lacking := [each for each in self._part if have[each.setting] < each.faults]:
            setting = min(lacking, key=lambda each: have[each.setting] / each.faults).setting
            if self._over():
                return
            row = campaign.fault(found, setting, have[setting])
            if self._stopped.is_set():
                # What measures may have been stopped, too.
                return
            have[setting] += 1
            self._store.add(setting, row)
            self._say(campaign.told(setting, have[setting], row))

    def _watch(self, found: Bench) -> None:
        """Times without a fault, in pieces."""
        for each in self._part:
            while (lacking_s := unwatched_s(each, self._store)) > 1.0 and not self._over():
                row = campaign.watched(found, min(lacking_s, _WATCH_S))
                if self._stopped.is_set():
                    return
                self._store.add(each.setting, row)
                self._say(f"{each.setting.key}: {row.downs} downs in {row.lasted_s:.0f} s")

    def _over(self) -> bool:
        return self._stopped.is_set() or time.monotonic() >= self._until_s
