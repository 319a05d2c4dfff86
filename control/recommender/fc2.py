"""FC²'s four rules for clusters with one parameter server: Cost-Opt, Time-Opt, Scala-Opt and Scala-Opt-M.

For: a worker type and a count within an hourly budget or a cap, from prices and from how much of the server's
network one worker uses. Not for: predicting time or cost (the rules know neither; NaN says so). Source: FC²
(Ta, Cluster Computing 22, 2019) §5.2: n = ⌊(C − c_ps) / c_t⌋ for the cheapest or the dearest type; Scala-Opt
n_t = ⌊min(B_ps · p / b_t, (C − c_ps) / c_t)⌋, types from the dearest down, the smallest n_t is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import floor, inf, isfinite, isnan

from control.recommender.model import Interval, Observations, Proposal, Recommendation, Stop
from control.recommender.ports import Request
from twinbed import ScenarioError

NETWORK_SHARE = 0.95
"""p: how much of the server's bandwidth its workers may use together (the source's experiments, §7.3)."""

_ROUNDING = 1e-9
"""A budget that pays for a whole number of workers must not lose one to binary fractions."""


class Rule(StrEnum):
    """Which of FC²'s rules; Scala-Opt-M is Scala-Opt over the one type that the user fixed."""

    COST = "cost-opt"
    TIME = "time-opt"
    SCALE = "scala-opt"
    SCALE_MANUAL = "scala-opt-m"


@dataclass(frozen=True, slots=True)
class Server:
    """A type that may serve parameters: its price, US$ per hour, and the bandwidth seen on it, bit/s."""

    name: str
    price_usd_h: float
    bandwidth_bps: float


@dataclass(frozen=True, slots=True)
class Worker:
    """A type that may work: its price, US$ per hour, and the bandwidth that one worker uses, bit/s.

    use_bps comes from a short run with one server and one worker; NaN where there was none.
    """

    name: str
    price_usd_h: float
    use_bps: float = float("nan")


@dataclass(frozen=True, slots=True)
class Plan:
    """`count` workers of one type and one server; price_usd_h of all; reason: made from figures."""

    worker: str
    count: int
    server: str
    price_usd_h: float
    reason: str


def choose_server(servers: Sequence[Server], budget_usd_h: float = inf) -> Server:
    """The eligible type with the largest bandwidth within the budget (§5.2.1), the cheaper of equals.

    Raises ScenarioError if there is none.
    """
    within = [each for each in servers if each.price_usd_h < budget_usd_h]
    if not within:
        raise ScenarioError(
            f"a budget of {budget_usd_h:g} $/h pays for no parameter server and a worker; raise it"
        )
    return max(within, key=lambda each: (each.bandwidth_bps, -each.price_usd_h))


def plan(
    rule: Rule,
    workers: Sequence[Worker],
    server: Server,
    *,
    budget_usd_h: float = inf,
    cap: int | None = None,
    network_share: float = NETWORK_SHARE,
) -> Plan:
    """The cluster that `rule` recommends.

    budget_usd_h: for server and workers together; cap: most workers; at least one of the two bounds. Raises
    ScenarioError without a bound, without types, for a budget below the server and one worker, and where
    Scala-Opt lacks a worker's bandwidth use.
    """
    if cap is None and not isfinite(budget_usd_h):
        raise ScenarioError(f"{rule} needs an hourly budget or a largest number of workers; give one")
    if not workers:
        raise ScenarioError(f"{rule}: no worker type to choose from; allow at least one")
    if rule is Rule.SCALE_MANUAL and len(workers) > 1:
        raise ScenarioError(f"{rule} takes the one type that you fix; {len(workers)} are given")
    by_price = sorted(workers, key=lambda each: (-each.price_usd_h, each.name))
    if rule is Rule.COST:
        return _filled(rule, by_price[-1], server, budget_usd_h, cap)
    if rule is Rule.TIME:
        return _filled(rule, by_price[0], server, budget_usd_h, cap)
    return _scaled(rule, by_price, server, budget_usd_h, cap, network_share)


def _paid(worker: Worker, server: Server, budget_usd_h: float, cap: int | None) -> int:
    """How many workers the budget and the cap allow; may be 0."""
    paid = inf if cap is None else float(cap)
    if isfinite(budget_usd_h):
        paid = min(paid, (budget_usd_h - server.price_usd_h) / worker.price_usd_h + _ROUNDING)
    return max(0, floor(paid))


