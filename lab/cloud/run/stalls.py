"""A profiled job beside the twin: its stalls, what to fix first, and what an epoch costs on sets of machines.

For: the table of `twinbed profile --stalls` and the page of the studies. Not for: making the runs
(lab.cloud.real.stalls). A set of machines is one with one worker, one with all workers, or one for each; a
worker costs the same in each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from control.profiler import stalls
from control.profiler.stalls import Configuration, Reading, Run, Stalled, Timing
from lab.runs.formats import Column, Record, Result
from twin.cloud import stalls as twin
from twin.fabric.collectives import AlphaBeta, Collective, fit

COLUMNS = (
    Column("type", "type"),
    Column("what", "what"),
    Column("measured_s", "measured", "s", 2),
    Column("measured_share", "measured", "1", 1, percent=True),
    Column("noise_s", "noise", "s", 2),
    Column("verdict", "verdict"),
    Column("twin_s", "twin", "s", 2),
    Column("twin_share", "twin", "1", 1, percent=True),
    Column("epoch_usd", "epoch", "$", 2),
)
LEGEND = "Stalls: time and share of their run (network: of RUN1). Machines: time and cost of an epoch."


@dataclass(frozen=True)
class Measured:
    """A job's runs under the limits of one type.

    job, type: names. price_usd_h: of a machine with one worker, US$/h. workers: number of workers.
    cores, network_bps: limits of a worker. batch: samples per worker and step.
    gradient_bytes: size of each trained tensor, B. timings: the runs. refused: why there is no RUN2, or "".
    sizes_bytes, all_reduce_s: all-reduces between the workers, B and s; empty for one worker.
    warm, cold: to read a sample from the page cache, and from the disk; None without RUN2.
    """

    job: str
    type: str
    price_usd_h: float
    workers: int
    cores: float
    network_bps: float
    batch: int
    gradient_bytes: tuple[int, ...]
    timings: dict[Run, Timing]
    refused: str
    sizes_bytes: tuple[int, ...]
    all_reduce_s: tuple[float, ...]
    warm: Reading
    cold: Reading | None

    @property
    def stalls(self) -> tuple[Stalled, ...]:
        """The measured stalls."""
        return stalls.stalls(self.timings)

    @cached_property
    def expected(self) -> Mapping[Run, Timing]:
        """The runs as the twin expects them from RUN0, without those that were not made."""
        inside = AlphaBeta(0.0, float("inf"))
        if self.workers > 1:
            inside = fit(Collective.ALL_REDUCE, self.sizes_bytes, self.workers, self.all_reduce_s)[0]
        prepare_s = self.warm.on(self.cores)
        fetch_s = 0.0 if self.cold is None else max(self.cold.on(self.cores) - prepare_s, 0.0)
        machine = twin.Machine(inside, self.network_bps, prepare_s, fetch_s)
        runs = twin.runs(self.timings[Run.ALONE], self.batch, self.workers, self.gradient_bytes, machine)
        return {run: timing for run, timing in runs.items() if run in self.timings}

    def sets(self, epoch_samples: float, timings: Mapping[Run, Timing] | None = None) -> list[Configuration]:
        """Return the sets of machines with their epochs; timings: None = the measured ones."""
        runs, many = self.timings if timings is None else timings, self.workers
        shapes = {
            f"{self.type}, 1 worker": (Run.ALONE, 1),
            f"{self.type}, {many} workers on a machine": (Run.TOGETHER, many),
            f"{self.type}, {many} workers on {many} machines": (Run.APART, many),
        }
        return [
            Configuration(name, runs[run].time_s(epoch_samples / count), count * self.price_usd_h)
            for name, (run, count) in shapes.items()
        ]


def result(measured: Sequence[Measured], epoch_samples: float) -> Result:
    """Return the table of a job's runs under one or more types' limits."""
    rows: list[Record] = []
    sets: list[Configuration] = []
    notes = []
    for item in measured:
        expected = stalls.stalls(item.expected)
        for ours, theirs in zip(item.stalls, expected, strict=True):
            rows.append(
                {
                    "type": item.type,
                    "what": f"{ours.stall} stall",
                    "measured_s": ours.seconds,
                    "measured_share": ours.share,
                    "noise_s": ours.noise_s,
                    "verdict": "within noise" if ours.within_noise else "",
                    "twin_s": theirs.seconds,
                    "twin_share": theirs.share,
                }
            )
        first = stalls.fix_first(item.stalls)
        notes.append(
            f"{item.type}: {'no stall is beyond noise' if first is None else f'fix first: {first}'}."
        )
        notes += [item.refused] if item.refused else []
        sets += item.sets(epoch_samples)
        for ours_, theirs_ in zip(
            item.sets(epoch_samples), item.sets(epoch_samples, item.expected), strict=True
        ):
            rows.append(
                {
                    "type": item.type,
                    "what": ours_.name.removeprefix(f"{item.type}, "),
                    "measured_s": ours_.epoch_s,
                    "twin_s": theirs_.epoch_s,
                    "epoch_usd": ours_.epoch_usd,
                }
            )
    notes += [
        f"By cost of an epoch: {'; '.join(one.name for one in stalls.by_cost(sets))}.",
        f"By time of an epoch: {'; '.join(one.name for one in stalls.by_time(sets))}.",
        *(
            f"{dear.name} is dearer per hour and slower than {cheap.name}."
            for dear, cheap in stalls.dearer_and_slower(sets)
        ),
    ]
    return Result(COLUMNS, tuple(rows), legend=LEGEND, notes=tuple(notes))
