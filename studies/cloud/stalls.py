"""docs/results/stalls.md: where the time of the shipped jobs goes here, beside the twin; K4 and K5.

For: `python -m studies stalls`: it measures what studies/cloud/measured_stalls.jsonl lacks, then writes the
page. Not for: a user's job (`twinbed profile --stalls`). A row of the file is a job; it is written when it is
measured. K4 and K5 are of the abstract of Stash (ICDCS 2023).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from control.profiler.stalls import Configuration, Run, Stall, Stalled, dearer_and_slower, fix_first
from control.profiler.stalls import stalls as apart
from lab.cloud.input import job_file
from lab.cloud.real.stalls import measure
from lab.cloud.run.stalls import Measured
from studies import harness
from studies.cloud.measured import again, rows
from studies.cloud.measuring import JOBS, REGION
from studies.harness import Asked, say, table
from testbed.containers import machine
from traces.catalogue.catalogue import load

MEASURED = Path(__file__).with_name("measured_stalls.jsonl")
TYPE = "n1-standard-8"
"""The type that is emulated: two of its workers fit on two cores, and a job takes three minutes."""
WORKERS = 2
NOISE = 0.9
"""Quantile of the differences between repeated runs of the table of measured jobs: its noise."""
INSIDE, NETWORK = Stall.INTERCONNECT, Stall.NETWORK
Pair = tuple[str, Configuration, Configuration]
"""A job, the dearer type and the cheaper one."""
_ROW = TypeAdapter(Measured)


def make(asked: Asked) -> int:
    """Measure the jobs that the file lacks, for asked.minutes at most, and write the page.

    asked.store: the file. asked.only: these jobs. asked.page_only: measure nothing.
    """
    path = asked.store or MEASURED
    held = read(path)
    until_s = time.monotonic() + 60 * asked.minutes
    listing = load().types(REGION)[TYPE]
    for file in sorted(JOBS.glob("*.yaml")):
        wanted = not asked.page_only and (not asked.only or file.stem in asked.only)
        if not wanted or any(item.job == file.stem for item in held) or time.monotonic() > until_s:
            continue
        job = job_file.load(file)
        told = lambda line, name=job.name: say(f"{name}: {line}")  # noqa: E731
        held += measure(job, [listing], WORKERS, directory=JOBS, told=told)
        with path.open("ab") as store:
            store.write(_ROW.dump_json(held[-1]) + b"\n")
    harness.write(asked.out / "stalls.md", document(sorted(held, key=lambda item: item.job)))
    return 0


def read(path: Path) -> list[Measured]:
    """Return the measured jobs of a file; none without a file."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [_ROW.validate_json(line) for line in lines]


def document(held: Sequence[Measured]) -> str:
    """Return the page's text."""
    ours = {item.job: {found.stall: found for found in item.stalls} for item in held}
    twins = {item.job: {found.stall: found for found in apart(item.expected)} for item in held}
    repeated = again()
    noise = 0.0 if repeated is None else float(np.quantile(repeated.differences, NOISE))
    pairs = dear_pairs(noise)
    error = float(np.median(np.abs(_errors(held)))) if held else np.nan
    firsts = Counter(fix_first(item.stalls) for item in held)
    advice = ", ".join(f"the {stall} for {firsts[stall]}" for stall in Stall)
    answer = (
        f"Of {len(held)} of our seven jobs, the interconnect takes up to {_most(ours, INSIDE):.0%} of the "
        f"time, and the network makes {WORKERS} workers up to {1 + _most(ours, NETWORK):.1f} times as slow.",
        f"The twin expects {_most(twins, INSIDE):.0%} and {1 + _most(twins, NETWORK):.1f} times; the median "
        f"error of its times of runs with all workers is {harness.dash(error, '.1%')}.",
        f"To be fixed first is {advice}; {firsts[None]} have no stall beyond noise.",
    )
    stalls = [_line(item.job, found, twins[item.job][found.stall]) for item in held for found in item.stalls]
    runs = [_run_line(item, run) for item in held for run in item.expected]
    heads = ("job", "stall", "verdict", "measured, s", "measured", "noise, s", "twin, s", "twin")
    parts = (
        "## Stalls",
        table(heads, stalls, left=3),
        "Shares are of the run that has the stall; the network's is of RUN1, so 400 % is five times as slow.",
        "## Runs",
        table(("job", "run", "measured, s", "twin, s", "error"), runs, left=2),
        "RUN0 is what the twin is told. The other runs follow from layers, bytes and links.",
        "## K4 and K5",
        table(("figure", "source", "measured", "twin"), _figures(ours, twins, len(pairs)), left=2),
        "The source's jobs ran on GPUs of AWS, ours on emulated CPUs, so ours need not meet its figures.",
        f"K5 on our table of measured jobs: same job, workers and batch, slower by more than {noise:.0%}, "
        "which is the 90th percentile of what repeated runs differ by.",
        table(("dearer type", "cheaper, faster type", "jobs", "cases", "at most"), _pairs(pairs), left=3),
        "`at most`: how many times as long the dearer type takes at most.",
    )
    return harness.page("stalls", "Stalls of training jobs", answer, parts, _conditions(held))


