"""A recommendation as a table: one row for each cluster of the ranking.

For: `twinbed recommend` and the Python API. Not for: the recommendation (recommending.py).
"""

from __future__ import annotations

from lab.cloud.run.recommending import Answer
from lab.runs.formats import Column, Record, Result
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


def result(answer: Answer, by: str) -> Result:
    """Return the table of an answer. by: cost or time, what it is ranked by."""
    rows: tuple[Record, ...] = tuple(
        {
            "rank": rank,
            "configuration": str(row.configuration),
            "time_h": row.time_s / 3600,
            "time_low_h": row.time_interval.low / 3600,
            "time_high_h": row.time_interval.high / 3600,
            "cost_usd": row.cost_usd,
            "cost_low_usd": row.cost_interval.low,
            "cost_high_usd": row.cost_interval.high,
            "price_usd_h": row.price_usd_h,
            "reason": row.reason,
        }
        for rank, row in enumerate(answer.ranking, start=1)
    )
    return Result(
        _COLUMNS,
        rows,
        facts={
            **({"bounds": answer.problem} if answer.problem else {}),
            "ranked by": by if answer.sized else f"{by}, by shape alone",
            "prices": "; ".join(_price(listing) for listing in answer.prices.values()),
        },
        legend="time and cost are medians; from–to holds with 90 %" if answer.sized else "",
        notes=(answer.next_step, *answer.notes),
    )


def _price(listing: Listing) -> str:
    return f"{listing.name} {listing.price_usd_h:g} $/h of {listing.as_of.isoformat()}"
