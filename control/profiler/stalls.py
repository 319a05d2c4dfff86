"""The stalls of a distributed training: the time that interconnect, CPU, disk and network add.

For: comparing runs that differ in one condition each, the stall to fix first, the price of an epoch, and
whether to repeat a run. Not for: making the runs (testbed.cloud.stalls) or predicting them
(twin.cloud.stalls). Source: Stash (ICDCS 2023), of which only the abstract was read. The differences are
those of the first author's fork of DS-Analyzer (MIT), with one exception. The fork computes the disk's stall
as RUN2 less the CPU's stall; we compute it as RUN2 less RUN3. Our readings: samples are counted per worker; a
run's time is the median of its repeats; the spread is the longest repeat less the shortest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import permutations

import numpy as np

from twinbed import ScenarioError

SPREAD_S = 1.0
"""Spread of repeats above which a run is repeated once more, s (the source's)."""
FEWEST, MOST = 2, 5
"""Fewest and most repeats of a run: a single one has no spread; the source makes at most this many (our
reading)."""


class Run(StrEnum):
    """A run of the profiler, by the source's name for it."""

    ALONE = "RUN0"
    """One worker, one batch that is kept in memory."""
    TOGETHER = "RUN1"
    """All workers of the machine, one batch that is kept in memory."""
    COLD = "RUN2"
    """All workers, samples from files, with the page cache dropped before."""
    WARM = "RUN3"
    """All workers, samples from files that are in the page cache."""
    APART = "RUN1n"
    """The workers of RUN1, each on a machine of its own."""


class Stall(StrEnum):
    """The resource for which a job's workers wait."""

    INTERCONNECT = "interconnect"
    CPU = "CPU"
    DISK = "disk"
    NETWORK = "network"


DIFFERENCES: Mapping[Stall, tuple[Run, Run, Run]] = {
    Stall.INTERCONNECT: (Run.TOGETHER, Run.ALONE, Run.TOGETHER),
    Stall.CPU: (Run.WARM, Run.TOGETHER, Run.WARM),
    Stall.DISK: (Run.COLD, Run.WARM, Run.COLD),
    Stall.NETWORK: (Run.APART, Run.TOGETHER, Run.TOGETHER),
}
"""For each stall: the run with the stall, the run without it, and the run whose time is the denominator of
its share."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One run. seconds: time of each repeat, s. samples: number of samples that each worker trained on in a
    repeat.

    Raises ScenarioError for no repeat, and for values that are not finite or not above zero.
    """

    seconds: tuple[float, ...]
    samples: float

    def __post_init__(self) -> None:
        values = np.array([*self.seconds, self.samples])
        if len(values) < 2 or not np.isfinite(values).all() or not (values > 0).all():
            raise ScenarioError(
                f"a run of {self.samples:g} samples in {self.seconds} s: expected times above zero"
            )

    def time_s(self, samples: float) -> float:
        """Return the time of `samples` samples per worker, s: the median of the repeats, scaled."""
        return float(np.median(self.seconds)) * samples / self.samples

    def spread_s(self, samples: float) -> float:
        """Return the longest repeat less the shortest, scaled to `samples` samples per worker, s."""
        return (max(self.seconds) - min(self.seconds)) * samples / self.samples


@dataclass(frozen=True, slots=True)
class Reading:
    """Time to read a sample. cpu_s: CPU time, s. wait_s: additional time of waiting for the disk, s."""

    cpu_s: float
    wait_s: float

    def on(self, cores: float) -> float:
        """Return the time on a quota of `cores` cores, s. One thread reads a sample."""
        return self.cpu_s / min(cores, 1.0) + self.wait_s


@dataclass(slots=True)
class Profiled:
    """A job's runs under the limits of an instance type: measured by a backend, or input of the twin.

    job, type: names of the job and of the instance type. price_usd_h: price of a machine with one worker,
    US$/h.
    workers: number of workers of all runs except RUN0. cores, network_bps: limits of a worker.
    batch: samples per worker and step. gradient_bytes: size of each trained tensor, B, as in the model.
    timings: the runs that were made. refused: reason why there is no RUN2, "" if there is one.
    sizes_bytes, all_reduce_s: all-reduces between the workers without a shaped link, B and s.
    warm, cold: time to read a sample from the page cache, and from the disk; None: not measured.
    """

    job: str
    type: str
    price_usd_h: float
    workers: int
    cores: float
    network_bps: float
    batch: int = 0
    gradient_bytes: tuple[int, ...] = ()
    timings: dict[Run, Timing] = field(default_factory=dict)
    refused: str = ""
    sizes_bytes: tuple[int, ...] = ()
    all_reduce_s: tuple[float, ...] = ()
    warm: Reading | None = None
    cold: Reading | None = None


@dataclass(frozen=True, slots=True)
class Stalled:
    """One stall. seconds: time that it adds, s. share: that time as a share of the run that `DIFFERENCES`
    names.
    noise_s: the larger spread of the two runs, s."""

    stall: Stall
    seconds: float
    share: float
    noise_s: float

    @property
    def within_noise(self) -> bool:
        """Whether the stall is smaller than the spread of its runs."""
        return self.seconds < self.noise_s


@dataclass(frozen=True, slots=True)
class Configuration:
    """A set of machines. epoch_s: time of an epoch, s; price_usd_h: price of the whole set, US$/h."""

    name: str
    epoch_s: float
    price_usd_h: float

    @property
    def epoch_usd(self) -> float:
        """Cost of an epoch, US$."""
        return self.epoch_s * self.price_usd_h / 3600


def again(seconds: Sequence[float]) -> bool:
    """Return whether a run with these repeats, s, must be repeated once more."""
    return len(seconds) < FEWEST or (len(seconds) < MOST and max(seconds) - min(seconds) > SPREAD_S)


def stalls(runs: Mapping[Run, Timing]) -> tuple[Stalled, ...]:
    """Return the stalls whose runs were made, in the order of `Stall`. None is negative.

    Times are scaled to the samples per worker of RUN1, or else of the first run in the order of `Run`.
    """
    samples = next((runs[run].samples for run in (Run.TOGETHER, *Run) if run in runs), 0.0)
    found = []
    for stall, (slow, fast, whole) in DIFFERENCES.items():
        if slow in runs and fast in runs:
            seconds = max(runs[slow].time_s(samples) - runs[fast].time_s(samples), 0.0)
            noise_s = max(runs[slow].spread_s(samples), runs[fast].spread_s(samples))
            found.append(Stalled(stall, seconds, seconds / runs[whole].time_s(samples), noise_s))
    return tuple(found)


def fix_first(found: Iterable[Stalled]) -> Stall | None:
    """Return the stall that adds most time beyond noise, the first of equals; None if there is none."""
    order = list(Stall)
    beyond = [stalled for stalled in found if stalled.seconds > 0 and not stalled.within_noise]
    ranked = sorted(beyond, key=lambda stalled: (-stalled.seconds, order.index(stalled.stall)))
    return ranked[0].stall if ranked else None


def by_cost(sets: Iterable[Configuration]) -> list[Configuration]:
    """Return the sets of machines, the cheapest epoch first. Equal ones are ordered by time, then by name."""
    return sorted(sets, key=lambda one: (one.epoch_usd, one.epoch_s, one.name))


def by_time(sets: Iterable[Configuration]) -> list[Configuration]:
    """Return the sets of machines, the shortest epoch first. Equal ones are ordered by cost, then by name."""
    return sorted(sets, key=lambda one: (one.epoch_s, one.epoch_usd, one.name))


def dearer_and_slower(sets: Iterable[Configuration]) -> list[tuple[Configuration, Configuration]]:
    """Return the pairs whose first set has a higher price per hour and a longer epoch, by name."""
    pairs = permutations(sorted(sets, key=lambda one: one.name), 2)
    return [(a, b) for a, b in pairs if a.price_usd_h > b.price_usd_h and a.epoch_s > b.epoch_s]
