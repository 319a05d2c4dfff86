"""A recommendation from files: the job's, the catalogue's prices, the measurement database.

For: `twinbed recommend` and whoever shows the same question elsewhere. Not for: deciding
(control/recommender), nor for what a provider bills beyond the hour's price (twin.cloud.pricing).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from control.recommender import fc2
from control.recommender.analytic import Analytic
from control.recommender.cherrypick import CherryPick
from control.recommender.ernest import Ernest
from control.recommender.exhaustive import Exhaustive
from control.recommender.model import (
    Candidates,
    Configuration,
    Job,
    Objective,
    Proposal,
    Recommendation,
    Stop,
    candidates,
)
from control.recommender.ports import Recommender, Request
from control.recommender.random_search import RandomSearch
from control.recommender.transfer import Informed, Transfer
from lab.cloud.input.listed import instance_type
from lab.cloud.input.store import Measurements, as_history, trials_of
from lab.cloud.run import expected
from traces.catalogue.catalogue import Catalogue, Listing
from twinbed import ScenarioError

DEFAULT_WORKERS = (1, 2, 3, 4, 6, 8, 12, 16)
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[smhd]?)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Method(StrEnum):
    """The recommenders, by the names of the command line."""

    TRANSFER = "transfer"
    ANALYTIC = "analytic"
    CHERRYPICK = "cherrypick"
    ERNEST = "ernest"
    COST_OPT = "cost-opt"
    TIME_OPT = "time-opt"
    SCALA_OPT = "scala-opt"
    RANDOM = "random"
    EXHAUSTIVE = "exhaustive"


@dataclass(frozen=True, slots=True)
class Market:
    """Where the prices come from: a region, a market, and which types and counts are allowed.

    types: names (empty: all that have a price there); server: type of one parameter server ("": none).
    """

    region: str
    market: str = "on-demand"
    types: Sequence[str] = ()
    workers: Sequence[int] = DEFAULT_WORKERS
    server: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """What a user asks.

    budget_usd and deadline_s bound the job, budget_usd_h the cluster's hour.
    """

    job: Job
    market: Market
    objective: Objective = Objective.COST
    budget_usd: float = np.inf
    budget_usd_h: float = np.inf
    deadline_s: float = np.inf
    method: Method = Method.TRANSFER


@dataclass(frozen=True, slots=True)
class Answer:
    """The ranking, what to try next, and on what both stand: sentences for the user.

    prices: the listings that every estimate was made with, by type.
    """

    ranking: tuple[Recommendation, ...]
    next: Proposal | Stop
    next_configuration: Configuration
    next_price_usd_h: float
    prices: Mapping[str, Listing]
    notes: tuple[str, ...]

    @property
    def stopped(self) -> bool:
        """Whether no further trial pays: `next` is then the configuration to take."""
        return isinstance(self.next, Stop)


def seconds(text: str) -> float:
    """`6h`, `90m`, `1.5d` or plain seconds. Raises ScenarioError for anything else and for zero."""
    found = _DURATION.fullmatch(text.strip())
    value = float(found["number"]) * _SECONDS[found["unit"]] if found else 0.0
    if value <= 0:
        raise ScenarioError(f"{text!r} is no duration; write 6h, 90m, 1.5d or seconds")
    return value


def priced(catalogue: Catalogue, market: Market) -> tuple[Candidates, Mapping[str, Listing]]:
    """Every allowed type × count at the catalogue's newest prices, and the listings that were used.

    Raises ScenarioError for counts below 1, TraceError for a type, region or market without a price.
    """
    if not market.workers or min(market.workers) < 1:
        raise ScenarioError("the numbers of workers must be 1 or more; give some, e.g. 1,2,4,8")
    names = market.types or sorted(catalogue.types(market.region, market.market))
    wanted = {*names, *([market.server] if market.server else [])}
    used = {name: catalogue.price(name, market.region, market.market) for name in sorted(wanted)}
    types = {name: instance_type(listing) for name, listing in used.items()}
    prices = {name: listing.price_usd_h for name, listing in used.items()}
    rows = [
        Configuration(name, count, None, 1 if market.server else 0, market.server)
        for name in names
        for count in sorted(set(market.workers))
    ]
    return candidates(types, prices, rows), used


def answer(question: Question, catalogue: Catalogue, measurements: Measurements, most: int = 10) -> Answer:
    """The first `most` of the ranking, the next trial, and what they stand on.

    Raises ScenarioError and TraceError as recommenders, catalogue and database do.
    """
    among, used = priced(catalogue, question.market)
    runs = measurements.runs()
    others = [run for run in runs if run.job != question.job.name]
    history = as_history(others)
    request = Request(
        job=question.job,
        candidates=among,
        objective=question.objective,
        budget_usd=question.budget_usd,
        budget_usd_h=question.budget_usd_h,
        deadline_s=question.deadline_s,
        history=history,
        observed=trials_of(question.job.name, runs, among),
    )
    chosen = _informed(question, request, catalogue, used) or recommender(question, used)
    search = chosen.searcher(request, seed=0)
    step = search.propose(request.observed)
    # Learning from past jobs is what takes time: the search has done it already.
    if isinstance(search, Informed):
        ranking = search.ranking(request.observed, most)
    else:
        ranking = chosen.recommend(request)[:most]
    row = step.candidate if isinstance(step, Proposal) else step.best
    return Answer(
        ranking=tuple(ranking),
        next=step,
        next_configuration=among.configuration(row),
        next_price_usd_h=float(among.price_usd_h[row]),
        prices=used,
        notes=_notes(question, request, len({run.job for run in others}), isinstance(chosen, Analytic), used),
    )


def _informed(
    question: Question, request: Request, catalogue: Catalogue, used: Mapping[str, Listing]
) -> Analytic | None:
    """The analytic model, where it is asked for, or where the local run is all that is known of the job."""
    if question.method not in (Method.ANALYTIC, Method.TRANSFER):
        return None
    job = question.job
    if question.method is Method.ANALYTIC and job.local_run is None:
        raise ScenarioError(
            f"job {job.name}: no local run; make one with twinbed profile, or choose another method"
        )
    started = max(catalogue.billing(row.provider).startup_s for row in used.values())
    rates = {name: row.network_bps for name, row in used.items()}
    expected_s = expected.job_s(job, request.candidates, started, rates)
    if question.method is Method.ANALYTIC:
        return Analytic(expected_s)
    alone = not request.observed.candidate.size and not (request.history and request.history.jobs)
    return Analytic(expected_s) if alone and np.isfinite(expected_s).all() else None


def recommender(question: Question, used: Mapping[str, Listing]) -> Recommender:
    """The recommender of a method; FC²'s need a parameter server, and Scala-Opt a local run."""
    plain: dict[Method, Recommender] = {
        Method.TRANSFER: Transfer(),
        Method.CHERRYPICK: CherryPick(),
        Method.ERNEST: Ernest(),
        Method.RANDOM: RandomSearch(),
        Method.EXHAUSTIVE: Exhaustive(),
    }
    if question.method in plain:
        return plain[question.method]
    name = question.market.server
    if not name:
        raise ScenarioError(f"{question.method} is for clusters with a parameter server; name its type")
    listing = used[name]
    server = fc2.Server(name, listing.price_usd_h, listing.network_bps)
    rule = fc2.Rule(question.method.value)
    use = _network_use(question.job)
    return fc2.Fc2(rule, server, {} if use is None else dict.fromkeys(used, use))


