"""A recommendation as a table, one row for each cluster of the ranking, and the notes below it.

For: `twinbed recommend` and the Python API. Not for: the recommendation (recommending.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from control.jobs import Candidates
from control.recommender.analytic import contradiction
from control.recommender.fc2 import Fc2, Rule
from control.recommender.ports import Recommendation, Recommender, Request, failed
from control.recommender.scavenger import noise_in_use
from lab.charts.words import significant
from lab.runs.formats import Column, Record, Result
from traces.catalogue.catalogue import Listing
from twinbed.text import counted

if TYPE_CHECKING:
    from lab.cloud.run.recommending import Answer, Question

_COLUMNS = (
    Column("rank", "rank"), Column("configuration", "configuration"), Column("time_h", "time", "h", 2),
    Column("time_low_h", "from", "h", 2), Column("time_high_h", "to", "h", 2),
    Column("cost_usd", "cost", "$", 2), Column("cost_low_usd", "from", "$", 2),
    Column("cost_high_usd", "to", "$", 2), Column("price_usd_h", "price", "$/h", 3),
    Column("in_bounds", "in bounds", percent=True, decimals=0), Column("outside", "outside"),
    Column("reason", "reason"),
)  # fmt: skip


def result(answer: Answer, by: str) -> Result:
    """Return the table of an answer. by: quantity of the ranking, cost or time."""
    bounded = any(row.in_bounds is not None for row in answer.ranking)
    shown = [row.configuration for row in answer.ranking] + [answer.next_configuration]
    types = {name for cluster in shown for name in (cluster.instance, cluster.server_instance)}
    return Result(
        tuple(column for column in _COLUMNS if bounded or column.key != "in_bounds"),
        records(answer.ranking),
        facts={
            **({"bounds": answer.problem} if answer.problem else {}),
            "ranked by": by if answer.sized else f"{by}, by shape alone",
            "prices": "; ".join(_price(row) for name, row in answer.prices.items() if name in types),
        },
        legend="; ".join(
            ["time and cost are medians; from–to holds with 90 %"] * answer.sized
            + ["in bounds: the probability that deadline and budget are kept"] * bounded
        ),
        notes=(answer.next_step, *answer.notes),
    )


def records(ranking: Sequence[Recommendation]) -> tuple[Record, ...]:
    """Return a record per cluster, best first, under the columns' keys; times in h, money in US$."""
    return tuple(
        {
            "rank": rank, "configuration": str(row.configuration), "time_h": row.time_s / 3600,
            "time_low_h": row.time_interval.low / 3600, "time_high_h": row.time_interval.high / 3600,
            "cost_usd": row.cost_usd, "cost_low_usd": row.cost_interval.low,
            "cost_high_usd": row.cost_interval.high, "price_usd_h": row.price_usd_h,
            "in_bounds": row.in_bounds, "outside": row.outside, "reason": row.reason,
        }
        for rank, row in enumerate(ranking, start=1)
    )  # fmt: skip


def _price(listing: Listing) -> str:
    return f"{listing.name} {listing.price_usd_h:g} $/h of {listing.as_of.isoformat()}"


