"""Makes runs on a market on the twin: one job per seed, under one policy after another.

For: `run_all`, from RunSpecs with a market to Runs in the store, and the tables of both backends. Not for:
drawing markets (market.py) or simulating (twin.cloud.market). Every policy meets the same market.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from control.market import make
from control.market.course import LEAVING, STARTING, STATES, WAITING, Market, Outcome
from control.market.ports import CLOSE, IDLE, ON_DEMAND, Policy
from lab.ask.kind import Progress
from lab.ask.policy import PolicySpec
from lab.ask.scenario import RunSpec
from lab.cloud.input.market import CloudInput, cloud_of
from lab.cloud.run.market import Drawn, drawn
from lab.runs.manifest import one_by_one, store_run
from lab.runs.metric import read, summary
from lab.runs.store import Run, RunStore
from twin.cloud.market import simulate
from twinbed.text import counted

HOUR_S = 3600.0


def run_all(
    specs: Sequence[RunSpec], store: RunStore, *, fresh: bool, progress: Progress | None
) -> list[Run]:
    """Return the stored runs of the specs; implements lab.ask.kind.Runner."""
    asked = cloud_of(specs[0].scenario)
    shared = drawn(asked, specs[0].seed, specs[0].calibration)
    least_usd = shared.optimum_usd

    def made(spec: RunSpec, identity: Mapping[str, Any], began: float) -> Run:
        told = None if progress is None else partial(progress, spec.label)
        done = simulate(shared.market, shared.terms, shared.timing, policy(spec.policy, shared), told)
        return stored(spec, store, identity, shared, done, least_usd, {"backend": "twin"}, began)

    return one_by_one(specs, store, shared.sha256, made, fresh=fresh, progress=progress)


def policy(spec: PolicySpec, shared: Drawn) -> Policy:
    """Return a new policy, which may be one of the user's own."""
    return make(spec.name, shared.terms) if spec.own is None else spec.make(shared.terms)


def stored(
    spec: RunSpec,
    store: RunStore,
    identity: Mapping[str, Any],
    shared: Drawn,
    done: Outcome,
    least_usd: float,
    whose: Mapping[str, Any],
    began: float,
) -> Run:
    """Store the result of the job, and return the run. least_usd: the optimum; whose: fields of the manifest,
    with `backend`; began: as in store_run."""
    about_run = {"inputs": list(shared.inputs), "about": about(shared.asked), "notes": [], **whose}
    if np.isfinite(least_usd):
        about_run["optimum_usd"] = least_usd
    values = metrics(shared, done, least_usd)
    made = {"summary": summary(read("lab.cloud"), values), **tables(shared, done)}
    return store_run(spec, store, identity, about_run, values, made, began)


def metrics(shared: Drawn, done: Outcome, least_usd: float) -> dict[str, float]:
    """Return the run's values of the metrics in lab/cloud/metrics.csv."""
    return {
        "cost_usd": done.cost_usd,
        "egress_usd": done.move_usd,
        "probes_usd": done.probes_usd,
        "over_optimum": done.cost_usd / least_usd,
        "finish_h": done.finish_s / HOUR_S,
        "late": float(done.finish_s > shared.terms.deadline_s + CLOSE),
        "lost_h": done.lost_s / HOUR_S,
        "waiting_h": done.in_state_s(WAITING) / HOUR_S,
        "starting_h": done.in_state_s(STARTING, LEAVING) / HOUR_S,
        "spot_h": done.in_state_s(*STATES[1:], spot=True) / HOUR_S,
        "on_demand_h": done.in_state_s(*STATES[1:], spot=False) / HOUR_S,
        "starts": float(done.starts),
        "moves": float(done.moves),
        "region_moves": float(done.regions),
        "revocations": float(done.revocations),
    }


def tables(shared: Drawn, done: Outcome) -> dict[str, pa.Table]:
    """Return the tables `spans` (the job's machines and states), `market` until the deadline or the end, and
    `losses` (notices and losses)."""
    names = {
        IDLE: "",
        ON_DEMAND: "on demand",
        **{number: zone.name for number, zone in enumerate(shared.market.zones)},
    }
    spans = done.spans
    columns = ("begin_s", "end_s", "state", "reason")
    made = {name: [getattr(span, name) for span in spans] for name in columns}
    made["place"] = [names[span.place] for span in spans]
    until_s = max(done.finish_s, shared.terms.deadline_s)
    return {
        "spans": pa.table(made),
        "market": _market(shared.market, until_s),
        "losses": pa.table(
            {
                "at_s": pa.array([at_s for at_s, _, _ in done.events], pa.float64()),
                "what": pa.array([what for _, what, _ in done.events], pa.string()),
                "zone": pa.array([names[zone] for _, _, zone in done.events], pa.string()),
            }
        ),
    }


def _market(market: Market, until_s: float) -> pa.Table:
    """Return a row for every change of a zone: from when to when, machines, and price of one."""
    rows = []
    for zone in market.zones:
        edges = np.union1d(zone.available.t_s, zone.spot_usd_h.t_s)
        moments: list[float] = np.append(edges[edges < until_s], until_s).tolist()
        rows += [
            (
                zone.name,
                zone.region,
                zone.type,
                begin,
                end,
                zone.available.at(begin),
                zone.spot_usd_h.at(begin),
            )
            for begin, end in pairwise(moments)
        ]
    keys = ("zone", "region", "type", "begin_s", "end_s", "available", "spot_usd_h")
    return pa.table(dict(zip(keys, (list(column) for column in zip(*rows, strict=True)), strict=True)))


def about(asked: CloudInput) -> str:
    """Return the job and the market, in one line."""
    job, zones = asked.job, asked.zones
    regions = len({zone.region for zone in zones.values()})
    return (
        f"{job.hours:g} h of work within {job.deadline_hours:g} h; {counted(len(zones), 'zone')} in "
        f"{counted(regions, 'region')}; {asked.on_demand} on demand at "
        f"{asked.types[asked.on_demand].on_demand_usd_h:g} USD/h"
    )
