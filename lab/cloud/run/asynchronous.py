"""`twinbed recommend JOB --method spotdnn`: the cheapest unequal spot machines that train to a loss in time.

For: the question, its prices, and its table; also the question again after a revocation, with the machines
that survive. Not for: the search (control.recommender.spotdnn_plans).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite

import numpy as np

from control.recommender import spotdnn_fit
from control.recommender.spotdnn import Goal, Training, WorkerKind, predict
from control.recommender.spotdnn_plans import Provision, provision, provision_again
from lab.cloud.input.asynchronous import AsynchronousInput
from lab.cloud.input.job_file import JobFile
from lab.runs.formats import Column, Record, Result
from traces.catalogue.catalogue import Catalogue
from twinbed import ScenarioError, TraceError

METHOD = "spotdnn"
"""Name of the method that asks this question."""
_UNKNOWN = (0.0, 0.0, 1.0, 1.0, 0.0)
"""γ1 to γ5 of predictions that need no loss curve."""
TAKEOVER_S = 30.0
"""Time that a change of workers adds, s: the source's upper bound (§IV)."""
_COLUMNS = (
    Column("type", "type"), Column("workers", "workers"), Column("start", "to start"),
    Column("market", "market"), Column("price_usd_h", "price of one", "$/h", 3),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SpotdnnQuestion:
    """A question about a cluster for a job with a parameter server.

    loss: loss to reach.
    time_s, budget_usd: bounds, s and US$.
    region: region of the catalogue's prices.
    server: type of the parameter server, "" for none.
    from_loss, running: present loss, and workers that continue, by type.
    """

    loss: float
    time_s: float
    budget_usd: float = inf
    region: str = ""
    server: str = ""
    from_loss: float = inf
    running: Mapping[str, int] = field(default_factory=dict)


def check(loss: float | None, deadline_s: float, others: Mapping[str, object]) -> None:
    """Raise ScenarioError unless a loss and a deadline are given, and none of the other options."""
    if loss is None or not isfinite(deadline_s) or any(others.values()):
        names = ", ".join(f"--{name}" for name in others)
        raise ScenarioError(
            "--method spotdnn needs --loss and --deadline, and takes the rest from the job's file: "
            f"give no {names}"
        )


def result(job: JobFile, question: SpotdnnQuestion, catalogue: Catalogue) -> Result:
    """Return the plan as a table, or its reason without rows. Raises ScenarioError for a job file without the
    section and values out of range, TraceError for a type without a price."""
    asked = job.asynchronous
    if asked is None:
        raise ScenarioError(
            f"job {job.name}: no section `asynchronous`; add the constants that spotDNN needs, as in "
            "docs/how-to/choose-a-configuration.md"
        )
    training = Training(
        asked.push_mb,
        asked.server_mb_s,
        asked.worker_mb_s,
        asked.pcie_mb_s,
        (0.0, 0.0),
        _UNKNOWN,
        unequal=asked.unequal,
    )
    kinds = [_kind(training, name, asked, catalogue, question.region) for name in asked.types]
    training, fitted = _fitted(training, kinds, asked)
    begun = bool(question.running) or isfinite(question.from_loss)
    server_usd_h = catalogue.price(question.server, question.region).price_usd_h if question.server else 0.0
    goal = Goal(
        question.loss,
        question.time_s,
        question.from_loss,
        TAKEOVER_S * begun,
        question.budget_usd,
        server_usd_h,
    )
    if begun:
        answer = provision_again(training, kinds, goal, question.running)
    else:
        answer = provision(training, kinds, goal)
    return _table(answer, goal, kinds, fitted)


def _fitted(
    training: Training, kinds: Sequence[WorkerKind], asked: AsynchronousInput
) -> tuple[Training, dict[str, str]]:
    """Return the training with its constants, and facts on those that were fitted to profiles.

    Raises ScenarioError for profiles that do not determine a constant.
    """
    counts = np.array([[row.workers.get(kind.name, 0) for kind in kinds] for row in asked.profiles])
    facts = {}
    if asked.contention is not None:
        alpha, beta = asked.contention
    else:
        seen = [number for number, row in enumerate(asked.profiles) if row.bandwidth_mb_s]
        speeds = np.array([asked.profiles[number].bandwidth_mb_s for number in seen], np.float64)
        links = {"server_mb_s": training.server_mb_s, "worker_mb_s": training.worker_mb_s}
        alpha, beta, r2 = spotdnn_fit.contention(counts[seen].sum(axis=1), speeds, **links)
        facts["contention"] = _told("contention", (alpha, beta), r2)
    training = replace(training, contention=(alpha, beta))
    if asked.gamma is not None:
        first, slope, offset, even, least = asked.gamma
    else:
        shown = predict(training, kinds, counts, Goal(1.0, 1.0))
        curves = [
            spotdnn_fit.Curve(
                int(shown.workers[number]),
                float(shown.samples[number]),
                float(shown.convergence[number]) * training.unequal,
                *np.array(row.losses, np.float64).T,
            )
            for number, row in enumerate(asked.profiles)
            if row.losses
        ]
        (first, slope, offset, even, least), r2 = spotdnn_fit.loss_curve(curves)
        facts["loss curve"] = _told("gamma", (first, slope, offset, even, least), r2)
    return replace(training, gamma=(first, slope, offset, even, least)), facts


def _told(what: str, values: Sequence[float], r2: float) -> str:
    """Return a fit in words. Raises ScenarioError for a fit that explains too little."""
    said = f"{', '.join(f'{value:.4g}' for value in values)} (R² {r2:.2f})"
    if r2 < spotdnn_fit.LEAST_R2:
        raise ScenarioError(
            f"asynchronous.profiles: they do not determine {what}: {said}; R² must be at least "
            f"{spotdnn_fit.LEAST_R2:g}: measure longer, and other clusters"
        )
    return said


def _kind(
    training: Training, name: str, asked: AsynchronousInput, catalogue: Catalogue, region: str
) -> WorkerKind:
    worker = asked.types[name]
    spot, demand = worker.spot_usd_h, worker.on_demand_usd_h
    if spot is None:
        try:
            spot = catalogue.price(name, region, "spot").price_usd_h
        except TraceError as error:
            raise ScenarioError(f"asynchronous.types.{name}.spot_usd_h: missing, and {error}") from None
    if demand is None:
        try:
            demand = catalogue.price(name, region).price_usd_h
        except TraceError:  # The catalogue knows only a spot price of this type.
            demand = inf
    samples = worker.samples
    if samples is None:
        assert asked.memory is not None
        assert worker.memory_gib is not None
        samples = spotdnn_fit.fitting_samples(worker.gpus, worker.memory_gib, *asked.memory)
    computing_s = spotdnn_fit.compute_s(training, worker.gpus, worker.alone_s)
    if computing_s <= 0:
        raise ScenarioError(
            f"asynchronous.types.{name}.alone_s: {worker.alone_s:g} s is less than its pushes take, "
            f"{worker.alone_s - computing_s:.3g} s; measure it again, or correct push_mb and worker_mb_s"
        )
    return WorkerKind(name, spot, worker.quota, samples, worker.gpus, computing_s, demand)


def _table(answer: Provision, goal: Goal, kinds: list[WorkerKind], fitted: Mapping[str, str]) -> Result:
    plan, facts = answer.plan, {"why": answer.reason, **fitted}
    if plan is None:
        return Result(_COLUMNS, (), facts={"plan": "none", **facts}, nothing="")
    server_usd = plan.time_s / 3600 * goal.server_usd_h
    rows: list[Record] = []
    for kind in kinds:
        started = plan.added.get(kind.name, 0)
        spot = ("spot", kind.price_usd_h)
        new = ("on-demand", kind.on_demand_usd_h) if plan.on_demand else spot
        parts = ((plan.workers.get(kind.name, 0) - started, 0, *spot), (started, started, *new))
        for workers, start, market, price in parts:
            if workers:
                row: Record = {"type": kind.name, "workers": workers, "start": start, "market": market}
                rows.append({**row, "price_usd_h": price})
    facts |= {
        "predicted": f"{plan.time_s:.0f} s of {goal.time_s:.0f} s, {plan.iterations} pushes",
        "cost": f"{plan.cost_usd:.2f} $" + (f", and {server_usd:.2f} $ of the server" if server_usd else ""),
        "not taken": ", ".join(f"{count} {why}" for why, count in answer.rejected.items() if count) or "none",
    }
    return Result(_COLUMNS, tuple(rows), facts=facts)