def note_of_use(chosen: Recommender, measured: Mapping[str, float], among: Candidates) -> Iterator[str]:
    """Yield a note on the source of the network use of the types, if the recommender needs it."""
    if not isinstance(chosen, Fc2) or chosen.rule in (Rule.COST, Rule.TIME):
        return
    types = sorted({str(name) for name in among.name})
    known = ", ".join(name for name in types if name in measured) or "no type"
    yield (
        f"Network use of one worker: measured on {known}, in runs with one server and one worker. For other "
        "types the analytic model of the local run estimates it."
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts for the notes.

    sized: as Answer.sized.
    left_out: types about which there is no data.
    own_jobs: number of the user's past jobs.
    method: class of the recommender.
    unasked: number of this job's trials on clusters that are not candidates.
    one_batch: whether clusters of other batches than the job's own are left out.
    unsold: types of this job's trials that have no price.
    """

    sized: bool
    left_out: Sequence[str]
    own_jobs: int
    method: str
    unasked: int = 0
    one_batch: bool = False
    unsold: Sequence[str] = ()


def _contradiction(request: Request) -> Iterator[str]:
    """Yield a note if the trials took far longer or shorter than the local run lets expect."""
    times = contradiction(request)
    if times is not None:
        yield (
            f"Trials took {significant(times, 2)} times as long as the local run lets expect, and a factor "
            "of about three is usual. Check the runs' time_s, in seconds, and the job's samples, over all "
            "epochs. Until then --method transfer does without the local run."
        )


def _one_worker_s_price(request: Request) -> Iterator[str]:
    """Yield a note if trials on several workers were paid at one worker's price, by which they look cheap."""
    trials, among = request.observed, request.candidates
    count, price = (column[trials.candidate] for column in (among.count, among.price_usd_h))
    paid = trials.cost_usd / (trials.time_s / 3600)
    wrong = (count > 1) & (among.servers[trials.candidate] == 0) & np.isclose(paid, price / count, rtol=0.02)
    if wrong.any():
        named = ", ".join(str(among.configuration(row)) for row in dict.fromkeys(trials.candidate[wrong]))
        yield f"Paid at the price of one worker: {named}. price_usd_h is the price of the whole cluster."


def notes(question: Question, request: Request, facts: Facts, used: Mapping[str, Listing]) -> Iterator[str]:
    """Yield notes on the data of the answer, the types left out, and the sources of times and prices."""
    local_run, trials = question.job.local_run, len(request.observed)
    one_job, one_trial = ("" if count == 1 else "s" for count in (facts.own_jobs, trials))
    known = f"Known: {facts.own_jobs} other job{one_job} of yours, {trials} trial{one_trial} of this job."
    yield f"{known} {facts.method} made every row."
    if facts.unasked:
        yield (
            f"{counted(facts.unasked, 'trial')} of this job ran on clusters that this question leaves "
            "out, and told nothing here; --types, --workers and --batches add them."
        )
    if facts.unsold:
        where = f"{question.market.region} has no {question.market.market} price of them"
        yield (
            f"Trials on {', '.join(facts.unsold)} tell nothing: {where}. Correct a misspelt name, ask about "
            "their --region, or add them to your --catalogue."
        )
    yield from _one_worker_s_price(request)
    yield from _contradiction(request)
    if facts.left_out:
        without = "with" if (request.candidates.gpus == 0).all() else "without"
        yield f"Left out, because no run tells of types {without} GPUs: {', '.join(facts.left_out)}."
    among = request.candidates
    if refused := np.flatnonzero(failed(request, request.observed)).tolist():
        named = ", ".join(str(among.configuration(row)) for row in refused)
        yield f"Left out, because every trial there failed: {named}."
    if facts.method == "Transfer":
        jobs = len(request.history.jobs) - facts.own_jobs if request.history else 0
        if jobs:
            yield (
                f"Past experience includes {jobs} shipped jobs, measured on emulated types; "
                "--no-shipped-runs leaves them out."
            )
        elif not facts.own_jobs:
            yield (
                "Without past jobs the ranking follows from laws of scaling alone; add past jobs with "
                "twinbed measurements import."
            )
    if facts.method == "AcrossGpus":
        yield (
            "Only GPUs whose peak speed and memory bandwidth are known are ranked, and no types without "
            "GPUs. Times on other GPUs than those of your trials follow from these two by physics, and hold "
            "within a factor of about three."
        )
    yield "Whether the job fits into a type's memory is not judged: a trial shows it."
    if np.isfinite(question.deadline_s) or np.isfinite(question.budget_usd):
        if facts.method == "Fc2":
            yield f"{question.method} predicts no time, so deadline and budget did not count."
        elif not facts.sized:
            yield "Whether a cluster keeps deadline and budget cannot be told before that."
    if local_run is None and facts.method != "AcrossGpus":
        lacks = "the intervals are wider" if facts.sized else "how long it takes is not known before a trial"
        yield f"The job has no local run: {lacks}. twinbed profile makes one."
    elif not np.isfinite(question.job.samples):
        yield (
            "The job's file states no samples, so the local run shows how fast the job computes but not how "
            "long it takes."
        )
    several = facts.method == "Analytic" and np.unique(request.candidates.batch).size > 1
    if facts.one_batch or (several and np.isnan(noise_in_use(request.observed))):
        yield (
            "Of several batches, only the one nearest the job's own is ranked: how many "
            "more samples another one needs follows from the noise of the gradients, which --method "
            "scavenger --search measures."
        )
    if facts.method == "Analytic":
        rows = request.candidates
        if alone := sorted({*rows.name[(rows.count > 1) & (rows.gpus == 0) & np.isnan(rows.network_bps)]}):
            yield (
                "Several workers of a type are left out where the catalogue has no network rate: "
                f"{', '.join(alone)}."
            )
        yield (
            "Times come from the analytic model: the local run's CPU time per sample on a type's vCPUs, and "
            "the exchange of gradients over its network. A vCPU there may be half or twice as fast as a core "
            "here. The intervals include that, and one trial shows it."
        )
    dates = sorted({listing.as_of.isoformat() for listing in used.values()})
    spread = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    yield (
        f"Prices: {question.market.market}, {question.market.region}, US$, catalogue rows of {spread}; "
        "instances only, without disks and management fees."
    )
