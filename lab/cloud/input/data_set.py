"""The table of measured jobs as examples for predictors: time and cost of each run on Vertex AI.

For: training and judging predictors on real runs. Not for: measuring. Runs were made on types emulated at a
`scale`; on the type itself, with vCPUs as fast as this machine's cores, a step is shorter by that factor. The
time of an example is the start-up plus the steps for all samples; its cost is the bill of Vertex AI, without
the start-up. Its prior is the analytic model's time from the local run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from control.jobs import Configuration, InstanceType, Job, candidates
from control.predictor.examples import Examples, of_one_job
from lab.cloud.input import job_file
from lab.cloud.run import expected
from traces import rows
from traces.catalogue.catalogue import Catalogue, Listing
from twin.cloud import performance, pricing
from twinbed import ScenarioError

TABLE = Path(__file__).with_name("measured_jobs.csv")
"""The table of measured jobs that ships."""
COLUMNS = (
    "job", "instance", "workers", "batch", "steps", "step_median_s", "step_mean_s", "step_p95_s", "cpu_cores",
    "outcome", "measured_at", "kernel", "cpu", "scale",
)  # fmt: skip
"""Columns of the table of measured jobs."""
ASSUMED = pricing.Rules(startup_s=60.0, startup_billed=True)
"""Rules of a provider that the catalogue has none of: by the second from the start, like those of AWS and
Azure."""
_MANAGED = {"gcp": "vertex"}
"""Provider → the billing rules of its managed training, where these differ from those of its machines."""
_SCALE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?(/[0-9]{1,9})?", re.ASCII)
_MOST = 1e9
"""Most workers, samples per step, and seconds of a step."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A successful run of the table.

    row: number of its row there.
    step_s: mean time of a step on the type itself, s.
    """

    row: int
    job: str
    instance: str
    workers: int
    batch: int
    step_s: float


def load(table: Path, jobs: Path, catalogue: Catalogue, region: str = "us-central1") -> Examples:
    """Return examples of all successful runs in `table`; the jobs' files are in the folder `jobs`.

    Raises ScenarioError naming file and row if something cannot be read, TraceError for a type without a
    price.
    """
    runs = _runs(table)
    names = sorted({run.job for run in runs})
    known = [_job(jobs / f"{name}.yaml") for name in names]
    kinds, prices, rules = _priced(catalogue, region, sorted({run.instance for run in runs}))
    among = candidates(kinds, prices, [Configuration(run.instance, run.workers, run.batch) for run in runs])
    job = np.array([names.index(run.job) for run in runs])
    steps = np.array([known[index].samples for index in job]) / (among.count * among.batch)
    work_s = performance.job_s(steps, np.array([run.step_s for run in runs]))
    expected_s = np.full(len(job), np.nan)
    for index, one_job in enumerate(known):
        of_job = job == index
        expected_s[of_job] = expected.job_s(one_job, among.take(of_job), rules.startup_s)
    cost = pricing.cost_usd(work_s, among.price_usd_h, rules)
    row = np.array([run.row for run in runs])
    time_s = rules.startup_s + work_s
    return Examples(tuple(known), job, among, time_s, cost, expected_s, row, _unbilled_s(rules))


def _priced(
    catalogue: Catalogue, region: str, names: list[str]
) -> tuple[Mapping[str, InstanceType], Mapping[str, float], pricing.Rules]:
    listed = {name: catalogue.price(name, region) for name in names}
    providers = {listing.provider for listing in listed.values()}
    if len(providers) != 1:
        raise ScenarioError(
            f"runs of {len(providers)} providers in one table: {', '.join(sorted(providers))}"
        )
    provider = providers.pop()
    rules = rules_of(catalogue, _MANAGED.get(provider, provider))
    # A type without disks of its own gets the disk that the provider bills for every worker.
    kinds = {
        name: replace(kind, disk_gib=rules.disk_gib) if np.isnan(kind.disk_gib) else kind
        for name, kind in ((name, instance_type(listing)) for name, listing in listed.items())
    }
    prices = {name: float(pricing.node_usd_h(row.price_usd_h, rules)) for name, row in listed.items()}
    return kinds, prices, rules


def rules_of(catalogue: Catalogue, provider: str) -> pricing.Rules:
    """Return the billing rules of a provider or a managed service; ASSUMED where the catalogue has none."""
    if provider not in catalogue.billings:
        return ASSUMED
    billing = catalogue.billing(provider)
    return pricing.Rules(**{rule.name: getattr(billing, rule.name) for rule in fields(pricing.Rules)})


def bill_in_words(catalogue: Catalogue, name: str, region: str) -> str:
    """Return a sentence on the cost of a type whose provider bills managed training otherwise than machines,
    else ""."""
    managed = _MANAGED.get(catalogue.price(name, region).provider, "")
    if managed not in catalogue.billings:
        return ""
    bill = catalogue.billing(managed)
    start = "and the start" if bill.startup_billed else "and not the start"
    return (
        f"Cost as {bill.service} bills it: machines with a fee of {bill.management_fee:.0%} and a disk of "
        f"{bill.disk_gib:g} GiB each, {start}. twinbed recommend counts machines alone, and their start."
    )


def _job(path: Path) -> Job:
    file = job_file.load(path)
    if file.samples is None:
        raise ScenarioError(f"{path}: samples: missing; a job's time and cost follow from it")
    return job_file.as_job(file)


def _runs(table: Path) -> list[_Run]:
    if not table.exists():
        raise ScenarioError(f"{table}: no such table; python -m studies measure makes one (root, an hour)")
    names, cells = rows.read(table, ScenarioError)
    wrong = [f"no column {name!r}" for name in COLUMNS if name not in names]
    wrong += [f"unknown column {name!r}" for name in names if name not in COLUMNS]
    if wrong:
        raise ScenarioError(f"{table}: {wrong[0]}; a table of measured jobs has {', '.join(COLUMNS)}")
    runs = [_run(row, number, table) for number, row in cells if row["outcome"] == "ok"]
    if not runs:
        raise ScenarioError(f"{table}: no successful run; python -m studies measure adds some")
    return runs


def _run(row: Mapping[str, str], number: int, table: Path) -> _Run:
    where = f"{table}: row {number}"
    if blank := [name for name in ("job", "instance") if not row[name].strip()]:
        raise ScenarioError(f"{where}: {blank[0]}: is empty")
    # A fraction with an exponent may have more digits than there is memory.
    if not _SCALE.fullmatch(row["scale"]):
        raise ScenarioError(f"{where}: scale: {row['scale']!r} is not a fraction such as 1/48")
    try:
        scale = float(Fraction(row["scale"]))
        step_s = float(row["step_mean_s"]) * scale
        run = _Run(number, row["job"], row["instance"], int(row["workers"]), int(row["batch"]), step_s)
    except (ValueError, ZeroDivisionError) as error:
        raise ScenarioError(f"{where}: {error}") from None
    if not (0 < run.step_s <= _MOST and 0 < run.workers <= _MOST and 0 < run.batch <= _MOST):
        raise ScenarioError(f"{where}: workers, batch, step_mean_s and scale must be in (0, {_MOST:g}]")
    return run


def one(path: Path, configuration: Configuration, catalogue: Catalogue, region: str) -> Examples:
    """Return one row to predict: the job of a file on a configuration at the catalogue's price.

    Raises as `load`, and ScenarioError if neither the job nor the configuration has a batch size.
    """
    job = _job(path)
    if configuration.batch is None:
        if job.batch is None:
            raise ScenarioError(f"{path}: batch: missing; state one here or with the question")
        configuration = replace(configuration, batch=job.batch)
    kinds, prices, rules = _priced(catalogue, region, [configuration.instance])
    row = candidates(kinds, prices, [configuration])
    return of_one_job(job, row, expected.job_s(job, row, rules.startup_s), _unbilled_s(rules))


def _unbilled_s(rules: pricing.Rules) -> float:
    return 0.0 if rules.startup_billed else rules.startup_s


def instance_type(listing: Listing) -> InstanceType:
    """Return the type of a listing, without its region, market, price and date."""
    return InstanceType(**{column.name: getattr(listing, column.name) for column in fields(InstanceType)})
