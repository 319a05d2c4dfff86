"""A recommendation from files: the job's file, the catalogue's prices and the measurement database.

For: `twinbed recommend`, the Python API and the explorer. Not for: deciding (control/recommender), nor fees
(twin.cloud.pricing). A job costs the price per hour from launch to end, start-up included (billing.toml).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from control.jobs import Candidates, Configuration, Flags, Job, Objective, candidates
from control.recommender import choose, make
from control.recommender.analytic import level
from control.recommender.fc2 import Server, choose_server
from control.recommender.ports import Interval, Proposal, Recommendation, Recommender, Request, Stop
from control.recommender.prior import usable_jobs
from control.recommender.scavenger import to_goal, usual_batches
from control.recommender.transfer import Transfer, TransferSearch
from lab.charts.words import duration
from lab.cloud.input.data_set import ASSUMED, instance_type, rules_of
from lab.cloud.input.shipped_runs import shipped_runs
from lab.cloud.input.store import Measurements, Run, as_history, network_use, of_own_batch, told_of, trials_of
from lab.cloud.run import expected, on_gpus
from lab.cloud.run.batches import lacks_noise, tunes_batch, without_unknown
from lab.cloud.run.table import Facts, note_of_use, notes
from traces.catalogue.catalogue import Catalogue, Listing
from twinbed import ScenarioError
from twinbed.own import find

ANY_SERVER = "auto"
DEFAULT_WORKERS = (1, 2, 3, 4, 6, 8, 12, 16)
MOST_WORKERS = 1_000_000
_LEARN_WIDTHS = ("transfer", "cherrypick", "ernest")
"""Methods that learn from trials on other numbers of workers than those asked about."""
MOST_TYPES = 30
"""Most types that are ranked if the user names none."""
_BURSTABLE = re.compile(r"t\d|Standard_B")
"""Types whose vCPUs run at full speed only for a while (AWS's and Azure's pages on burstable ones)."""
Keep = Callable[[Candidates, Mapping[str, Listing]], Flags]
"""Returns which candidates can be tried, bool[n]. Its arguments are these and the listings by type."""
_OTHER_TYPES = (
    "{} more types have a price there. They are not ranked: they were not measured, or others offer as much "
    "for less. twinbed prices list shows them; --types ranks those that you name."
)


@dataclass(frozen=True, slots=True)
class Market:
    """The market of clusters, and the clusters that are allowed.

    region: the provider's region.
    market: on-demand or spot.
    types: names of the allowed instance types; empty means those of `usual_types`.
    workers: allowed numbers of workers.
    server: type of one parameter server, "" for none; of several types, with commas between them, or of all
        (ANY_SERVER), FC²'s rule takes the one with the largest bandwidth.
    batches: samples per worker and step; empty means the job's own, or those of
        control.recommender.scavenger.usual_batches if a method tunes it.
    """

    region: str
    market: str = "on-demand"
    types: Sequence[str] = ()
    workers: Sequence[int] = DEFAULT_WORKERS
    server: str = ""
    batches: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A user's question.

    job: the job to place.
    market: market of the clusters.
    objective: quantity that the ranking minimises.
    budget_usd, deadline_s: bounds on the job, US$ and s; infinite means no bound.
    budget_usd_h: bound on the cluster's price, US$/h.
    method: name of the recommender, a key of control.recommender.RECOMMENDERS, or a user's own (twinbed.own).
    shipped: whether the jobs of the shipped table of measured runs are past jobs, too.
    """

    job: Job
    market: Market
    objective: Objective = Objective.COST
    budget_usd: float = np.inf
    budget_usd_h: float = np.inf
    deadline_s: float = np.inf
    method: str = "transfer"
    shipped: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """A ranking and the next trial.

    ranking: the ranking, best first.
    next: the next trial, or the end of the search.
    next_configuration: the configuration of `next`.
    next_price_usd_h: its price, US$/h.
    prices: the listings that all estimates used, by type.
    notes: sentences for the user about the basis of the answer.
    sized: whether the time of the job can be predicted; if not, the ranking is by shape, and its figures are
        NaN.
    problem: the bound that no cluster can keep, "" if one can.
    """

    ranking: tuple[Recommendation, ...]
    next: Proposal | Stop
    next_configuration: Configuration
    next_price_usd_h: float
    prices: Mapping[str, Listing]
    notes: tuple[str, ...]
    sized: bool = True
    problem: str = ""

    @property
    def next_step(self) -> str:
        """The next step in a sentence: a further trial, the cluster to take, or a local run."""
        if not self.sized:
            return (
                "Next: twinbed profile JOB.yaml, with `samples` in the file, shows the time of the job. "
                f"Or run it on {self.next_configuration} and add the run with twinbed measurements import."
            )
        verb = "Take" if isinstance(self.next, Stop) else "Try next"
        price = f"{self.next_price_usd_h:.3f} $/h"
        return f"{verb}: {self.next_configuration} at {price} ({self.next.reason})."


