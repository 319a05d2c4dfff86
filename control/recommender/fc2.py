"""FC²'s rules for clusters with one parameter server: Cost-Opt, Time-Opt, Scala-Opt and its two forms.

For: a worker type and a number of workers within an hourly budget or a cap, from prices and from one worker's
use of the server's network. Not for: predicting time or cost, which the rules do not know (they are NaN).
Source: FC² (Ta, Cluster Computing 22, 2019) §5.2: n = ⌊(C − c_ps) / c_t⌋ for the cheapest or the dearest
type; Scala-Opt n_t = ⌊min(B_ps · p / b_t, (C − c_ps) / c_t)⌋ over types from the dearest down, keeping the
smallest n_t. Of types with equal n_t the source's strict comparison keeps the dearest; Scala-Opt-Cheapest
keeps the cheapest (our reading).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from math import floor, inf, isfinite, isnan, nan

import numpy as np

from control.recommender.plain_search import FirstChoice
from control.recommender.ports import Interval, Observations, Recommendation, Request, failed
from twinbed import ScenarioError

NETWORK_SHARE = 0.95
"""p: share of the server's bandwidth that its workers may use together (the paper's experiments, §7.3)."""

_ROUNDING = 1e-9
"""Added before rounding down, so that a budget for a whole number of workers loses none to binary fractions.
"""


class Rule(StrEnum):
    """FC²'s rules. Scala-Opt-M is Scala-Opt for the one type that the user fixed. Scala-Opt-Cheapest is
    Scala-Opt that takes the cheapest of types with equal numbers of workers."""

    COST = "cost-opt"
    TIME = "time-opt"
    SCALE = "scala-opt"
    SCALE_MANUAL = "scala-opt-m"
    SCALE_CHEAPEST = "scala-opt-cheapest"


@dataclass(frozen=True, slots=True)
class Server:
    """A parameter server's type.

    name: name of the type.
    price_usd_h: price of one, US$/h.
    bandwidth_bps: bandwidth measured on it, bit/s.
    """

    name: str
    price_usd_h: float
    bandwidth_bps: float


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker's type.

    name: name of the type.
    price_usd_h: price of one, US$/h.
    use_bps: bandwidth that one worker uses in a short run with one server, bit/s; NaN if not measured.

    Raises ScenarioError for a price that is not above 0.
    """

    name: str
    price_usd_h: float
    use_bps: float = float("nan")

    def __post_init__(self) -> None:
        if not 0 < self.price_usd_h < inf:
            raise ScenarioError(
                f"worker {self.name}: its price is {self.price_usd_h:g} $/h; expected above 0"
            )


@dataclass(frozen=True, slots=True)
class Plan:
    """The cluster that a rule recommends.

    worker: type of the workers.
    count: number of workers.
    server: type of the one parameter server.
    price_usd_h: price of all, US$/h.
    reason: a sentence made from figures.
    """

    worker: str
    count: int
    server: str
    price_usd_h: float
    reason: str


def choose_server(servers: Sequence[Server], worker_usd_h: float, budget_usd_h: float = inf) -> Server:
    """Return the type with the largest bandwidth (§5.2.1), the cheaper of equals, then the first by name.

    worker_usd_h: price of the cheapest worker, which the budget must pay for, too, US$/h.
    budget_usd_h: bound on the price of server and workers together, US$/h.

    Raises ScenarioError if there is none.
    """
    within = [server for server in servers if server.price_usd_h + worker_usd_h <= budget_usd_h + _ROUNDING]
    if not within:
        raise ScenarioError(
            f"a budget of {budget_usd_h:g} $/h pays for no parameter server and a worker; raise it"
        )
    return min(within, key=lambda server: (-server.bandwidth_bps, server.price_usd_h, server.name))


def plan(
    rule: Rule,
    workers: Sequence[Worker],
    server: Server,
    *,
    budget_usd_h: float = inf,
    cap: int | None = None,
) -> Plan:
    """Return the cluster that `rule` recommends.

    budget_usd_h: bound on the price of server and workers together, US$/h.
    cap: largest number of workers; a budget or a cap is needed.

    Raises ScenarioError without a bound, without types, for a budget below the server and one worker, and if
    Scala-Opt lacks the server's bandwidth or a worker's use of it.
    """
    if cap is None and not isfinite(budget_usd_h):
        raise ScenarioError(f"{rule} needs an hourly budget or a largest number of workers; give one")
    if not workers:
        raise ScenarioError(f"{rule}: no worker type to choose from; allow at least one")
    if rule is Rule.SCALE_MANUAL and len(workers) > 1:
        raise ScenarioError(f"{rule} takes the one type that you fix; {len(workers)} are given")
    by_price = sorted(workers, key=lambda worker: (-worker.price_usd_h, worker.name))
    if rule is Rule.COST:
        return _filled(rule, by_price[-1], server, budget_usd_h, cap)
    if rule is Rule.TIME:
        return _filled(rule, by_price[0], server, budget_usd_h, cap)
    return _scaled(rule, by_price, server, budget_usd_h, cap)


def _paid(worker: Worker, server: Server, budget_usd_h: float, cap: int | None) -> int:
    """Return the number of workers that the budget and the cap allow, possibly 0."""
    paid = inf if cap is None else float(cap)
    if isfinite(budget_usd_h):
        paid = min(paid, (budget_usd_h - server.price_usd_h) / worker.price_usd_h + _ROUNDING)
    return max(0, floor(paid))


