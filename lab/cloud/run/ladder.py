"""What a job would have cost at every step of the ladder of cross-cloud strategies, at known prices.

For: `twinbed prices ladder` and the study of it. Not for: choosing (control/market/ladder.py), playing
(twin/cloud/ladder.py) or keeping prices (traces/catalogue).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from control.market.ladder import HOUR_S, LADDER, Job, Offer, admitted, begin, offered, predicted_usd
from control.market.levels import Levels
from lab.runs.formats import Column, Record, Result
from traces import rows
from traces.readers.prices import LEAST_SPOT_SHARE
from twin.cloud.gpus import SPEEDS, relative_speed
from twin.cloud.ladder import Ride, play
from twinbed import ScenarioError

_TYPE = ["provider", "name", "region"]
_JOB_COLUMNS = ("name", "arrival_h", "work_h", "deadline_h")


@dataclass(frozen=True, slots=True)
class Question:
    """Where a job may run.

    home: cloud and region of the first steps; gpu: the reference GPU, by the catalogue's name.
    clouds, regions: names of clouds, and beginnings of names of regions, that are allowed; empty: all.
    market: spot or on-demand.
    speeds: work per second by GPU, the reference being 1; empty: modelled for every known GPU.
    """

    home: tuple[str, str]
    gpu: str
    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    market: str = "spot"
    speeds: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Offers:
    """Offers in order of their names. dropped: series of prices that cannot be believed; newest_s: when each
    cloud's last price began, s since 1970."""

    offers: tuple[Offer, ...]
    dropped: int
    newest_s: Mapping[str, float]

    def names(self, ride: Ride) -> list[str]:
        """Return the offers of a ride, in order."""
        return [self.offers[stay.choice.offer].name for stay in ride.stays]


@dataclass(frozen=True, slots=True)
class Row:
    """A job at one step. every_s: time between choices, NaN where there is one; ride: None if it cannot be
    done, and then `problem` says why."""

    name: str
    every_s: float
    ride: Ride | None
    problem: str = ""
    predicted_usd: float = math.nan

    @property
    def label(self) -> str:
        """The name, and the time between choices if there is more than one."""
        return self.name if math.isnan(self.every_s) else f"{self.name} {self.every_s / HOUR_S:g} h"

    @property
    def cost_usd(self) -> float:
        """What was paid, US$; NaN if nothing ran."""
        return math.nan if self.ride is None else self.ride.cost_usd


@dataclass(frozen=True, slots=True)
class Listed:
    """A job of a collection. arrival_s: after the start, s."""

    name: str
    arrival_s: float
    job: Job