def _network_use(job: Job) -> float | None:
    """What one process of the local run moves, bit/s; None without a local run."""
    run = job.local_run
    if run is None:
        return None
    moved = np.maximum(run.net_in_bytes, run.net_out_bytes).mean()
    return float(moved) / run.interval_s * 8


def _notes(
    question: Question, request: Request, own_jobs: int, analytic: bool, used: Mapping[str, Listing]
) -> tuple[str, ...]:
    notes = [f"Known: {own_jobs} other jobs of yours, {len(request.observed)} trials of this job."]
    if question.job.local_run is None:
        notes.append(
            "The job has no local run: how long it takes is not known before the first trial, and the "
            "intervals are wider. twinbed profile makes one."
        )
    elif not np.isfinite(question.job.samples):
        notes.append("The job's file states no samples: its local run says how it computes, not how much.")
    if analytic:
        notes.append(
            "Times are the analytic model's: the local run's CPU time per sample on a type's vCPUs, and the "
            "exchange of gradients over its network. A vCPU there may be half or twice as fast as a core "
            "here: the intervals say so, and one trial tells."
        )
    elif not own_jobs:
        notes.append(
            "Without past jobs of yours the ranking's shape stands on laws of scaling alone; add yours with "
            "twinbed measurements import."
        )
    dates = sorted({listing.as_of.isoformat() for listing in used.values()})
    spread = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    notes.append(
        f"Prices: {question.market.market}, {question.market.region}, US$, catalogue rows of {spread}; "
        "instances only, without disks and management fees."
    )
    return tuple(notes)