def _filled(rule: Rule, worker: Worker, server: Server, budget_usd_h: float, cap: int | None) -> Plan:
    count = _paid(worker, server, budget_usd_h, cap)
    if count < 1:
        raise _too_dear(worker, server, budget_usd_h)
    word = "cheapest" if rule is Rule.COST else "dearest"
    reason = f"{worker.name} is the {word} type ({worker.price_usd_h:g} $/h); the bound allows {count}"
    return _plan(worker, count, server, reason)


def _scaled(
    rule: Rule,
    by_price: Sequence[Worker],
    server: Server,
    budget_usd_h: float,
    cap: int | None,
) -> Plan:
    kept: tuple[int, float, Worker] | None = None
    if not server.bandwidth_bps > 0:
        raise ScenarioError(f"{rule}: the network rate of {server.name} is not known; take another --server")
    for worker in by_price:
        if isnan(worker.use_bps) or worker.use_bps <= 0:
            raise ScenarioError(
                f"{rule}: how much network one {worker.name} uses is not known; run the job there with one "
                "server and one worker and import the run with use_bps, or leave the type out"
            )
        paid = _paid(worker, server, budget_usd_h, cap)
        if paid < 1:
            continue
        served = server.bandwidth_bps * NETWORK_SHARE / worker.use_bps
        count = max(1, min(paid, floor(served + _ROUNDING)))
        cheaper = (
            rule is Rule.SCALE_CHEAPEST and kept is not None and worker.price_usd_h < kept[2].price_usd_h
        )
        if kept is None or count < kept[0] or (count == kept[0] and cheaper):
            kept = (count, served, worker)
    if kept is None:
        raise _too_dear(by_price[-1], server, budget_usd_h)
    count, served, worker = kept
    reason = (
        f"{server.name} serves {served:.1f} × {worker.name} ({worker.use_bps / 1e6:.0f} Mbit/s each), the "
        f"fewest of {len(by_price)} types; {count} taken"
    )
    return _plan(worker, count, server, reason)


def _plan(worker: Worker, count: int, server: Server, reason: str) -> Plan:
    price_usd_h = server.price_usd_h + count * worker.price_usd_h
    return Plan(worker.name, count, server.name, price_usd_h, reason)


def _too_dear(worker: Worker, server: Server, budget_usd_h: float) -> ScenarioError:
    needed = server.price_usd_h + worker.price_usd_h
    return ScenarioError(
        f"a budget of {budget_usd_h:g} $/h is below {server.name} with one {worker.name} ({needed:g} $/h); "
        "raise it"
    )


@dataclass(frozen=True, slots=True)
class Fc2:
    """One of the rules, over candidates that have one parameter server each (or none, at price 0).

    rule: the rule.
    server: the parameter server of every candidate.
    use_bps: bandwidth that one worker of the job uses of a server of its own, bit/s, by type; Scala-Opt needs
        it of every type.
    """

    rule: Rule
    server: Server
    use_bps: Mapping[str, float] = field(default_factory=dict)

    def recommend(self, request: Request) -> list[Recommendation]:
        """Return the rule's one choice; its time and cost are NaN, because the rule predicts neither.

        Raises ScenarioError as `plan` does, and if the choice is not among the candidates.
        """
        row, reason = self._choice(request, request.observed)
        unknown = Interval(float("nan"), float("nan"))
        return [
            Recommendation(
                configuration=request.candidates.configuration(row),
                time_s=float("nan"),
                cost_usd=float("nan"),
                time_interval=unknown,
                cost_interval=unknown,
                price_usd_h=float(request.candidates.price_usd_h[row]),
                reason=reason,
            )
        ]

    def searcher(self, request: Request, seed: int) -> FirstChoice:
        """Return a search that proposes the rule's one choice. `seed` has no effect."""
        del seed
        return FirstChoice(lambda observed: self._choice(request, observed))

    def _choice(self, request: Request, observed: Observations) -> tuple[int, str]:
        left = np.flatnonzero(~failed(request, observed))
        candidates = request.candidates.take(left)
        unit_price = (candidates.price_usd_h - self.server.price_usd_h) / candidates.count
        prices = {str(name): float(price) for name, price in zip(candidates.name, unit_price, strict=True)}
        workers = [Worker(name, price, self.use_bps.get(name, nan)) for name, price in prices.items()]
        cap = None if isfinite(request.budget_usd_h) else int(candidates.count.max())
        chosen = plan(self.rule, workers, self.server, budget_usd_h=request.budget_usd_h, cap=cap)
        rows = (candidates.name == chosen.worker) & (candidates.count <= chosen.count)
        if not rows.any():
            raise ScenarioError(
                f"{self.rule} takes {chosen.count} × {chosen.worker}, and no candidate has so few; allow it"
            )
        row = int((candidates.count * rows).argmax())
        largest = int(candidates.count[row])
        fewer = f"; {largest} is the largest allowed number up to that" if largest < chosen.count else ""
        return int(left[row]), chosen.reason + fewer


COST_OPT, TIME_OPT, SCALA_OPT, SCALA_OPT_M, SCALA_OPT_CHEAPEST = (partial(Fc2, rule) for rule in Rule)
