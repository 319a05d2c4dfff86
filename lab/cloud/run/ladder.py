"""What a job would have cost at every step of the ladder of cross-cloud strategies, at known prices.

For: `twinbed prices ladder` and the study of it. Not for: choosing (control/market/ladder.py), playing
(twin/cloud/ladder.py) or keeping prices (traces/catalogue).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from control.market.ladder import HOUR_S, LADDER, Job, Offer, admitted, offered, predicted_usd
from control.market.levels import Levels
from lab.runs.formats import Column, Record, Result
from traces.readers import table as table_file
from traces.readers.prices import LEAST_SPOT_SHARE
from twin.cloud.gpus import SPEEDS, relative_speed
from twin.cloud.ladder import Ride, play
from twinbed import ScenarioError, TraceError
from twinbed.text import nearest

_TYPE = ["provider", "name", "region"]


@dataclass(frozen=True, slots=True)
class LadderQuestion:
    """The offers that a job may use.

    home: cloud and region of the first steps.
    gpu: the reference GPU, by the catalogue's name.
    where: beginnings of CLOUD/REGION that are allowed beside home.
    market: spot or on-demand.
    speeds: work per second by GPU, the reference being 1; None: modelled for every known GPU.
    """

    home: tuple[str, str]
    gpu: str
    where: tuple[str, ...] = ("",)
    market: str = "spot"
    speeds: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Offers:
    """Offers in order of their names, and the number of series that were left out.

    dropped: with prices that cannot be believed. unsold: of types that their region does not sell.
    """

    offers: tuple[Offer, ...]
    dropped: int
    unsold: int


@dataclass(frozen=True, slots=True)
class Row:
    """A job at one step of the ladder.

    ride: None if the job cannot be done; `problem` then has the reason.
    predicted_usd: its cost on the first offer at the first prices, US$.
    """

    label: str
    ride: Ride | None
    problem: str = ""
    predicted_usd: float = math.nan

    @property
    def cost_usd(self) -> float:
        """The cost, US$; NaN if the job did not run."""
        return math.nan if self.ride is None else self.ride.cost_usd


def epoch_s(text: str) -> float:
    """Return the seconds since 1970 of a day or a moment, in UTC. Raises ScenarioError for other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ScenarioError(f"--start {text}: expected a day or a moment, e.g. 2024-02-01") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def matched(prices: pd.DataFrame, text: str, option: str) -> str:
    """Return the one GPU of known speed whose name has this text. Raises ScenarioError otherwise. option: the
    option and its value, for the message."""
    known = sorted({str(name) for name in prices["gpu_model"].unique()} & set(SPEEDS))
    fits = [name for name in known if text.lower() in name.lower()]
    exact = [name for name in fits if name.lower().removeprefix("nvidia ") == text.lower()]
    if len(fits) != 1 and len(exact) != 1:
        said = "several GPUs have" if fits else "no GPU of known speed has"
        raise ScenarioError(f"{option}: {said} this in the name; give one of {', '.join(fits or known)}")
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
        name, _, text = part.partition("=")
        with suppress(ValueError):
            if 0 < (factor := float(text)) < math.inf:
                found[matched(prices, name.strip(), f"--speed {part}")] = factor
                continue
        raise ScenarioError(f"--speed {part}: expected GPU=FACTOR above 0, e.g. T4=0.4")
    if (own := found.setdefault(reference, 1.0)) != 1:
        raise ScenarioError(
            f"--speed: {reference} is the reference, so its factor is 1, not {own:g}; divide all by it"
        )
    return found


