"""A profiled job beside the twin: its stalls, the stall to fix first, and the price of an epoch on sets of
machines.

For: the table of `twinbed profile --stalls`. Not for: making the runs (lab.cloud.real.stalls). A set is one
machine with one worker, one machine with all workers, or a machine for each worker. The price of a worker is
the same in each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from control.profiler import stalls
from control.profiler.stalls import Configuration, Profiled, Run, Timing
from lab.runs.formats import Column, Record, Result
from testbed.cloud.emulated import SCALE
from twin.cloud import stalls as twin

COLUMNS = (
    Column("type", "type"),
    Column("what", "what"),
    Column("measured_s", "measured", "s", 2),
    Column("measured_share", "share", "1", 1, percent=True),
    Column("noise_s", "noise", "s", 2),
    Column("verdict", "verdict"),
    Column("twin_s", "twin", "s", 2),
    Column("twin_share", "twin's share", "1", 1, percent=True),
    Column("epoch_usd", "cost", "$", 2),
)
LEGEND = (
    "A stall is the time that one thing adds to {samples:,.0f} samples of each worker on the emulated type: "
    "the other workers of a machine (interconnect), preparing samples (CPU), reading them (disk), or the "
    "type's links between machines (network). It is within noise if repeated runs differ by more. Its share "
    "is of the time with it; the network's is of the time without it. An epoch is on the type itself. The "
    "twin is given the time with 1 worker."
)


def sets_of(job: Profiled, timings: Mapping[Run, Timing], epoch_samples: float) -> list[Configuration]:
    """Return the sets of machines, each with the time of an epoch, s, and its price, US$/h. An emulated type
    takes 1 / SCALE times as long as the type itself."""
    many = job.workers
    shapes = [(Run.ALONE, 1, "1 worker")]
    if many > 1:
        shapes += [
            (Run.TOGETHER, many, f"{many} workers on a machine"),
            (Run.APART, many, f"{many} workers on {many} machines"),
        ]
    return [
        Configuration(
            f"{job.type}, {name}", timings[run].time_s(epoch_samples / count) * SCALE, count * job.price_usd_h
        )
        for run, count, name in shapes
    ]


def result(jobs: Sequence[Profiled], epoch_samples: float) -> Result:
    """Return the table of a job's runs under one or more types' limits."""
    rows: list[Record] = []
    sets: list[Configuration] = []
    notes = []
    for job in jobs:
        expected, found = twin.runs(job), stalls.stalls(job.timings)
        for ours, theirs in zip(found, stalls.stalls(expected), strict=True):
            verdict = "beyond noise" if stalls.fix_first([ours]) else "within noise"
            measured = (ours.seconds, ours.share, ours.noise_s, verdict)
            rows.append(_row(job.type, f"{ours.stall} stall", *measured, theirs.seconds, theirs.share, None))
        here = sets_of(job, job.timings, epoch_samples)
        for one, other in zip(here, sets_of(job, expected, epoch_samples), strict=True):
            name = one.name.removeprefix(f"{job.type}, ")
            figures = (one.epoch_s, None, None, None, other.epoch_s, None, one.epoch_usd)
            rows.append(_row(job.type, f"epoch with {name}", *figures))
        first = stalls.fix_first(found)
        notes.append(f"{job.type}: {f'fix the {first} first' if first else 'no stall is beyond noise'}.")
        notes += [f"{job.type}: {job.refused}"] if job.refused else []
        sets += here
    for word, ranked in (("cheapest", stalls.by_cost(sets)), ("shortest", stalls.by_time(sets))):
        notes.append(f"Epochs, the {word} first: {'; '.join(one.name for one in ranked)}.")
    for dear, cheap in stalls.dearer_and_slower(sets):
        notes.append(f"{dear.name} is dearer per hour and slower than {cheap.name}.")
    legend = LEGEND.format(samples=jobs[0].timings[Run.TOGETHER].samples)
    return Result(COLUMNS, tuple(rows), legend=legend, notes=tuple(notes))


def _row(*values: str | float | None) -> Record:
    return {column.key: value for column, value in zip(COLUMNS, values, strict=True)}