def priced(
    catalogue: Catalogue, market: Market, base: int | None = None, tried: Sequence[Run] = ()
) -> tuple[Candidates, Mapping[str, Listing], Flags]:
    """Return every allowed type × count at the catalogue's newest prices, the listings that were used, and
    which candidates are allowed, bool[n].

    base: the job's batch. A cluster of another batch is left out if a step of it has fewer samples than a
    step of the job's batch on the fewest workers. tried: trials of the job; their numbers of workers of an
    allowed type are candidates, too, so that the trials teach. Raises ScenarioError for counts and batches
    below 1, TraceError for a type, region or market without a price.
    """
    if not market.workers or min(market.workers) < 1 or max(market.workers) > MOST_WORKERS:
        raise ScenarioError(
            f"the numbers of workers must be 1 or more, up to {MOST_WORKERS:,}; give some, e.g. 1,2,4,8"
        )
    if min(market.batches, default=1) < 1:
        raise ScenarioError("batch sizes must be 1 or more; give some, e.g. 16,32,64")
    least = min(market.workers) * (base or 1)
    listed = catalogue.types(market.region, market.market)
    names = tuple(dict.fromkeys(market.types)) or sorted(listed)
    wanted = sorted({*names, *([market.server] if market.server else [])})
    used = {n: listed.get(n) or catalogue.price(n, market.region, market.market) for n in wanted}
    types = {name: instance_type(listing) for name, listing in used.items()}
    prices = {name: listing.price_usd_h for name, listing in used.items()}
    batches: Sequence[int | None] = sorted(set(market.batches)) or [None]
    rows = [
        Configuration(name, count, batch, 1 if market.server else 0, market.server)
        for name in names
        for count in sorted(set(market.workers))
        for batch in batches
        if batch is None or batch * count >= least
    ]
    asked, servers = len(rows), 1 if market.server else 0
    mine = bool(market.batches), servers, market.server
    rows += [
        Configuration(run.instance, run.workers, run.batch, servers, market.server)
        for run in tried
        if run.instance in names and (run.batch is not None, run.servers, run.server_instance) == mine
    ]
    rows = list(dict.fromkeys(rows))
    return candidates(types, prices, rows), used, np.arange(len(rows)) < asked


def usual_types(catalogue: Catalogue, market: Market, measured: Collection[str]) -> tuple[str, ...]:
    """Return the types to rank if the user names none: all types, if few have a price there.

    Otherwise these are the types with measurements. Without any, they are the cheapest types: those without a
    cheaper type of equal vCPUs, memory and GPUs, and without burstable types. Raises TraceError if there is
    no price.
    """
    listed = catalogue.types(market.region, market.market)
    if len(listed) <= MOST_TYPES:
        return tuple(listed)
    if known := tuple(name for name in listed if name in measured):
        return known
    whole = [row for row in listed.values() if row.vcpus >= 1 and not _BURSTABLE.match(row.name)]
    kept: list[Listing] = []
    for row in sorted(whole, key=lambda row: (row.price_usd_h, row.name)):
        if len(kept) < MOST_TYPES and not any(_covers(other, row) for other in kept):
            kept.append(row)
    return tuple(sorted(row.name for row in kept))


def _covers(first: Listing, second: Listing) -> bool:
    gpus = not second.gpus or (first.gpu_model == second.gpu_model and first.gpus >= second.gpus)
    return first.vcpus >= second.vcpus and first.memory_gib >= second.memory_gib and gpus