def collect(prices: pd.DataFrame, asked: LadderQuestion) -> Offers:
    """Return the offers. Raises ScenarioError if there is none."""
    markets = sorted(map(str, prices["market"].unique()))
    if asked.market not in markets:
        raise ScenarioError(f"--market {asked.market}: the prices are {', '.join(markets)}; give one")
    reference = relative_speed(asked.gpu)
    speeds = asked.speeds or {gpu: relative_speed(gpu) / reference for gpu in SPEEDS}
    home = "/".join(asked.home)
    taken = prices[(prices["gpus"] > 0) & prices["gpu_model"].isin(list(speeds))]
    places = taken["provider"].astype(str) + "/" + taken["region"].astype(str)
    taken = taken[places.str.startswith(asked.where) | (places == home)]
    known = prices[["provider", "region"]].drop_duplicates()
    everywhere = known["provider"].astype(str) + "/" + known["region"].astype(str)
    if len(taken) and home not in set(everywhere):
        near = nearest(home, sorted(set(everywhere)), "see twinbed prices list")
        raise ScenarioError(f"--home {home}: no price is of that place; {near}")
    for begin in asked.where:
        if len(taken) and not everywhere.str.startswith(begin).any():
            raise ScenarioError(f"--where {begin}: no CLOUD/REGION begins so; see twinbed prices list")
    on_demand = taken[taken["market"] == "on-demand"].groupby(_TYPE, observed=True)["price_per_h"].max()
    listed: dict[object, float] = {key: float(usd_h) for key, usd_h in on_demand.items()}
    offers, dropped, unsold = [], 0, 0
    for key, series in taken[taken["market"] == asked.market].groupby(_TYPE, observed=True):
        cloud, name, region = map(str, key)
        if not series["sold"].iloc[-1]:
            unsold += 1
            continue
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
    return Offers(tuple(offers), dropped, unsold)


def climb(
    job: Job, market: Offers, asked: LadderQuestion, at_s: float, every_s: Sequence[float]
) -> list[Row]:
    """Return the job at every step, and at the last one for every time between choices."""
    *once, last = LADDER
    swept = [(f"{last} {step_s / HOUR_S:g} h", last, step_s) for step_s in every_s]
    asks = [*((step, step, None) for step in once), *swept]
    return [_ridden(label, step, job, market, asked, at_s, step_s) for label, step, step_s in asks]


def _ridden(
    label: str, step: str, job: Job, market: Offers, asked: LadderQuestion, at_s: float, every_s: float | None
) -> Row:
    try:
        allowed = offered(step, market.offers, asked.home, asked.gpu, at_s)
        ride = play(job, market.offers, allowed, at_s, every_s)
    except ScenarioError as error:
        return Row(label, None, str(error))
    predicted = predicted_usd(job, market.offers, at_s)[ride.stays[0].choice.offer]
    return Row(label, ride, predicted_usd=float(predicted))


def jobs_of(path: Path, like: Job) -> list[tuple[str, float, Job]]:
    """Return name, arrival after the start, s, and job of every row of a CSV, in order of arrival. A job
    without a deadline_h has that of `like`. Raises TraceError, which names file, line and column."""
    numbers = ("arrival_h", "work_h", "deadline_h")
    if unknown := [name for name in table_file.header(path) if name not in ("name", *numbers)]:
        raise TraceError(f"{path}: unknown column {unknown[0]!r}; columns are name, {', '.join(numbers)}")
    frame = table_file.read_known(path, ("name", *numbers), numbers[:2], name="str")
    table_file.refuse(path, frame["name"], (frame["name"].str.strip() == "").to_numpy(), "a name")
    for column, least in (("arrival_h", -1e-9), ("work_h", 0.0), ("deadline_h", 0.0)):
        low = (frame[column] <= least).to_numpy()
        table_file.refuse(path, frame[column].astype("str"), low, "hours, and not so few")
    frame = frame.fillna({"deadline_h": like.deadline_s / HOUR_S}).sort_values(
        ["arrival_h", "name"], kind="stable"
    )
    hours = frame[list(numbers)].to_numpy(np.float64).tolist()
    return [
        (str(name), arrival * HOUR_S, replace(like, work_s=work * HOUR_S, deadline_s=deadline * HOUR_S))
        for name, (arrival, work, deadline) in zip(frame["name"], hours, strict=True)
    ]


def collection(
    jobs: Sequence[tuple[str, float, Job]], market: Offers, asked: LadderQuestion, at_s: float,
    every_s: float, budget_usd: float,
) -> list[Row]:  # fmt: skip
    """Return every job at the last step; those that the budget refuses have no ride."""
    made = [
        _ridden(name, "dynamic", job, market, asked, at_s + after_s, every_s) for name, after_s, job in jobs
    ]
    costs = [math.inf if row.ride is None else row.predicted_usd for row in made]
    refused = "refused: its predicted cost does not fit into the rest of the budget"
    return [
        row if may or row.problem else replace(row, ride=None, problem=refused)
        for row, may in zip(made, admitted(costs, budget_usd), strict=True)
    ]


