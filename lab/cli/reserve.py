"""`twinbed reserve`: which users of a job log stay in a cluster that they reserve together.

For: the verb's options, its table and its notes. Not for: the comparison itself (lab.cluster.run.reserving).
"""

from __future__ import annotations

import math
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
from twinbed.text import counted

if TYPE_CHECKING:
    from lab.cluster.run.reserving import Reserved

_COLUMNS = (
    Column("user", "user"), Column("jobs", "jobs", decimals=0), Column("unit_h", "used", "GPU-h", 0),
    Column("wait_h", "mean wait", "h", 2), Column("run_h", "mean run time", "h", 2),
    Column("paid_usd", "pays", "$", 0), Column("alone_usd", "on demand", "$", 0),
    Column("leaves", "leaves in round", decimals=0), Column("why", "why"),
)  # fmt: skip


_EXACT_USD = 100_000
"""Bills from here on are in whole dollars, which people get with all digits."""
_MOST = 1_000_000
"""Most machines, and GPUs of one."""


class Pricing(StrEnum):
    """How users divide the bill: by their GPU-hours, or in equal parts."""

    USAGE = "usage"
    FLAT = "flat"


def reserve(
    log: Annotated[Path, argument("LOG", "Jobs with their queues, which are the users.")],
    machines: Annotated[int, option("N", "Number of machines to reserve.", min=1, max=_MOST)],
    price: Annotated[float, option("USD", "Price of a GPU on demand, $/h.", callback=positive)],
    log_format: Annotated[
        str,
        option("NAME", "Format of the log: csv, sacct, kubernetes, swf, philly, surf or alibaba-gpu-2023."),
    ] = "csv",
    gpus: Annotated[int, option("N", "Number of GPUs of a machine.", min=1, max=_MOST)] = 8,
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
        option(
            "TIME", "Reserved time, e.g. 30d. Default: until the log's last job ends if none waits.", "--for"
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Say which users would stay in a cluster that they reserve together, and on what terms all would stay.

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
        needed_s = reserving.hours(jobs) * 3600
        horizon_s = needed_s if reserved is None else duration_s(reserved, "--for")
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
                "reserved (h)": horizon_s / 3600,
                "bill ($)": terms.bill_usd if terms.bill_usd < _EXACT_USD else round(terms.bill_usd),
                "used": f"{first.utilisation:,.0%} of the reserved GPU-hours",
                "a used GPU-hour ($)": first.price_usd_h,
                "in the last round ($)": last.price_usd_h,
                "fewest machines": told.machines,
                "least discount with them": _enough(told.discount_then),
            },
            legend="wait, payment and price on demand are those of the first round, in which all are there",
            notes=(
                *_told(told, machines),
                *_warnings(first.utilisation, needed_s > horizon_s, jobs.left_out),
                *(f"{note}." for note in jobs.notes),
            ),
        ),
        form,
    )


def _told(told: Reserved, machines: int) -> tuple[str, ...]:
    """Return on what terms all users stay."""
    if told.machines is None:
        return ("No number of machines keeps every user's wait within the tolerance.",)
    least = counted(told.machines, "machine")
    fewest = f"No user waits too long with {least} or more. With {least} {_condition(told.discount_then)}."
    if told.machines >= machines:
        return (fewest,)
    return (
        f"With {counted(machines, 'machine')} no user waits too long, and {_condition(told.discount)}.",
        fewest,
    )


def _enough(discount: float) -> float | None:
    """Return a discount that is enough, as a share; None if there is none."""
    return round(max(discount, 0.0), 4) if discount <= 1 else None


def _condition(discount: float) -> str:
    """Return which discounts keep all users, in whole percent, rounded up. discount: the least that does."""
    if discount >= 1:
        return "no discount keeps all"
    if discount > 0.99:
        return "all stay only if the discount is above 99%"
    # The last digits of a float are no percent.
    return f"all stay if the discount is at least {math.ceil(round(max(discount, 0.0) * 100, 9))}%"


def _warnings(used: float, ends_later: bool, left_out: int) -> Iterator[str]:
    if used > 1:
        yield (
            "The jobs need more GPU-hours than are reserved. The last ones run after that time, and the "
            "bill does not count that: reserve more machines, or for longer."
        )
    elif ends_later:
        yield (
            "Jobs of the log run after the reserved time. They have the machines then, too, and the bill "
            "does not count that: reserve for longer."
        )
    if left_out:
        yield f"Rows without GPUs, without a run time or not ended, left out: {left_out:,}."