def _conditions(held: Sequence[Measured]) -> Iterator[str]:
    facts = machine.facts()
    for item in held[:1]:
        yield (
            f"Each worker is a process with the quota of {TYPE} at a scale of 1/48: {item.cores:.3f} cores, "
            f"and {item.network_bps / 1e6:.0f} Mbit/s for the network. There are {WORKERS} workers, on "
            f"{facts.get('cpu_model', '')}, kernel {facts.get('kernel', '')}. α and β come from all-reduces "
            "of three sizes between the same workers under the same quota, times of reading from the file of "
            "samples itself."
        )
    yield (
        "Only the abstract of the source was read. Readings of ours: samples are counted per worker. A run "
        "is made at least twice, and up to five times while its repeats are over 1 s apart; their median "
        "counts. Each repeat is a new start. Runs are not split into copying, waiting and computing: nothing "
        "is copied to a device here, and the differences need no split."
    )


def dear_pairs(noise: float) -> list[Pair]:
    """Return job and types of each pair in the table of measured jobs whose dearer type is slower by more
    than so large a share, with as many workers and as large a batch.
    """
    known = rows()
    types, pairs = known.candidates, []
    keys = list(zip(known.job.tolist(), types.count.tolist(), types.batch.tolist(), strict=True))
    order = sorted(range(len(keys)), key=lambda row: keys[row])
    for (job, _, _), group in groupby(order, key=lambda row: keys[row]):
        sets = [
            Configuration(str(types.name[row]), float(known.time_s[row]), float(types.price_usd_h[row]))
            for row in group
        ]
        pairs += [
            (known.jobs[job].name, dear, cheap)
            for dear, cheap in dearer_and_slower(sets)
            if dear.epoch_s > (1 + noise) * cheap.epoch_s
        ]
    return pairs


def _figures(
    ours: dict[str, dict[Stall, Stalled]], twins: dict[str, dict[Stall, Stalled]], pairs: int
) -> Iterator[list[str]]:
    inside, network = ([_most(found, stall) for found in (ours, twins)] for stall in (INSIDE, NETWORK))
    yield ["K4, interconnect", "up to 90% of the time", *(f"up to {share:.0%}" for share in inside)]
    yield ["K4, network", "up to 5 times as slow", *(f"up to {1 + share:.1f} times" for share in network)]
    yield ["K5", "the dearer GPU is not always the faster one", f"{pairs} cases of CPUs", "–"]


def _pairs(pairs: Sequence[Pair]) -> Iterator[list[str]]:
    for names in sorted({(dear.name, cheap.name) for _, dear, cheap in pairs}):
        of_names = [pair for pair in pairs if (pair[1].name, pair[2].name) == names]
        slower = max(dear.epoch_s / cheap.epoch_s for _, dear, cheap in of_names)
        jobs = sorted({job for job, _, _ in of_names})
        yield [*names, ", ".join(jobs), str(len(of_names)), f"{slower:.2f}"]


def _most(found: dict[str, dict[Stall, Stalled]], stall: Stall) -> float:
    return max((stalls[stall].share for stalls in found.values() if stall in stalls), default=0.0)


def _errors(held: Sequence[Measured]) -> list[float]:
    return [
        item.expected[run].time_s(1) / timing.time_s(1) - 1
        for item in held
        for run, timing in item.timings.items()
        if run is not Run.ALONE
    ]


def _line(job: str, ours: Stalled, twins: Stalled) -> list[str]:
    verdict = "within noise" if ours.within_noise else ""
    figures = [f"{ours.seconds:.2f}", f"{ours.share:.1%}", f"{ours.noise_s:.2f}"]
    return [job, str(ours.stall), verdict, *figures, f"{twins.seconds:.2f}", f"{twins.share:.1%}"]


def _run_line(item: Measured, run: Run) -> list[str]:
    samples = item.timings[Run.ALONE].samples
    ours, twins = item.timings[run].time_s(samples), item.expected[run].time_s(samples)
    error = "–" if run is Run.ALONE else f"{twins / ours - 1:+.1%}"
    return [item.job, str(run), f"{ours:.2f}", f"{twins:.2f}", error]
