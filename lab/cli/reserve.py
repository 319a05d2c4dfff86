"""`twinbed reserve`: which users of a job log stay in a cluster that they reserve together.

For: the verb's options, its table and its notes. Not for: the comparison itself (lab.cluster.run.reserving).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.options import (
    Format,
    FormatOption,
    NoProgressOption,
    argument,
    emit,
    option,
    positive,
    share,
    usable,
)
from lab.runs.formats import Column, Result

if TYPE_CHECKING:
    from lab.cluster.run.reserving import Reserved

_COLUMNS = (
    Column("user", "user"), Column("jobs", "jobs", decimals=0), Column("unit_h", "used", "GPU-h", 0),
    Column("wait_h", "mean wait", "h", 2), Column("run_h", "mean run time", "h", 2),
    Column("paid_usd", "pays", "$", 0), Column("alone_usd", "on demand", "$", 0),
    Column("leaves", "leaves in round", decimals=0), Column("why", "why"),
)  # fmt: skip


class Pricing(StrEnum):
    """How users divide the bill: by their GPU-hours, or in equal parts."""

    USAGE = "usage"
    FLAT = "flat"


def reserve(
    log: Annotated[Path, argument("LOG", "Jobs with their queues, which are the users.")],
    machines: Annotated[int, option("N", "Number of machines to reserve.", min=1)],
    price: Annotated[float, option("USD", "Price of a GPU on demand, $/h.", callback=positive)],
    log_format: Annotated[
        str,
        option("NAME", "Format of the log: csv, sacct, kubernetes, swf, philly, surf or alibaba-gpu-2023."),
    ] = "csv",
    gpus: Annotated[int, option("N", "Number of GPUs of a machine.", min=1)] = 8,
    discount: Annotated[str, option("SHARE", "Discount on a reserved GPU, e.g. 40%.")] = "40%",
    pricing: Annotated[
        Pricing, option("usage|flat", "Users pay by their GPU-hours, or all pay the same.")
    ] = Pricing.USAGE,
    tolerance: Annotated[
        float,
        option("X", "Longest mean wait, in mean run times, that a user accepts.", callback=positive),
    ] = 15.0,
    wait_price: Annotated[
        float, option("USD", "What an hour of a job's wait costs its user, $.", callback=usable)
    ] = 0.0,
    reserved: Annotated[
        str | None,
        option("TIME", "Reserved time, e.g. 30d. Default: until the log's last job ends.", "--for"),
    ] = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Say which users stay in a cluster that they reserve together, and on what terms all would.

    A user leaves if the mean wait is too long, or if the same use is cheaper on demand. Those who stay then
    share the bill, and may leave, too. Jobs run first come, first served.
    """
    from control.shared_cluster import Terms
    from lab.ask.times import duration_s
    from lab.cli.progress import Bar
    from lab.cluster.run import reserving

    if wait_price < 0:
        raise typer.BadParameter(f"--wait-price {wait_price:g} is below 0")
    off = share(discount, "--discount", zero=True)
    with Bar(1, wanted=not no_progress, preparing="reading jobs, and trying numbers of machines"):
        jobs = reserving.read(log, log_format)
        horizon_s = reserving.hours(jobs) * 3600 if reserved is None else duration_s(reserved, "--for")
        terms = Terms(machines, gpus, price, off, horizon_s, pricing.value, tolerance, wait_price)
        told = reserving.answer(jobs, terms)
    first, last = told.rounds[0], told.rounds[-1]
    stay = sum(user.leaves is None for user in told.users)
    emit(
        Result(
            _COLUMNS,
            tuple(asdict(user) for user in told.users),
            facts={
                "users": len(told.users),
                "who stay": stay,
                "reserved (h)": round(horizon_s / 3600, 1),
                "bill ($)": round(terms.bill_usd, 2),
                "used": f"{first.utilisation:.0%} of the reserved time",
                "a used GPU-hour ($)": round(first.price_usd_h, 4),
                "in the last round ($)": round(last.price_usd_h, 4),
                "fewest machines": told.machines,
                "least discount with them": _enough(told.discount_then),
            },
            legend="wait, payment and price on demand are those of the first round, in which all are there",
            notes=(*_told(told, machines), *_warnings(first.utilisation, jobs.left_out)),
        ),
        form,
    )


def _told(told: Reserved, machines: int) -> tuple[str, ...]:
    """Return on what terms all users stay."""
    if told.machines is None:
        return ("No number of machines keeps every user's wait within the tolerance.",)
    fewest = (
        f"{told.machines} machines are the fewest with which no user waits too long. With them, all stay if "
        f"the discount is at least {_percent(told.discount_then)}."
    )
    if told.machines >= machines:
        return (fewest,)
    return (
        f"With {machines} machines no user waits too long, and all stay if the discount is at least "
        f"{_percent(told.discount)}.",
        fewest,
    )


def _enough(discount: float) -> float | None:
    """Return a discount that is enough, as a share; None if there is none."""
    return round(max(discount, 0.0), 4) if discount <= 1 else None


def _percent(discount: float) -> str:
    """Return a discount that is enough, in whole percent, rounded up."""
    if discount <= 0:
        return "0%"
    percent = -int(-discount * 100 // 1)
    return f"{percent}%" if percent <= 100 else "more than 100% (so no discount is enough)"


def _warnings(used: float, left_out: int) -> Iterator[str]:
    if used > 1:
        yield (
            "The jobs need more GPU-hours than are reserved. The last ones run after that time, and the "
            "bill does not count that: reserve more machines, or for longer."
        )
    if left_out:
        yield f"Rows without GPUs, without a run time or not ended, left out: {left_out:,}."
