"""docs/results/stalls.md: stalls of the shipped jobs on this machine, beside the twin; K4 and K5.

For: `python -m studies stalls`: it measures the jobs that studies/cloud/measured_stalls.jsonl lacks, then
writes the page. Not for: a user's job (`twinbed profile --stalls`). A row of the file is a measured job. K4
and K5 are claims of the abstract of Stash (ICDCS 2023).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from control.profiler.stalls import Configuration, Profiled, Run, Stall, dearer_and_slower, fix_first, stalls
from lab.cloud.input import job_file
from lab.cloud.real.stalls import measure
from studies import harness
from studies.cloud.measured import again, rows
from studies.cloud.measuring import JOBS, REGION
from studies.harness import Asked, say, table
from testbed.cloud.emulated import STEPS
from testbed.containers import machine
from traces.catalogue.catalogue import load
from twin.cloud.stalls import runs
from twinbed import ScenarioError

MEASURED = Path(__file__).with_name("measured_stalls.jsonl")
TYPE = "n1-highcpu-32"
"""The emulated type: the largest in the table of measured jobs of which two machines fit on two cores."""
WORKERS = 2
NOISE = 0.9
"""Quantile of the differences between repeated runs of the table of measured jobs: its noise."""
Pair = tuple[str, Configuration, Configuration]
"""A job, the dearer type and the cheaper one."""
_ROW = TypeAdapter(Profiled)


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
        say(job.name)
        held += measure(job, [listing], WORKERS, directory=JOBS, told=say)
        with path.open("ab") as store:
            store.write(_ROW.dump_json(held[-1]) + b"\n")
    if not held:
        raise ScenarioError(f"{path}: no job was measured yet")
    harness.publish("stalls", document(sorted(held, key=lambda job: job.job)), asked.out)
    return 0


def read(path: Path) -> list[Profiled]:
    """Return the measured jobs of a file; none without a file."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [_ROW.validate_json(line) for line in lines]


def document(held: Sequence[Profiled]) -> str:
    """Return the page's text."""
    repeated = again()
    noise = 0.0 if repeated is None else float(np.quantile(repeated.differences, NOISE))
    pairs, lines, of_runs, errors = dear_pairs(noise), [], [], []
    worst = dict.fromkeys(Stall, (0.0, 0.0))
    for job in held:
        expected = runs(job)
        for ours, twins in zip(stalls(job.timings), stalls(expected), strict=True):
            worst[ours.stall] = (
                max(worst[ours.stall][0], ours.share),
                max(worst[ours.stall][1], twins.share),
            )
            verdict = "within noise" if ours.within_noise else ""
            measured = [f"{ours.seconds:.2f}", f"{ours.share:.1%}", f"{ours.noise_s:.2f}"]
            figures = [*measured, f"{twins.seconds:.2f}", f"{twins.share:.1%}"]
            lines.append([job.job, str(ours.stall), verdict, *figures])
        samples = job.timings[Run.ALONE].samples
        for run, timing in list(expected.items())[1:]:
            took_s, twin_s = job.timings[run].time_s(samples), timing.time_s(samples)
            errors.append(twin_s / took_s - 1)
            of_runs.append([job.job, str(run), f"{took_s:.2f}", f"{twin_s:.2f}", f"{errors[-1]:+.1%}"])
    firsts = Counter(fix_first(stalls(job.timings)) for job in held)
    inside, network = worst[Stall.INTERCONNECT], [1 + share for share in worst[Stall.NETWORK]]
    jobs = len(list(JOBS.glob("*.yaml")))
    which = f"our {jobs} jobs" if len(held) == jobs else f"the {len(held)} measured ones of our {jobs} jobs"
    answer = (
        f"In {which}, the interconnect takes up to {inside[0]:.0%} of the time (twin: {inside[1]:.0%}), and "
        f"the network makes {WORKERS} workers up to {network[0]:.1f} times as slow (twin: {network[1]:.1f}).",
        f"The median error of the twin's times is {np.median(np.abs(errors)):.1%}.",
        f"Jobs by the stall to fix first: {', '.join(f'{stall} {firsts[stall]}' for stall in Stall)}; no "
        f"stall beyond noise {firsts[None]}.",
    )
    heads = ("job", "stall", "verdict", "measured, s", "measured", "noise, s", "twin, s", "twin")
    figures_of_source = (
        ["K4, interconnect", "up to 90% of the time", *(f"up to {share:.0%}" for share in inside)],
        ["K4, network", "up to 5 times as slow", *(f"up to {factor:.1f} times" for factor in network)],
        ["K5", "the dearer GPU is not always the faster one", f"{len(pairs)} cases of CPUs", "–"],
    )
    parts = (
        "## Stalls",
        table(heads, lines, left=3),
        "A share is the stall's part of the run in which it occurs. The network's share is relative to RUN1, "
        "so 400 % means five times as slow.",
        "## Runs",
        table(("job", "run", "measured, s", "twin, s", "error"), of_runs, left=2),
        "The twin gets RUN0 as an input. It predicts the other runs from layers, bytes and links.",
        "## K4 and K5",
        table(("figure", "source", "measured", "twin"), figures_of_source, left=2),
        "The source's jobs ran on GPUs of AWS, ours on emulated CPUs, so ours need not meet its figures.",
        "K5 on our table of measured jobs: pairs with the same job, workers and batch size whose dearer type "
        f"is slower by more than {noise:.0%}, the 90th percentile of the differences of repeated runs.",
        table(
            ("dearer type", "cheaper, faster type", "jobs", "cases", "times, at most"), _named(pairs), left=3
        ),
    )
    return harness.page("stalls", "Stalls of training jobs", answer, parts, _conditions(held[0]))


def _conditions(job: Profiled) -> tuple[str, str]:
    facts = machine.facts()
    return (
        f"Each worker is a process with the quota of {TYPE} at a scale of 1/48: {job.cores:.3f} cores, and "
        f"{job.network_bps / 1e6:.0f} Mbit/s for the network. There are {WORKERS} workers, on "
        f"{facts.get('cpu_model', '')}, kernel {facts.get('kernel', '')}. α and β come from all-reduces of "
        "three sizes between the same workers under the same quota, reading times from the file itself.",
        "Only the abstract of the source was read. These are our readings of it: Samples are counted per "
        "worker. A run is made at least twice, and up to five times while its repeats differ by over 1 s; "
        f"their median counts. Each repeat is a new start with {STEPS} steps or more, "
        "and stalls of a few percent cannot be distinguished from noise. Runs are not split into copying, "
        "waiting and computing: nothing is copied to a device here, and the differences need no split.",
    )


def dear_pairs(noise: float) -> list[Pair]:
    """Return the pairs of types in the table of measured jobs whose dearer type is slower by more than the
    share `noise`. Both have the same job, number of workers and batch size."""
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


def _named(pairs: Sequence[Pair]) -> Iterator[list[str]]:
    for names in sorted({(dear.name, cheap.name) for _, dear, cheap in pairs}):
        of_names = [pair for pair in pairs if (pair[1].name, pair[2].name) == names]
        slower = max(dear.epoch_s / cheap.epoch_s for _, dear, cheap in of_names)
        jobs = sorted({job for job, _, _ in of_names})
        yield [*names, ", ".join(jobs), str(len(of_names)), f"{slower:.2f}"]
