"""Read histories of cloud prices, and of the number of available spot machines.

For: public tables of prices by type and region, and probing traces. Not for: the catalogue that ships, nor
billing. A table is recognised by its columns. Sources: Cyclenerd's Google Cloud price lists (Apache-2.0, 2022
to 2026), coroot's AWS and Azure prices (Apache-2.0, 2023 to 2024), ec2instances.info (MIT, 2017-11-12),
SkyPilot's spot traces (no licence stated: read, never shipped). Caveats: spot prices of Google's GPU machines
look too low where spot is less than a quarter of on-demand; AWS's do not move after 2024-05-14.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traces.readers import table
from twinbed import TraceError

Real = NDArray[np.float64]
Names = NDArray[np.object_]

LEAST_SPOT_SHARE = 0.25
"""Share of on-demand below which a spot price of a Google machine lacks its GPU's part (see the caveats)."""
FORMS: tuple[dict[str, str], ...] = (
    {"name": "machine_type", "on_demand": "usd_hour", "spot": "usd_hour_spot", "date": "date"},
    {"name": "instance_type", "on_demand": "usd_hour_on_demand_min", "spot": "usd_hour_spot_last"},
    {"name": "instance_type", "spot": "usd_hour_spot", "date": "date"},
    {"name": "instance_type", "on_demand": "usd_hour_linux_on_demand"},
)
"""Columns of each form of table, besides region. The first form whose columns are all present is taken."""


@dataclass(frozen=True, slots=True)
class PriceChanges:
    """n prices. A row holds from its day until the next row of its type and region.

    name: instance type, names[n]
    region: region, names[n]
    day: day from which the price holds, datetime64[D], [n]; NaT if the table has one price only
    on_demand_usd_h, spot_usd_h: prices, USD per hour, float64[n]; NaN if not in the table
    """

    name: Names
    region: Names
    day: NDArray[np.datetime64]
    on_demand_usd_h: Real
    spot_usd_h: Real

    def of(self, name: str, region: str) -> PriceChanges:
        """Return the rows of one type in one region, by day. Raises TraceError if there are none."""
        for noun, value, column in (("type", name, self.name), ("region", region, self.region)):
            if not (column == value).any():
                raise TraceError(f"no {noun} {value!r} in this price history")
        rows = np.flatnonzero((self.name == name) & (self.region == region))
        if not rows.size:
            raise TraceError(f"type {name} has no price in region {region} in this history")
        rows = rows[np.argsort(self.day[rows], kind="stable")]
        return PriceChanges(
            self.name[rows],
            self.region[rows],
            self.day[rows],
            self.on_demand_usd_h[rows],
            self.spot_usd_h[rows],
        )


def read(path: Path) -> PriceChanges:
    """Return a table of prices. Raises TraceError, which names file, line and column."""
    columns = set(table.header(path))
    form = next((form for form in FORMS if {*form.values(), "region"} <= columns), None)
    if form is None:
        raise TraceError(f"{path}: no known price table; expected type, region and a price in USD per hour")
    text = {column: "str" for column in (form["name"], "region", form.get("date")) if column}
    frame = table.read_known(path, [*form.values(), "region"], **text)
    rows = len(frame)
    day = np.full(rows, np.datetime64("NaT"), dtype="datetime64[D]")
    if "date" in form:
        days = pd.to_datetime(frame[form["date"]], format="%Y-%m-%d", errors="coerce")
        table.refuse(path, frame[form["date"]], days.isna().to_numpy(), "YYYY-MM-DD")
        day = days.to_numpy().astype("datetime64[D]")
    prices = {}
    for kind in ("on_demand", "spot"):
        prices[kind] = frame[form[kind]].to_numpy(np.float64) if kind in form else np.full(rows, np.nan)
        if kind in form:
            table.refuse(path, frame[form[kind]].astype("str"), prices[kind] < 0, "a price of zero or above")
    return PriceChanges(
        frame[form["name"]].to_numpy(dtype=np.object_),
        frame["region"].to_numpy(dtype=np.object_),
        day,
        prices["on_demand"],
        prices["spot"],
    )


def availability(path: Path) -> tuple[Real, Real]:
    """Return float64[n] twice: seconds since the start, and the number of machines available from then on.

    The columns are t_s and available alone; times must ascend. Raises TraceError, which names file, line and
    column.
    """
    others = [name for name in table.header(path) if name not in ("t_s", "available")]
    if told := [name for name in others if name in ("zone", "spot_usd_h")]:
        raise TraceError(
            f"{path}: column {told[0]}: give a file for each zone, and prices as options, or take it as a "
            "scenario's cloud.trace"
        )
    if others:
        raise TraceError(f"{path}: unknown column {others[0]!r}; columns are t_s, available")
    frame = table.read_known(path, ("t_s", "available"), ("t_s", "available"))
    t_s, available = frame["t_s"].to_numpy(np.float64), frame["available"].to_numpy(np.float64)
    table.refuse(path, frame["available"].astype("str"), available < 0, "zero or more machines")
    _refuse_late(path, frame["t_s"])
    return t_s, available


def market(path: Path) -> dict[str, tuple[Real, Real, Real]]:
    """Return zone → float64[n] three times: seconds, machines available and spot price from then on, USD per
    hour.

    The columns are t_s, zone, available and spot_usd_h alone; the times of a zone must ascend. Raises
    TraceError, which names file, line and column.
    """
    numbers = ("t_s", "available", "spot_usd_h")
    if others := [name for name in table.header(path) if name not in (*numbers, "zone")]:
        raise TraceError(
            f"{path}: column {others[0]!r} is unknown; leave it out: a market has t_s, zone, available, and "
            "spot_usd_h, which is in USD per hour"
        )
    frame = table.read_known(path, (*numbers, "zone"), numbers, zone="str")
    for column, wrong, expected in (
        ("available", frame["available"] < 0, "zero or more machines"),
        ("spot_usd_h", frame["spot_usd_h"] <= 0, "a price above zero"),
    ):
        table.refuse(path, frame[column].astype("str"), wrong.to_numpy(), expected)
    zones = {}
    for zone, rows in frame.groupby("zone", sort=False):
        _refuse_late(path, rows["t_s"])
        zones[str(zone)] = tuple(rows[column].to_numpy(np.float64) for column in numbers)
    return zones  # type: ignore[return-value]


def _refuse_late(path: Path, t_s: pd.Series[float]) -> None:
    """Raise TraceError for the first time that is not after the row before it."""
    late = np.diff(t_s, prepend=-np.inf) <= 0
    table.refuse(path, t_s.astype("str"), late, "a time after that of the row before")
