"""A recommendation from files: the job's file, the catalogue's prices and the measurement database.

For: `twinbed recommend` and whoever asks the same question elsewhere. Not for: deciding
(control/recommender), nor for what a provider bills beyond the price per hour (twin.cloud.pricing).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from control.jobs import Candidates, Configuration, Job, Objective, candidates
from control.recommender import choose
from control.recommender.analytic import Analytic
from control.recommender.fc2 import Fc2, Rule, Server, choose_server
from control.recommender.ports import Proposal, Recommendation, Recommender, Request, Stop
from control.recommender.transfer import TransferSearch
from lab.cloud.input.listed import instance_type
from lab.cloud.input.store import Measurements, as_history, network_use, trials_of
from lab.cloud.run import expected
from traces.catalogue.catalogue import Catalogue, Listing
from twinbed import ScenarioError

ANY_SERVER = "auto"
DEFAULT_WORKERS = (1, 2, 3, 4, 6, 8, 12, 16)
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[smhd]?)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Market:
    """Where clusters are bought, and which are allowed.

    region: the provider's region.
    market: on-demand or spot.
    types: names of the allowed instance types; empty means all that have a price there.
    workers: allowed numbers of workers.
    server: type of one parameter server, "" for none; of several types, with commas between them, or of all
        (ANY_SERVER), FC²'s rule takes the one with the largest bandwidth.
    """

    region: str
    market: str = "on-demand"
    types: Sequence[str] = ()
    workers: Sequence[int] = DEFAULT_WORKERS
    server: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """What a user asks.

    job: the job to place.
    market: where clusters are bought.
    objective: what the ranking minimises.
    budget_usd, deadline_s: bounds on the job, US$ and s; infinite means no bound.
    budget_usd_h: bound on the cluster's price, US$/h.
    method: name of the recommender, a key of control.recommender.RECOMMENDERS.
    """

    job: Job
    market: Market
    objective: Objective = Objective.COST
    budget_usd: float = np.inf
    budget_usd_h: float = np.inf
    deadline_s: float = np.inf
    method: str = "transfer"


@dataclass(frozen=True, slots=True)
class Answer:
    """A ranking and the next trial.

    ranking: the ranking, best first.
    next: the next trial, or the end of the search.
    next_configuration: the configuration of `next`.
    next_price_usd_h: its price, US$/h.
    prices: the listings that all estimates used, by type.
    notes: sentences for the user about what the answer is based on.
    """

    ranking: tuple[Recommendation, ...]
    next: Proposal | Stop
    next_configuration: Configuration
    next_price_usd_h: float
    prices: Mapping[str, Listing]
    notes: tuple[str, ...]

    @property
    def next_step(self) -> str:
        """What to do next, as a sentence: a further trial, or the configuration to take."""
        verb = "Take" if isinstance(self.next, Stop) else "Try next"
        price = f"{self.next_price_usd_h:.3f} $/h"
        return f"{verb}: {self.next_configuration} at {price} ({self.next.reason})."


def seconds(text: str) -> float:
    """Return the seconds of `6h`, `90m`, `1.5d` or a plain number. Raises ScenarioError for other text and
    zero.
    """
    match = _DURATION.fullmatch(text.strip())
    value = float(match["number"]) * _SECONDS[match["unit"]] if match else 0.0
    if value <= 0:
        raise ScenarioError(f"{text!r} is no duration; write 6h, 90m, 1.5d or seconds")
    return value


def priced(catalogue: Catalogue, market: Market) -> tuple[Candidates, Mapping[str, Listing]]:
    """Return every allowed type × count at the catalogue's newest prices, and the listings that were used.

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


