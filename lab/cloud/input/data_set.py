"""The table of measured jobs as examples for predictors: what each run takes and costs as a job on Vertex AI.

For: learning and judging on real runs. Not for: measuring (grid.py). A run was slower by its `scale`, so the
step is that many times shorter on the type itself, had its vCPUs this machine's cores. Time is start-up and
the steps of all samples; cost is what Vertex bills for it. Beside it stands what the twin expects without
having seen any cluster: the local run's CPU time per sample, a ring all-reduce over the type's network.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from control.predictor.examples import Examples, of_one_job
from control.recommender.model import Candidates, Configuration, InstanceType, Job, Real, Whole, candidates
from lab.cloud.input import job_file
from lab.cloud.input.listed import instance_type
from lab.cloud.run import expected
from traces.catalogue.catalogue import Catalogue
from twin.cloud import performance, pricing
from twinbed import ScenarioError

TABLE = Path(__file__).with_name("measured_jobs.csv")
"""The table of measured jobs that ships."""
COLUMNS = (
    "job", "instance", "workers", "batch", "steps", "step_median_s", "step_mean_s", "step_p95_s", "cpu_cores",
    "outcome", "measured_at", "kernel", "cpu", "scale",
)  # fmt: skip
"""Columns of the table of measured jobs."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A row of the table that went well."""

    job: str
    instance: str
    workers: int
    batch: int
    step_s: float


def load(table: Path, jobs: Path, catalogue: Catalogue, region: str = "us-central1") -> Examples:
    """Examples of every run in `table` that went well, of jobs whose files are in the folder `jobs`.

    Raises ScenarioError naming the file and row for what cannot be read, TraceError for a type without a
    price.
    """
    runs = _runs(table)
    names = sorted({run.job for run in runs})
    given = [_job(jobs / f"{name}.yaml") for name in names]
    kinds, prices, rules = _priced(catalogue, region, sorted({run.instance for run in runs}))
    rows = candidates(kinds, prices, [Configuration(run.instance, run.workers, run.batch) for run in runs])
    job = np.array([names.index(run.job) for run in runs])
    steps = np.array([given[index].samples for index in job]) / (rows.count * rows.batch)
    time_s = performance.job_s(steps, np.array([run.step_s for run in runs]), rules.startup_s)
    expected_s = _expected_s(given, job, rows, rules.startup_s)
    cost = pricing.cost_usd(time_s, rows.price_usd_h, rules)
    return Examples(tuple(given), job, rows, time_s, cost, expected_s)


def _expected_s(jobs: list[Job], job: Whole, rows: Candidates, startup_s: float) -> Real:
    """Seconds of each row's job by the analytic model; NaN for a job without a local run."""
    found = np.full(len(job), np.nan)
    for index, each in enumerate(jobs):
        here = job == index
        found[here] = expected.job_s(each, rows.take(here), startup_s)
    return found


def _priced(
    catalogue: Catalogue, region: str, names: list[str]
) -> tuple[Mapping[str, InstanceType], Mapping[str, float], pricing.Rules]:
    listed = {name: catalogue.price(name, region) for name in names}
    kinds = {name: instance_type(each) for name, each in listed.items()}
    providers = {each.provider for each in listed.values()}
    if len(providers) != 1:
        raise ScenarioError(
            f"runs of {len(providers)} providers in one table: {', '.join(sorted(providers))}"
        )
    rules = rules_of(catalogue, providers.pop())
    prices = {name: float(pricing.node_usd_h(each.price_usd_h, rules)) for name, each in listed.items()}
    return kinds, prices, rules


def rules_of(catalogue: Catalogue, provider: str) -> pricing.Rules:
    """A provider's billing, in the twin's vocabulary. Raises TraceError for an unknown one."""
    billing = catalogue.billing(provider)
    return pricing.Rules(**{each.name: getattr(billing, each.name) for each in fields(pricing.Rules)})


def _job(path: Path) -> Job:
    given = job_file.load(path)
    if given.samples is None:
        raise ScenarioError(f"{path}: samples: missing; a job's time and cost follow from it")
    return job_file.as_job(given)


def _runs(table: Path) -> list[_Run]:
    if not table.exists():
        raise ScenarioError(
            f"{table}: no such table; python -m studies.cloud.measure makes one (root, an hour)"
        )
    try:
        with table.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if tuple(rows.fieldnames or ()) != COLUMNS:
                raise ScenarioError(f"{table}: other columns than a table of measured jobs has")
            found = [
                _run(row, f"{table}: row {number}")
                for number, row in enumerate(rows, start=2)
                if row["outcome"] == "ok"
            ]
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{table}: cannot be read ({getattr(error, 'strerror', 'not UTF-8')})") from error
    if not found:
        raise ScenarioError(f"{table}: no run that went well; python -m studies.cloud.measure adds some")
    return found


def _run(row: Mapping[str, str], where: str) -> _Run:
    try:
        scale = float(Fraction(row["scale"]))
        step_s = float(row["step_mean_s"]) * scale
        run = _Run(row["job"], row["instance"], int(row["workers"]), int(row["batch"]), step_s)
    except (ValueError, ZeroDivisionError) as error:
        raise ScenarioError(f"{where}: {error}") from None
    if not (run.step_s > 0 and np.isfinite(run.step_s) and run.workers > 0 and run.batch > 0):
        raise ScenarioError(f"{where}: workers, batch, step_mean_s and scale must be more than 0")
    return run


def one(
    path: Path, configuration: Configuration, catalogue: Catalogue, region: str = "us-central1"
) -> Examples:
    """One row to ask about: the job of a file on a configuration at the catalogue's price.

    Raises as `load`; ScenarioError for a job without a batch size where the configuration has none.
    """
    job = _job(path)
    if configuration.batch is None:
        if job.batch is None:
            raise ScenarioError(f"{path}: batch: missing; state one here or with the question")
        configuration = replace(configuration, batch=job.batch)
    kinds, prices, rules = _priced(catalogue, region, [configuration.instance])
    row = candidates(kinds, prices, [configuration])
    return of_one_job(job, row, expected.job_s(job, row, rules.startup_s))