_ROW = (
    Column("cost_usd", "cost", "$", 2),
    Column("saving", "saves", "1", 1, percent=True),
    Column("ends_h", "ends after", "h", 1),
    Column("moves", "moves", decimals=0),
    Column("offer", "starts on"),
    Column("why", "why"),
)
_STEPS = (Column("step", "step"), *_ROW)
_JOBS = (Column("step", "job"), Column("predicted_usd", "predicted", "$", 2), _ROW[0], *_ROW[2:])
_STAYS = (
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
_LEGEND = "before, now: price of an hour of work there and here; saves: until the next choice; move: its cost"


def table(answer: Sequence[Row], market: Offers, asked: LadderQuestion, *, moves: bool, jobs: bool) -> Result:
    """Return the answer as a table. moves: a line for every stay; jobs: the rows are a collection."""
    if moves:
        records = [
            stay
            for row in answer
            for stay in (
                _stays(row.label, row.ride, market) if row.ride else [_record(row, math.nan, market)]
            )
        ]
    else:
        records = [_record(row, answer[0].cost_usd, market) for row in answer]
    facts: dict[str, str | float] = {"home": "/".join(asked.home), "offers": len(market.offers)}
    if jobs:
        facts["paid ($)"] = round(sum(row.cost_usd for row in answer if row.ride), 2)
    columns, legend = _STAYS if moves else _JOBS if jobs else _STEPS, _LEGEND if moves else ""
    return Result(columns, tuple(records), facts, legend, tuple(_notes(answer, market, asked)))


def _record(row: Row, first_usd: float, market: Offers) -> Record:
    record: dict[str, str | float] = {"step": row.label, "predicted_usd": row.predicted_usd}
    if row.ride is None:
        return {**record, "why": row.problem}
    stays = row.ride.stays
    return {
        **record,
        "cost_usd": row.cost_usd,
        "saving": 1 - row.cost_usd / first_usd,
        "ends_h": row.ride.span_s / HOUR_S,
        "moves": row.ride.moves,
        "offer": market.offers[stays[0].choice.offer].name,
        "why": "; then ".join(dict.fromkeys(stay.choice.reason for stay in stays)),
    }


def _stays(label: str, ride: Ride, market: Offers) -> list[Record]:
    return [
        {
            "step": label,
            "at": f"{datetime.fromtimestamp(stay.begin_s, UTC):%Y-%m-%d %H:%M}",
            "offer": market.offers[stay.choice.offer].name,
            "hours": (stay.end_s - stay.begin_s) / HOUR_S,
            "cost_usd": stay.usd + stay.moving_usd,
            "held_usd": stay.choice.held_usd,
            "new_usd": stay.choice.new_usd,
            "saves_usd": stay.choice.saves_usd,
            "costs_usd": stay.choice.costs_usd,
            "why": stay.choice.reason,
        }
        for stay in ride.stays
    ]


def _notes(answer: Sequence[Row], market: Offers, asked: LadderQuestion) -> list[str]:
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
    if market.unsold:
        notes.append(f"{market.unsold} price series of types that their region does not sell: left out.")
    starts_s = [row.ride.stays[0].begin_s for row in answer if row.ride]
    later = sum(offer.usd_h.t_s[0] > max(starts_s, default=math.inf) for offer in market.offers)
    if later:
        notes.append(
            f"{later} {'offer has its' if later == 1 else 'offers have their'} first price after the start: "
            "not taken, at no step."
        )
    for cloud in sorted({offer.cloud for offer in market.offers}):
        mine = [number for number, offer in enumerate(market.offers) if offer.cloud == cloud]
        newest_s = max(float(market.offers[number].usd_h.t_s[-1]) for number in mine)
        stays = [stay for row in answer if row.ride for stay in row.ride.stays if stay.choice.offer in mine]
        if any(stay.end_s > newest_s + 86_400 for stay in stays):
            day = f"{datetime.fromtimestamp(newest_s, UTC):%Y-%m-%d}"
            notes.append(f"The last price of {cloud} is of {day}; it was held beyond.")
    return notes
