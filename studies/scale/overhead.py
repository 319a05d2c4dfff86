"""Measures the overhead of a unit beside its work: units that sleep, on the local engine and on Dask.

For: the figures of docs/results/scale.md. Not for: runs. Workers beyond the cores are threads of one
process, which is enough to see the scheduler's own limits, because a unit that sleeps needs no core.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from lab.ask.kind import Progress
from lab.engine.dask import Dask
from lab.engine.local import Local
from lab.engine.ports import Engine, Places, Unit
from lab.engine.running import run


@dataclass(frozen=True, slots=True)
class Timed:
    """A timed series of units. sleep_s: length of each unit, s; took_s: time from the first start to the last
    end, s."""

    engine: str
    workers: int
    units: int
    sleep_s: float
    took_s: float

    @property
    def efficiency(self) -> float:
        """The time of the sleeping alone on all workers, as a share of the measured time."""
        return self.units * self.sleep_s / self.workers / self.took_s

    @property
    def overhead_s(self) -> float:
        """Time that a unit takes beyond its work, s."""
        return (self.took_s - self.units * self.sleep_s / self.workers) / self.units


def sleep(asked: float, places: Places, progress: Progress) -> None:
    """Sleep for `asked` seconds: the work of a unit."""
    del places, progress
    time.sleep(asked)


def timed(name: str, engine: Engine, workers: int, units: int, sleep_s: float) -> Timed:
    """Return the time of the units after every worker had one, so that starting processes does not count."""
    asked = [Unit(sleep_s)] * (units + 2 * workers)
    began_s = 0.0
    for count, _ in enumerate(run(engine, asked, sleep), 1):
        if count == 2 * workers:
            began_s = time.monotonic()
    return Timed(name, workers, units, sleep_s, time.monotonic() - began_s)


def all_timed() -> list[Timed]:
    """Return the table of the page."""
    rows = [
        timed("local", Local(2), 2, 400, 0.0),
        timed("local", Local(2), 2, 40, 1.0),
        timed("dask", Dask("", 2), 2, 1000, 0.0),
        timed("dask", Dask("", 2), 2, 40, 1.0),
    ]
    rows += [_threads(workers) for workers in (50, 200, 500)]
    return rows


def _threads(workers: int) -> Timed:
    import distributed

    cluster: type = distributed.LocalCluster
    with cluster(n_workers=1, threads_per_worker=workers, dashboard_address=None, silence_logs=50) as opened:
        address = opened.scheduler_address
        return timed("dask, threads", Dask(address), workers, 4 * workers, 1.0)