def with_server(catalogue: Catalogue, market: Market, budget_usd_h: float) -> Market:
    """Return the market with one type of parameter server, or none, chosen by FC²'s rule.

    Raises ScenarioError for a budget below every server with one worker, and for all types without a budget;
    TraceError for a type without a price.
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
    types = [listed.get(name) or catalogue.price(name, market.region, market.market) for name in names]
    if unknown := [listing.name for listing in types if not listing.network_bps > 0]:
        raise ScenarioError(
            f"--server: the network rate of {unknown[0]} is not in the catalogue; leave it out"
        )
    workers = [
        (listed.get(name) or catalogue.price(name, market.region, market.market)).price_usd_h
        for name in market.types or listed
    ]
    servers = [Server(listing.name, listing.price_usd_h, listing.network_bps) for listing in types]
    return replace(market, server=choose_server(servers, min(workers), budget_usd_h).name)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question with all data, before the recommender is called.

    question: the question, with the types and the server of its market chosen.
    request: request to the recommender; its history includes the shipped jobs where they count.
    chosen: the recommender.
    used: the listings that all estimates use, by type.
    notes: sentences about the basis of the answer.
    sized: as Answer.sized.
    """

    question: Question
    request: Request
    chosen: Recommender
    used: Mapping[str, Listing]
    notes: tuple[str, ...]
    sized: bool


def prepared(
    question: Question,
    catalogue: Catalogue,
    measurements: Measurements,
    keep: Keep | None = None,
    *,
    noisy: bool = False,
) -> Prepared:
    """Return the question with all data.

    keep: which candidates a search in a closed loop can try; None for a question without trials, which the
    analytic model may answer in place of a method without data. noisy: trials measure the gradients' noise.

    Raises ScenarioError and TraceError as recommenders, catalogue and database do.
    """
    job = question.job
    runs = of_own_batch(job, measurements.runs(), stated=tunes_batch(question))
    market = with_server(catalogue, question.market, question.budget_usd_h)
    left = 0
    if not market.types:
        tried = {run.instance for run in (*runs, *(shipped_runs() if question.shipped else ()))}
        if any(run.job == job.name and run.gpus and run.ok for run in runs):
            listed = catalogue.types(market.region, market.market)
            tried = {name for name, row in listed.items() if on_gpus.known(row)}
        market = replace(market, types=usual_types(catalogue, market, tried))
        left = len(catalogue.types(market.region, market.market)) - len(market.types)
    if tunes_batch(question):
        market = replace(market, batches=market.batches or usual_batches(job))
    question = replace(question, market=market)
    request, used, left_out = _request(question, catalogue, runs, keep)
    among = request.candidates
    server, use_bps, measured = None, {}, {}
    if market.server:
        listing = used[market.server]
        server = Server(market.server, listing.price_usd_h, listing.network_bps)
        measured = network_use(job.name, job.batch, runs)
        use_bps = expected.network_use_by_type(job, among, server.bandwidth_bps) | measured
    on_gpus.check(question.method, request)
    across = on_gpus.method(question.method, request, used)
    if across is not None:
        request = request.among(np.flatnonzero(np.isin(among.name, sorted(across.gpus))))
    request, few = (request, False) if noisy else without_unknown(question, request)
    among = request.candidates
    sized = keep is not None or question.method != "transfer" or _sized(request)
    mine = find(question.method, "recommenders")
    chosen: Recommender
    if mine:
        chosen = mine.make()
    elif across is not None:
        chosen = across
    elif keep is None:
        chosen = choose(question.method, request, server=server, use_bps=use_bps)
    else:
        chosen = make(question.method, server=server, use_bps=use_bps)
    own = request.history
    if isinstance(chosen, Transfer):
        if not sized:
            request = replace(request, deadline_s=np.inf, budget_usd=np.inf)
        if question.shipped:
            past = {run.job for run in runs} | {job.name}
            more = [run for run in shipped_runs() if run.job not in past]
            request = replace(request, history=as_history([*_others(runs, job), *more]))
    unasked = sum(run.job == job.name for run in runs) - len(request.observed)
    tried_on = {run.instance for run in runs if run.job == job.name}
    unsold = sorted(tried_on - catalogue.types(market.region, market.market).keys())
    facts = Facts(sized, left_out, len(own.jobs) if own else 0, type(chosen).__name__, unasked, few, unsold)
    said = (
        *notes(question, request, facts, used),
        *([_OTHER_TYPES.format(left)] if left else []),
        *_assumed({listing.provider for listing in used.values()} - set(catalogue.billings)),
        *note_of_use(chosen, measured, among),
    )
    return Prepared(question, request, chosen, used, said, sized)


def _assumed(providers: Collection[str]) -> list[str]:
    """Return the note on providers without billing rules, if there are any."""
    if not providers:
        return []
    named, start_s = ", ".join(sorted(providers)), ASSUMED.startup_s
    return [f"No billing rules of {named} are known; assumed: by the second, and {start_s:g} s to start."]