def with_server(catalogue: Catalogue, market: Market, budget_usd_h: float) -> Market:
    """Return the market with one type of parameter server, or none: what FC²'s rule takes of several.

    Raises ScenarioError for a budget that pays for none of them with a worker, and for all types without a
    budget, TraceError for a type without a price.
    """
    names = [part.strip() for part in market.server.split(",") if part.strip()]
    if len(names) <= 1 and market.server != ANY_SERVER:
        return market
    listed = catalogue.types(market.region, market.market)
    if market.server == ANY_SERVER:
        if not np.isfinite(budget_usd_h):
            raise ScenarioError(
                "--server auto takes the largest bandwidth that --budget-per-hour pays for; give one, or "
                "name types"
            )
        names = [name for name, listing in listed.items() if listing.network_bps > 0]
    types = [catalogue.price(name, market.region, market.market) for name in names]
    if unknown := [listing.name for listing in types if not listing.network_bps > 0]:
        raise ScenarioError(
            f"--server: the network rate of {unknown[0]} is not in the catalogue; leave it out"
        )
    workers = [
        catalogue.price(name, market.region, market.market).price_usd_h for name in market.types or listed
    ]
    servers = [Server(listing.name, listing.price_usd_h, listing.network_bps) for listing in types]
    return replace(market, server=choose_server(servers, min(workers), budget_usd_h).name)


def answer(question: Question, catalogue: Catalogue, measurements: Measurements, most: int = 10) -> Answer:
    """Return the first `most` rows of the ranking, the next trial, and what they are based on.

    Raises ScenarioError and TraceError as recommenders, catalogue and database do.
    """
    job, market = question.job, with_server(catalogue, question.market, question.budget_usd_h)
    question = replace(question, market=market)
    among, used = priced(catalogue, market)
    runs = measurements.runs()
    others = [run for run in runs if run.job != job.name]
    expected_s = None
    if job.local_run is not None:
        startup_s = max(catalogue.billing(listing.provider).startup_s for listing in used.values())
        rates = {name: listing.network_bps for name, listing in used.items()}
        expected_s = expected.job_s(job, among, startup_s, rates)
    request = Request(
        job=job,
        candidates=among,
        objective=question.objective,
        budget_usd=question.budget_usd,
        budget_usd_h=question.budget_usd_h,
        deadline_s=question.deadline_s,
        history=as_history(others),
        observed=trials_of(job.name, runs, among),
        expected_s=expected_s,
    )
    server, use_bps, measured = None, {}, {}
    if market.server:
        listing = used[market.server]
        server = Server(market.server, listing.price_usd_h, listing.network_bps)
        measured = network_use(job.name, job.batch, runs)
        use_bps = modelled_use(job, among, server) | measured
    chosen = choose(question.method, request, server=server, use_bps=use_bps)
    search = chosen.searcher(request, seed=0)
    step = search.propose(request.observed)
    # Learning from past jobs is the slow part, and the search has done it already.
    if isinstance(search, TransferSearch):
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
        notes=(
            *_notes(question, request, len({run.job for run in others}), isinstance(chosen, Analytic), used),
            *_note_of_use(chosen, measured, among),
        ),
    )


def modelled_use(job: Job, among: Candidates, server: Server) -> dict[str, float]:
    """Return by type what the analytic model expects one worker to use of the server's port, bit/s."""
    use_bps = expected.network_use_bps(job, among, server.bandwidth_bps)
    return {str(name): float(use) for name, use in zip(among.name, use_bps, strict=True) if np.isfinite(use)}


def _note_of_use(chosen: Recommender, measured: Mapping[str, float], among: Candidates) -> Iterator[str]:
    """Yield where a rule that needs the network use of the types has it from."""
    if not isinstance(chosen, Fc2) or chosen.rule not in (Rule.SCALE, Rule.SCALE_MANUAL):
        return
    types = sorted({str(name) for name in among.name})
    known = ", ".join(name for name in types if name in measured) or "no type"
    yield (
        f"Network use of one worker: measured on {known}, in runs with one server and one worker. For other "
        "types the analytic model of the local run tells it."
    )


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
        notes.append(
            "The job's file states no samples, so the local run tells how fast the job computes but not how "
            "long it takes."
        )
    if analytic:
        notes.append(
            "Times come from the analytic model: the local run's CPU time per sample on a type's vCPUs, and "
            "the exchange of gradients over its network. A vCPU there may be half or twice as fast as a core "
            "here. The intervals include that, and one trial shows it."
        )
    elif not own_jobs:
        notes.append(
            "Without past jobs of yours the ranking follows from laws of scaling alone; add past jobs with "
            "twinbed measurements import."
        )
    dates = sorted({listing.as_of.isoformat() for listing in used.values()})
    spread = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    notes.append(
        f"Prices: {question.market.market}, {question.market.region}, US$, catalogue rows of {spread}; "
        "instances only, without disks and management fees."
    )
    return tuple(notes)
