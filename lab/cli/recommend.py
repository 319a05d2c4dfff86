"""`twinbed recommend`: the cluster that trains a job cheapest or fastest, and the next one to try.

For: the verb's options. Not for: the work, which lab.api does.
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from control.objective import Objective
from control.recommender import METHODS
from lab.cli import config
from lab.cli.options import (
    Format,
    FormatOption,
    NoProgressOption,
    argument,
    emit,
    flag,
    names_in,
    option,
    positive,
    usable,
)
from lab.cloud.search import Backend
from twinbed import ScenarioError

_THREADS = "OPENBLAS_NUM_THREADS"


def recommend(
    job: Annotated[Path, argument("JOB", "A job's file, or a shipped job's name.")],
    by: Annotated[Objective, option("|".join(Objective), "Quantity to minimise.")] = Objective.COST,
    deadline: Annotated[str | None, option("TIME", "Longest time of the job, e.g. 6h or 90m.")] = None,
    budget: Annotated[
        float | None, option("USD", "Largest cost of the whole job.", callback=positive)
    ] = None,
    budget_per_hour: Annotated[
        float | None, option("USD", "Largest price of the cluster.", callback=positive)
    ] = None,
    region: Annotated[
        str, flag("--region", "Region of the prices.", envvar=config.VARIABLES["region"])
    ] = "us-central1",
    market: Annotated[str, option("on-demand|spot", "Market of the prices.")] = "on-demand",
    types: Annotated[
        str | None,
        option("A,B,…", "Instance types. Default: all if they are few, else those that were measured."),
    ] = None,
    workers: Annotated[str | None, option("N,N,…", "Numbers of workers. Default: 1,2,3,4,6,8,12,16.")] = None,
    batches: Annotated[
        str | None,
        option(
            "N,N,…",
            "Batch sizes per worker to choose among. Default: the job's own; with --method scavenger, a "
            "quarter to eight times it.",
        ),
    ] = None,
    server: Annotated[
        str,
        option(
            "TYPE,…|auto",
            "Type of a parameter server. If several or auto (all), the type with the largest bandwidth "
            "within --budget-per-hour. Default: no server.",
        ),
    ] = "",
    method: Annotated[str, option("NAME", f"Recommender: {', '.join(METHODS)}, or your own.")] = "transfer",
    loss: Annotated[
        float | None, option("LOSS", "Loss to reach, for --method spotdnn.", callback=usable)
    ] = None,
    from_loss: Annotated[
        float | None, option("LOSS", "Present loss, if the job has begun; with --running.", callback=usable)
    ] = None,
    running: Annotated[
        str | None, option("TYPE=N,…", "Workers that still run after a revocation, for --method spotdnn.")
    ] = None,
    catalogue: Annotated[
        Path | None,
        option(
            "FILE", "Your own prices, CSV or Parquet. Default: the shipped ones and those of prices update."
        ),
    ] = None,
    measurements: Annotated[
        Path | None,
        option(
            "FILE.duckdb",
            "Past runs. Default: $TWINBED_MEASUREMENTS, else measurements.duckdb in your data folder.",
        ),
    ] = None,
    shipped_runs: Annotated[
        bool,
        flag(
            "--shipped-runs/--no-shipped-runs",
            "Use the shipped table of measured jobs as past runs, too.",
        ),
    ] = True,
    search: Annotated[
        bool,
        flag(
            "--search",
            "Try clusters until the method stops: launch the job, measure it, store the trial, propose "
            "again.",
        ),
    ] = False,
    backend: Annotated[
        Backend,
        option(
            "testbed|twin|gcloud",
            "Where --search runs trials: emulated types here (root), the twin, or Google Cloud.",
        ),
    ] = Backend.TESTBED,
    trials: Annotated[int, option("N", "Most trials of --search.", min=1)] = 12,
    trial_limit: Annotated[
        str, option("TIME", "Lease of a trial: after this time its instances end by themselves.")
    ] = "30m",
    cap: Annotated[
        float | None, option("USD", "Largest cost of all trials of --search.", callback=positive)
    ] = None,
    real: Annotated[bool, flag("--real", "Let --backend gcloud spend real money, up to --cap.")] = False,
    zone: Annotated[str, flag("--zone", "Zone of --backend gcloud.")] = "",
    template: Annotated[str, option("NAME", "Instance template of --backend gcloud.")] = "",
    top: Annotated[int, option("N", "Rows of the ranking.", min=1)] = 10,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Rank clusters for a training job by cost or time, with intervals, and say which one to try next.

    Add trials under the job's name with `twinbed measurements import` to sharpen the answer, or let --search
    run them. The exit code is 1 if no cluster is likely to keep --deadline and --budget.
    """
    _load_algebra()
    from lab import api
    from lab.ask.times import duration_s

    found = api.recommend(
        job,
        by=by.value,
        deadline_s=inf if deadline is None else duration_s(deadline, "--deadline"),
        budget_usd=inf if budget is None else budget,
        budget_usd_h=inf if budget_per_hour is None else budget_per_hour,
        region=region,
        market=market,
        types=() if types is None else tuple(names_in(types, "--types")),
        workers=None if workers is None else _counts(workers),
        batches=() if batches is None else _counts(batches, "--batches"),
        server=server,
        method=method,
        loss=loss,
        from_loss=inf if from_loss is None else from_loss,
        running=None if running is None else _running(running),
        catalogue=catalogue,
        measurements=measurements,
        shipped_runs=shipped_runs,
        search=search,
        backend=backend.value,
        trials=trials,
        lease_s=duration_s(trial_limit, "--trial-limit"),
        cap_usd=inf if cap is None else cap,
        real=real,
        zone=zone,
        template=template,
        top=top,
        progress=not no_progress,
    )
    table = found.result
    if form in (Format.TABLE, Format.MARKDOWN):  # people read it in the reason
        table = replace(table, columns=tuple(row for row in table.columns if row.key != "outside"))
    emit(table, form)
    if not found.has_answer:
        raise typer.Exit(1)


def _load_algebra() -> None:
    """Load NumPy's and SciPy's linear algebra with one thread, unless the user set a number.

    The matrices are small, and threads that wait for each other take several times as long. The libraries
    read the variable when they are loaded, and jobs that a search starts must not see it.
    """
    if not {_THREADS, "OMP_NUM_THREADS"}.isdisjoint(os.environ):
        return
    os.environ[_THREADS] = "1"
    try:
        for name in ("numpy", "scipy.linalg"):
            import_module(name)
    finally:
        del os.environ[_THREADS]


def _running(text: str) -> dict[str, int]:
    pairs = [part.rpartition("=") for part in names_in(text, "--running")]
    if not all(name and count.isdecimal() for name, _, count in pairs):
        raise ScenarioError(f"--running {text}: expected types and numbers, e.g. g3.8xlarge=4,g3.16xlarge=2")
    return {name: int(count) for name, _, count in pairs}


def _counts(text: str, option: str = "--workers") -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ScenarioError(f"{option} {text}: expected whole numbers, e.g. 1,2,4,8") from None
