"""`twinbed recommend`: which cluster trains a job cheapest or fastest, and which one to try next.

For: the verb's options and its table. Not for: the question itself (lab.cloud.run.recommending).
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, emit
from lab.runs.formats import Column, Record, Result
from twinbed import ScenarioError

if TYPE_CHECKING:
    from lab.cloud.run import recommending
    from traces.catalogue.catalogue import Listing

_COLUMNS = (
    Column("rank", "rank"),
    Column("configuration", "configuration"),
    Column("time_h", "time", "h", 2),
    Column("time_low_h", "from", "h", 2),
    Column("time_high_h", "to", "h", 2),
    Column("cost_usd", "cost", "$", 2),
    Column("cost_low_usd", "from", "$", 2),
    Column("cost_high_usd", "to", "$", 2),
    Column("price_usd_h", "price", "$/h", 3),
    Column("reason", "reason"),
)
_METHODS = "transfer, analytic, cherrypick, ernest, cost-opt, time-opt, scala-opt, random, exhaustive"


class By(StrEnum):
    """What the ranking is by."""

    COST = "cost"
    TIME = "time"


def recommend(
    job: Annotated[
        Path,
        typer.Argument(metavar="JOB", help="A job's file, or a shipped job's name.", show_default=False),
    ],
    by: Annotated[By, typer.Option("--by", help="What the ranking is by.")] = By.COST,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="The job's, e.g. 6h or 90m.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="USD", help="For the whole job.")
    ] = None,
    budget_per_hour: Annotated[
        float | None, typer.Option("--budget-per-hour", metavar="USD", help="For the cluster.")
    ] = None,
    region: Annotated[str, typer.Option("--region", help="Whose prices are used.")] = "us-central1",
    market: Annotated[
        str, typer.Option("--market", metavar="on-demand|spot", help="Which prices.")
    ] = "on-demand",
    types: Annotated[
        str | None,
        typer.Option("--types", metavar="A,B,…", help="Instance types. Default: all with a price there."),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option("--workers", metavar="N,N,…", help="Numbers of workers. Default: 1,2,3,4,6,8,12,16."),
    ] = None,
    server: Annotated[
        str, typer.Option("--server", metavar="TYPE", help="Type of one parameter server. Default: none.")
    ] = "",
    method: Annotated[str, typer.Option("--method", metavar="NAME", help=f"One of {_METHODS}.")] = "transfer",
    catalogue: Annotated[
        Path | None,
        typer.Option("--catalogue", metavar="FILE.csv", help="Prices of your own. Default: those that ship."),
    ] = None,
    measurements: Annotated[
        Path | None,
        typer.Option(
            "--measurements",
            metavar="FILE.duckdb",
            help="Past runs. Default: $TWINBED_MEASUREMENTS, else measurements.duckdb in your data folder.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Rows of the ranking.")] = 10,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Rank clusters for a training job by cost or time, with intervals, and say which one to try next.

    Trials that are added with `twinbed measurements import` under the job's name sharpen the answer.
    """
    from control.recommender.model import Objective
    from lab.ask import shipped
    from lab.cli.progress import Bar
    from lab.cloud.input import job_file
    from lab.cloud.input.store import Measurements
    from lab.cloud.run import recommending
    from traces.catalogue.catalogue import load

    if method not in list(recommending.Method):
        raise ScenarioError(f"--method {method}: no such recommender; there are {_METHODS}")
    question = recommending.Question(
        job=job_file.as_job(job_file.load(shipped.path_of("job", job))),
        market=recommending.Market(
            region,
            market,
            _names(types),
            recommending.DEFAULT_WORKERS if workers is None else _counts(workers),
            server,
        ),
        objective=Objective(by.value),
        method=recommending.Method(method),
        budget_usd=float("inf") if budget is None else budget,
        budget_usd_h=float("inf") if budget_per_hour is None else budget_per_hour,
        deadline_s=float("inf") if deadline is None else recommending.seconds(deadline),
    )
    with Bar(1, wanted=not no_progress, preparing="learning from past jobs (a dozen: ten seconds)"):
        found = recommending.answer(question, load(catalogue), Measurements(measurements), most=top)
    emit(_result(found, by), form)


def _result(found: recommending.Answer, by: By) -> Result:
    rows: tuple[Record, ...] = tuple(
        {
            "rank": rank,
            "configuration": str(each.configuration),
            "time_h": each.time_s / 3600,
            "time_low_h": each.time_interval.low / 3600,
            "time_high_h": each.time_interval.high / 3600,
            "cost_usd": each.cost_usd,
            "cost_low_usd": each.cost_interval.low,
            "cost_high_usd": each.cost_interval.high,
            "price_usd_h": each.price_usd_h,
            "reason": each.reason,
        }
        for rank, each in enumerate(found.ranking, start=1)
    )
    verb = "Take" if found.stopped else "Try next"
    step = f"{verb}: {found.next_configuration} at {found.next_price_usd_h:.3f} $/h ({found.next.reason})."
    return Result(
        _COLUMNS,
        rows,
        facts={"ranked by": by.value, "prices": "; ".join(_price(each) for each in found.prices.values())},
        legend="time and cost are medians; from–to holds with 90 %",
        notes=(step, *found.notes),
    )


def _price(listing: Listing) -> str:
    return f"{listing.name} {listing.price_usd_h:g} $/h of {listing.as_of.isoformat()}"


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()


def _counts(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ScenarioError(f"--workers {text}: expected whole numbers, e.g. 1,2,4,8") from None