def epoch_s(text: str) -> float:
    """Return the seconds since 1970 of a day or a moment, in UTC. Raises ScenarioError for other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ScenarioError(f"--start {text}: expected a day or a moment, e.g. 2024-02-01") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def matched(prices: pd.DataFrame, text: str) -> str:
    """Return the one GPU of known speed whose name has this text. Raises ScenarioError otherwise."""
    known = sorted({str(name) for name in prices["gpu_model"].unique()} & set(SPEEDS))
    fits = [name for name in known if text.lower() in name.lower()]
    exact = [name for name in fits if name.lower().removeprefix("nvidia ") == text.lower()]
    if len(fits) != 1 and len(exact) != 1:
        said = "more than one GPU" if fits else "no GPU of known speed"
        raise ScenarioError(f"{said} is called {text!r}; there are {', '.join(fits or known)}")
    return (exact or fits)[0]


def place(text: str) -> tuple[str, str]:
    """Return cloud and region of CLOUD/REGION. Raises ScenarioError for other text."""
    cloud, _, region = text.partition("/")
    if not (cloud and region):
        raise ScenarioError(f"--home {text}: expected CLOUD/REGION, e.g. aws/us-east-1")
    return cloud, region


def speeds(prices: pd.DataFrame, reference: str, text: str) -> dict[str, float]:
    """Return the speed by GPU of GPU=FACTOR,…, with the reference at 1. Raises ScenarioError."""
    found = {}
    for part in text.split(","):
        name, _, factor = part.partition("=")
        try:
            found[matched(prices, name.strip())] = float(factor)
        except ValueError:
            raise ScenarioError(f"--speed {part}: expected GPU=FACTOR, e.g. T4=0.4") from None
    return {**found, reference: 1.0}


def collect(prices: pd.DataFrame, asked: Question) -> Offers:
    """Return what is for sale. Raises ScenarioError if nothing is left."""
    reference = relative_speed(asked.gpu)
    speeds = asked.speeds or {gpu: relative_speed(gpu) / reference for gpu in SPEEDS}
    taken = prices[(prices["gpus"] > 0) & prices["gpu_model"].isin(list(speeds))]
    if asked.clouds:
        taken = taken[taken["provider"].isin(asked.clouds)]
    if asked.regions:
        home = (taken["provider"] == asked.home[0]) & (taken["region"] == asked.home[1])
        taken = taken[taken["region"].astype(str).str.startswith(asked.regions) | home]
    on_demand = taken[taken["market"] == "on-demand"].groupby(_TYPE, observed=True)["price_per_h"].max()
    listed: dict[object, float] = {key: float(usd_h) for key, usd_h in on_demand.items()}
    offers, dropped = [], 0
    for key, series in taken[taken["market"] == asked.market].groupby(_TYPE, observed=True):
        cloud, name, region = map(str, key)
        usd_h = series["price_per_h"].to_numpy(np.float64, copy=True)
        if cloud == "gcp" and asked.market == "spot":
            usd_h[usd_h < LEAST_SPOT_SHARE * listed.get(key, 0.0)] = np.nan
            dropped += bool(np.isnan(usd_h).any())
        kept = np.isfinite(usd_h)
        if not kept.any():
            continue
        gpu, gpus = str(series["gpu_model"].iloc[0]), int(series["gpus"].iloc[0])
        t_s = series["as_of"].to_numpy("datetime64[s]").astype(np.float64)
        offers.append(
            Offer(cloud, region, name, gpu, gpus, speeds[gpu], Levels(t_s[kept], usd_h[kept] / gpus))
        )
    if not offers:
        raise ScenarioError("no price fits these clouds, regions, market and GPUs; leave one out")
    newest: dict[str, float] = {}
    for offer in offers:
        newest[offer.cloud] = max(newest.get(offer.cloud, 0.0), float(offer.usd_h.t_s[-1]))
    return Offers(tuple(offers), dropped, newest)


def climb(job: Job, market: Offers, asked: Question, at_s: float, every_s: Sequence[float]) -> list[Row]:
    """Return the job at every step, and at the last one for every time between choices."""
    return [
        _ridden(step, step, job, market, asked, at_s, interval_s)
        for step in LADDER
        for interval_s in (every_s if step == "dynamic" else (math.nan,))
    ]


def _ridden(
    name: str, step: str, job: Job, market: Offers, asked: Question, at_s: float, every_s: float
) -> Row:
    try:
        allowed = offered(step, market.offers, asked.home, asked.gpu, at_s)
        interval_s = None if math.isnan(every_s) else every_s
        return Row(name, every_s, play(job, market.offers, allowed, at_s, interval_s))
    except ScenarioError as error:
        return Row(name, every_s, None, str(error))


def jobs_of(path: Path, like: Job) -> list[Listed]:
    """Return the jobs of a CSV (name, arrival_h, work_h, deadline_h), in order of arrival. deadline_h may be
    empty. Raises ScenarioError, which names file, row and column."""
    names, cells = rows.read(path, ScenarioError)
    if missing := [name for name in _JOB_COLUMNS if name not in names]:
        raise ScenarioError(f"{path}: no column {missing[0]!r}; it needs {', '.join(_JOB_COLUMNS)}")
    made = []
    for number, cell in cells:
        hours = {}
        for column in _JOB_COLUMNS[1:]:
            try:
                hours[column] = float(cell[column]) if cell[column] or column != "deadline_h" else math.inf
            except ValueError:
                raise ScenarioError(
                    f"{path}: row {number}: {column} {cell[column]!r}: expected hours"
                ) from None
        if not (hours["arrival_h"] >= 0 and 0 < hours["work_h"] < math.inf and hours["deadline_h"] > 0):
            raise ScenarioError(f"{path}: row {number}: work and deadline must be above 0, arrival 0 or more")
        work_s, deadline_s = hours["work_h"] * HOUR_S, hours["deadline_h"] * HOUR_S
        job = replace(like, work_s=work_s, deadline_s=deadline_s)
        made.append(Listed(cell["name"], hours["arrival_h"] * HOUR_S, job))
    return sorted(made, key=lambda listed: (listed.arrival_s, listed.name))


def collection(
    listed: Sequence[Listed], market: Offers, asked: Question, at_s: float, every_s: float, budget_usd: float
) -> list[Row]:
    """Return every job at the last step, those that the budget refuses without a ride.

    A job's predicted cost is that of where it starts, held to its end at the prices of its arrival.
    """
    predicted, problems = [], []
    for one in listed:
        try:
            begins_s = at_s + one.arrival_s
            allowed = offered("dynamic", market.offers, asked.home, asked.gpu, begins_s)
            choice = begin(one.job, market.offers, allowed, begins_s, every_s)
            predicted.append(float(predicted_usd(one.job, market.offers, begins_s)[choice.offer]))
            problems.append("")
        except ScenarioError as error:
            predicted.append(math.inf)
            problems.append(str(error))
    fits = admitted(predicted, budget_usd) if budget_usd < math.inf else [usd < math.inf for usd in predicted]
    answer = []
    for one, usd, problem, may in zip(listed, predicted, problems, fits, strict=True):
        if may:
            row = _ridden(one.name, "dynamic", one.job, market, asked, at_s + one.arrival_s, every_s)
            answer.append(replace(row, predicted_usd=usd))
        else:
            refused = problem or f"refused: {usd:.2f} $ do not fit into the rest of the budget"
            answer.append(Row(one.name, every_s, None, refused, math.nan if problem else usd))
    return answer


_ROW = (
    Column("cost_usd", "cost", "$", 2),
    Column("saving", "saves", "1", 1, percent=True),
    Column("ends_h", "ends after", "h", 1),
    Column("moves", "moves"),
    Column("offer", "starts on"),
    Column("why", "why"),
)
_LADDER_COLUMNS = (Column("step", "step"), Column("every_h", "chosen every", "h", 1), *_ROW)
_JOBS_COLUMNS = (Column("step", "job"), Column("predicted_usd", "predicted", "$", 2), _ROW[0], *_ROW[2:])
_MOVES_COLUMNS = (
    Column("step", "step"),
    Column("at", "from"),
    Column("offer", "offer"),
    Column("hours", "held", "h", 1),
    Column("cost_usd", "cost", "$", 2),
    Column("held_usd", "before", "$", 3),
    Column("new_usd", "now", "$", 3),
    Column("saves_usd", "saves", "$", 2),
    Column("costs_usd", "move", "$", 2),
    Column("why", "why"),
)


def table(answer: Sequence[Row], market: Offers, asked: Question, *, moves: bool, jobs: bool) -> Result:
    """Return the answer as a table. moves: a line for every stay; jobs: the rows are a collection."""
    first = answer[0].cost_usd
    records: list[Record] = []
    for row in answer:
        every_h = row.every_s / HOUR_S
        if moves and row.ride is not None:
            records += [{"step": row.label, **stay} for stay in _stays(row.ride, market)]
        elif not moves:
            records.append({"step": row.name, "every_h": every_h, **_record(row, first, market)})
    columns = _MOVES_COLUMNS if moves else _JOBS_COLUMNS if jobs else _LADDER_COLUMNS
    facts: dict[str, str | float] = {"home": "/".join(asked.home), "offers": len(market.offers)}
    if jobs:
        facts["paid"] = f"{sum(row.cost_usd for row in answer if row.ride):.2f} $"
    legend = (
        "before, now: price of an hour of work there and here; saves: until the next choice; move: what the "
        "move costs"
    )
    notes = tuple(_notes(answer, market, asked))
    return Result(columns, tuple(records), facts=facts, legend=legend if moves else "", notes=notes)


def _record(row: Row, first: float, market: Offers) -> dict[str, str | float | int | None]:
    if row.ride is None:
        return {"why": row.problem, "predicted_usd": row.predicted_usd}
    stays = row.ride.stays
    reasons = list(dict.fromkeys(stay.choice.reason for stay in stays))
    return {
        "cost_usd": row.cost_usd,
        "predicted_usd": row.predicted_usd,
        "saving": 1 - row.cost_usd / first,
        "ends_h": row.ride.span_s / HOUR_S,
        "moves": row.ride.moves,
        "offer": market.offers[stays[0].choice.offer].name,
        "why": "; then ".join(reasons),
    }


def _stays(ride: Ride, market: Offers) -> list[dict[str, str | float]]:
    return [
        {
            "at": f"{datetime.fromtimestamp(stay.begin_s, UTC):%Y-%m-%d %H:%M}",
            "offer": name,
            "hours": (stay.end_s - stay.begin_s) / HOUR_S,
            "cost_usd": stay.usd + stay.moving_usd,
            "held_usd": stay.choice.held_usd,
            "new_usd": stay.choice.new_usd,
            "saves_usd": stay.choice.saves_usd if number else math.nan,
            "costs_usd": stay.choice.costs_usd if number else math.nan,
            "why": stay.choice.reason,
        }
        for number, (stay, name) in enumerate(zip(ride.stays, market.names(ride), strict=True))
    ]


def _notes(answer: Sequence[Row], market: Offers, asked: Question) -> list[str]:
    notes = ["Machines are never taken away here, and others use the other GPUs of a larger machine."]
    if asked.speeds is None:
        notes.append(
            "Speeds are modelled: the geometric mean of peak and memory bandwidth, not your job's. "
            "--speed GPU=FACTOR,… takes yours."
        )
    if market.dropped:
        notes.append(
            f"Prices below {LEAST_SPOT_SHARE:.0%} of on demand were left out in {market.dropped} series of "
            "gcp: they seem to lack the GPU."
        )
    ends: dict[str, float] = {}
    for row in answer:
        for stay in () if row.ride is None else row.ride.stays:
            cloud = market.offers[stay.choice.offer].cloud
            ends[cloud] = max(ends.get(cloud, 0.0), stay.end_s)
    notes += [
        f"The last price of {cloud} is of {datetime.fromtimestamp(newest_s, UTC):%Y-%m-%d}; it was held "
        "beyond."
        for cloud, newest_s in market.newest_s.items()
        if ends.get(cloud, 0.0) > newest_s + 86_400
    ]
    return notes