def _filled(rule: Rule, worker: Worker, server: Server, budget_usd_h: float, cap: int | None) -> Plan:
    count = _paid(worker, server, budget_usd_h, cap)
    if count < 1:
        raise _too_dear(worker, server, budget_usd_h)
    word = "cheapest" if rule is Rule.COST else "dearest"
    return Plan(
        worker.name,
        count,
        server.name,
        server.price_usd_h + count * worker.price_usd_h,
        f"{worker.name} is the {word} type ({worker.price_usd_h:g} $/h); the bound allows {count}",
    )


def _scaled(
    rule: Rule,
    by_price: Sequence[Worker],
    server: Server,
    budget_usd_h: float,
    cap: int | None,
    network_share: float,
) -> Plan:
    kept: tuple[int, float, Worker] | None = None
    for worker in by_price:
        if isnan(worker.use_bps) or worker.use_bps <= 0:
            raise ScenarioError(
                f"{rule}: how much network one {worker.name} uses is not known; run the job there with one "
                "server and one worker, or leave the type out"
            )
        paid = _paid(worker, server, budget_usd_h, cap)
        if paid < 1:
            continue
        served = server.bandwidth_bps * network_share / worker.use_bps
        count = max(1, min(paid, floor(served + _ROUNDING)))
        if kept is None or count < kept[0]:
            kept = (count, served, worker)
    if kept is None:
        raise _too_dear(by_price[-1], server, budget_usd_h)
    count, served, worker = kept
    return Plan(
        worker.name,
        count,
        server.name,
        server.price_usd_h + count * worker.price_usd_h,
        f"{server.name} serves {served:.1f} × {worker.name} ({worker.use_bps / 1e6:.0f} Mbit/s each), the "
        f"fewest of {len(by_price)} types; {count} taken",
    )


def _too_dear(worker: Worker, server: Server, budget_usd_h: float) -> ScenarioError:
    needed = server.price_usd_h + worker.price_usd_h
    return ScenarioError(
        f"a budget of {budget_usd_h:g} $/h is below {server.name} with one {worker.name} ({needed:g} $/h); "
        "raise it"
    )


@dataclass(frozen=True, slots=True)
class Fc2:
    """One of the rules over candidates that have one parameter server each (or none, priced at 0).

    use_bps: what one worker of a type uses of the network, by type; cap: most workers (None: the largest
    count among the candidates where there is no hourly budget).
    """

    rule: Rule
    server: Server
    use_bps: Mapping[str, float] = field(default_factory=dict)
    cap: int | None = None

    def recommend(self, request: Request) -> list[Recommendation]:
        """The rule's one choice; time and cost are NaN, for the rule knows neither.

        Raises ScenarioError as `plan` does, and where the choice is not among the candidates.
        """
        row, reason = self._choice(request)
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

    def searcher(self, request: Request, seed: int) -> OneChoice:
        """Tries the choice, and stops; `seed` changes nothing."""
        del seed
        row, reason = self._choice(request)
        return OneChoice(request, row, reason)

    def _choice(self, request: Request) -> tuple[int, str]:
        candidates = request.candidates
        each_usd_h = (candidates.price_usd_h - self.server.price_usd_h) / candidates.count
        prices = {str(name): float(price) for name, price in zip(candidates.name, each_usd_h, strict=True)}
        workers = [
            Worker(name, price, self.use_bps.get(name, float("nan"))) for name, price in prices.items()
        ]
        bounded = isfinite(request.budget_usd_h)
        cap = int(candidates.count.max()) if self.cap is None and not bounded else self.cap
        chosen = plan(self.rule, workers, self.server, budget_usd_h=request.budget_usd_h, cap=cap)
        rows = (candidates.name == chosen.worker) & (candidates.count <= chosen.count)
        if not rows.any():
            raise ScenarioError(
                f"{self.rule} takes {chosen.count} × {chosen.worker}, and no candidate has so few; allow it"
            )
        row = int((candidates.count * rows).argmax())
        return row, chosen.reason


@dataclass(frozen=True, slots=True)
class OneChoice:
    """The search of a rule: its choice is tried once."""

    request: Request
    row: int
    reason: str

    def propose(self, observed: Observations) -> Proposal | Stop:
        """The choice, then the end."""
        if self.row in observed.candidate:
            return Stop(self.row, self.reason)
        return Proposal(self.row, self.reason)