def answer(question: Question, catalogue: Catalogue, measurements: Measurements, most: int = 10) -> Answer:
    """Return the first `most` rows of the ranking, the next trial, and the basis of both.

    Raises ScenarioError and TraceError as recommenders, catalogue and database do.
    """
    ready = prepared(question, catalogue, measurements)
    request, chosen, sized = ready.request, ready.chosen, ready.sized
    if tunes_batch(ready.question) and not lacks_noise(ready.question, request):
        request = request.seen(to_goal(request, request.observed))
    search = chosen.searcher(request, seed=0)
    step = search.propose(request.observed)
    # Learning from past jobs is the slow part, and the search has done it already.
    if isinstance(search, TransferSearch):
        ranking = search.ranking(request.observed, most)
    else:
        ranking = chosen.recommend(request)[:most]
    row = step.candidate if isinstance(step, Proposal) else step.best
    return Answer(
        ranking=tuple(ranking if sized else map(by_shape, ranking)),
        next=step,
        next_configuration=request.candidates.configuration(row),
        next_price_usd_h=float(request.candidates.price_usd_h[row]),
        prices=ready.used,
        notes=ready.notes,
        sized=sized,
        problem=_problem(ready.question, ranking) if sized else "",
    )


def _request(
    question: Question, catalogue: Catalogue, runs: Sequence[Run], keep: Keep | None
) -> tuple[Request, Mapping[str, Listing], Sequence[str]]:
    """Return the question with its data, the listings used, and the types of which no run tells."""
    job = question.job
    tried = [run for run in runs if run.job == job.name] if question.method in _LEARN_WIDTHS else []
    among, used, asked = priced(catalogue, question.market, job.batch, tried)
    if keep is not None:
        kept = ~asked
        kept[asked] = keep(among.take(asked), used)
        among, asked = among.take(kept), asked[kept]
    history = as_history(_others(runs, job))
    observed = trials_of(job.name, runs, among)
    left_out: list[str] = []
    gpus, learns = among.gpus > 0, question.method
    told = ~gpus if learns == "analytic" else np.ones_like(gpus)
    if learns == "transfer" or (learns == "cherrypick" and keep is None):
        told = told_of(job, runs, gpus, own=learns == "cherrypick")
    if told.any() and not told.all():
        left_out = sorted(set(among.name[~told].tolist()))
        among, asked = among.take(told), asked[told]
        observed = trials_of(job.name, runs, among)
    expected_s, startup_s = None, 0.0
    if job.local_run is not None:
        startup_s = max(rules_of(catalogue, listing.provider).startup_s for listing in used.values())
        rates = {name: listing.network_bps for name, listing in used.items()}
        expected_s = expected.job_s(job, among, startup_s, rates)
    request = Request(
        job=job,
        candidates=among,
        objective=question.objective,
        budget_usd=question.budget_usd,
        budget_usd_h=question.budget_usd_h,
        deadline_s=question.deadline_s,
        history=history,
        observed=observed,
        expected_s=expected_s,
        startup_s=startup_s,
        asked=None if asked.all() else asked,
    )
    return request, used, left_out


def _others(runs: Sequence[Run], job: Job) -> list[Run]:
    return [run for run in runs if run.job != job.name]


def _sized(request: Request) -> bool:
    """Return whether the job's time follows from a local run, from a finished trial or from the user's past
    jobs.

    The shipped jobs show how jobs scale, not how long this one takes.
    """
    past = request.history is not None and usable_jobs(request.history).size > 0
    return past or bool(request.observed.ok.any()) or level(request) is not None


def by_shape(row: Recommendation) -> Recommendation:
    """Return a row without the figures that cannot be predicted: only its rank and its price are left."""
    unknown = Interval(np.nan, np.nan)
    return replace(
        row,
        time_s=np.nan,
        cost_usd=np.nan,
        time_interval=unknown,
        cost_interval=unknown,
        reason="by shape alone: how jobs scale; how long this one takes is not known",
        outside=False,
    )


def _problem(question: Question, ranking: Sequence[Recommendation]) -> str:
    """Return a sentence if no cluster keeps the bounds, else "". The first row keeps the bounds if any row
    does."""
    first = ranking[0]
    if not (first.time_s > question.deadline_s or first.cost_usd > question.budget_usd):
        return ""
    return f"no cluster is likely to keep {bounds(question)}; the closest come first"


def bounds(question: Question) -> str:
    """Return the bounds on the job in words."""
    wanted = []
    if np.isfinite(question.deadline_s):
        wanted.append(f"the deadline of {duration(question.deadline_s)}")
    if np.isfinite(question.budget_usd):
        wanted.append(f"the budget of {question.budget_usd:g} $")
    return " and ".join(wanted)
