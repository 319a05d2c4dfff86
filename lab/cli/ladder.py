"""`twinbed prices ladder`: the past cost of a job with more and more freedom to choose where it runs.

For: the verb's options. Not for: the question itself (lab.cloud.run.ladder).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, emit, flag, option, usable
from twinbed import ScenarioError


def ladder(
    start: Annotated[str, option("DAY", "Day on which the job starts, UTC, e.g. 2024-02-01.")],
    work: Annotated[str | None, option("TIME", "Work on one reference GPU, e.g. 4d.")] = None,
    gpu: Annotated[str, option("MODEL", "The reference GPU, by a part of its name.")] = "V100 16GB",
    home: Annotated[str, option("CLOUD/REGION", "Region in which the first steps stay.")] = "aws/us-east-1",
    where: Annotated[
        str, option("CLOUD/REGION,…", "Prefixes of the allowed places, e.g. aws/us-,gcp. Default: all.")
    ] = "",
    market: Annotated[str, option("on-demand|spot", "Market of the prices.")] = "spot",
    move_every: Annotated[str, option("TIME,…", "Time between two choices, e.g. 1h,6h,1d,7d.")] = "1d",
    speed: Annotated[
        str,
        option(
            "GPU=FACTOR,…",
            "Speed of your job on other GPUs, relative to the reference; only these are used. "
            "Default: all GPUs, with modelled speeds.",
        ),
    ] = "",
    restart: Annotated[str, option("TIME", "Time that every start takes, including repeated work.")] = "10m",
    checkpoint_gb: Annotated[float, option("GB", "Size of the checkpoint.", min=0.0, callback=usable)] = 0.0,
    egress: Annotated[
        float,
        option("USD", "Price of moving the checkpoint between regions, $/GB.", min=0.0, callback=usable),
    ] = 0.09,
    deadline: Annotated[
        str | None,
        option("TIME", "Longest time of the job, e.g. 5d; with --jobs, of jobs without a deadline_h."),
    ] = None,
    jobs: Annotated[
        Path | None,
        option(
            "FILE",
            "Several jobs in place of --work (CSV: name, arrival_h, work_h, deadline_h); step dynamic only.",
        ),
    ] = None,
    budget: Annotated[
        float | None, option("USD", "Largest cost of all --jobs.", min=0.0, callback=usable)
    ] = None,
    moves: Annotated[bool, flag("--moves", "Show every stay, its reason, and both prices of work.")] = False,
    catalogue: Annotated[Path | None, option("FILE", "Your own prices, CSV or Parquet.")] = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Show what a job on one GPU would have cost at each step from a fixed GPU type to moves across clouds.

    The steps are baseline, gpu_type, packed (larger machines, at the price of one GPU), multi_cloud (other
    regions and clouds, chosen once) and dynamic (chosen again at every interval). The exit code is 1 if no
    step or job can be done.
    """
    import math

    from control.market.ladder import Job
    from lab.ask.times import duration_s
    from lab.cli.progress import Bar
    from lab.cloud.input.price_list import in_use
    from lab.cloud.run import ladder as climbing

    if (work is None) == (jobs is None) or (budget is not None and jobs is None):
        raise ScenarioError("give either --work TIME or --jobs FILE; --budget and --jobs belong together")
    intervals = [duration_s(part, "--move-every") for part in move_every.split(",")]
    if jobs is not None and len(intervals) > 1:
        raise ScenarioError(f"--move-every {move_every}: with --jobs give one time")
    prices = in_use(catalogue).prices
    reference = climbing.matched(prices, gpu, f"--gpu {gpu}")
    asked = climbing.LadderQuestion(
        home=climbing.place(home),
        gpu=reference,
        where=tuple(part.strip() for part in where.split(",") if part.strip()) or ("",),
        market=market,
        speeds=climbing.speeds(prices, reference, speed) if speed else None,
    )
    limit_s = duration_s(deadline, "--deadline") if deadline else math.inf
    work_s, restart_s = duration_s(work or "1h", "--work"), duration_s(restart, "--restart", zero=True)
    like = Job(work_s, restart_s, checkpoint_gb, egress, deadline_s=limit_s)
    with Bar(1, wanted=not no_progress, preparing="reading prices"):
        offers, at_s = climbing.collect(prices, asked), climbing.epoch_s(start)
        if jobs is None:
            rows = climbing.climb(like, offers, asked, at_s, intervals)
        else:
            listed = climbing.jobs_of(jobs, like)
            rows = climbing.collection(
                listed, offers, asked, at_s, intervals[0], math.inf if budget is None else budget
            )
    emit(climbing.table(rows, offers, asked, moves=moves, jobs=jobs is not None), form)
    if not any(row.ride for row in rows):
        raise typer.Exit(1)
