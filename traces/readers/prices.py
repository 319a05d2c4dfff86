"""Read histories of cloud prices, and of the number of available spot machines.

For: public tables of prices by type and region, and probing traces. Not for: the catalogue that ships, nor
billing. A table is recognised by its columns. Sources: Cyclenerd's Google Cloud price lists (Apache-2.0, 2022
to 2026), coroot's AWS and Azure prices (Apache-2.0, 2023 to 2024), ec2instances.info (MIT, 2017-11-12),
SkyPilot's spot traces (no licence stated: read, never shipped). Caveats: spot prices of Google's GPU machines
look too low where spot is less than a quarter of on-demand; AWS's do not move after 2024-05-14.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
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
        for row, value in enumerate(frame[form["date"]]):
            try:
                day[row] = np.datetime64(date.fromisoformat(str(value)))
            except ValueError:
                line = frame.index[row]
                raise TraceError(
                    f"{path}: line {line}, column date: {value!r}, expected YYYY-MM-DD"
                ) from None
    prices = {}
    for kind in ("on_demand", "spot"):
        values = frame[form[kind]].to_numpy(np.float64) if kind in form else np.full(rows, np.nan)
        if (values < 0).any():
            line = frame.index[int(np.argmax(values < 0))]
            raise TraceError(f"{path}: line {line}, column {form[kind]}: a price below zero")
        prices[kind] = values
    return PriceChanges(
        frame[form["name"]].to_numpy(dtype=np.object_),
        frame["region"].to_numpy(dtype=np.object_),
        day,
        prices["on_demand"],
        prices["spot"],
    )


def availability(path: Path) -> tuple[Real, Real]:
    """Return float64[n] twice: seconds since the start, and the number of machines available from then on.

    The columns are t_s and available; times must ascend. Raises TraceError, which names file, line and
    column.
    """
    frame = table.read_known(path, ("t_s", "available"), ("t_s", "available"))
    t_s, available = frame["t_s"].to_numpy(np.float64), frame["available"].to_numpy(np.float64)
    table.refuse(path, frame["available"].astype("str"), available < 0, "zero or more machines")
    late = np.flatnonzero(np.diff(t_s) <= 0)
    if late.size:
        line = frame.index[late[0] + 1]
        raise TraceError(
            f"{path}: line {line}, column t_s: {t_s[late[0] + 1]:g} is not after the row before it"
        )
    return t_s, available


def market(path: Path) -> dict[str, tuple[Real, Real, Real]]:
    """Return zone → float64[n] three times: seconds, machines available and spot price from then on, USD per
    hour.

    The columns are t_s, zone, available and spot_usd_h; the times of a zone must ascend. Raises TraceError,
    which names file, line and column.
    """
    numbers = ("t_s", "available", "spot_usd_h")
    frame = table.read_known(path, (*numbers, "zone"), numbers, zone="str")
    for column, wrong in (("available", frame["available"] < 0), ("spot_usd_h", frame["spot_usd_h"] <= 0)):
        if wrong.any():
            line = frame.index[int(np.argmax(wrong))]
            raise TraceError(f"{path}: line {line}, column {column}: {frame[column][line]:g} is too small")
    zones = {}
    for zone, rows in frame.groupby("zone", sort=False):
        late = np.flatnonzero(np.diff(rows["t_s"]) <= 0)
        if late.size:
            line = rows.index[late[0] + 1]
            raise TraceError(
                f"{path}: line {line}, column t_s: {rows['t_s'][line]:g} is not after the row before it"
            )
        zones[str(zone)] = tuple(rows[column].to_numpy(np.float64) for column in numbers)
    return zones  # type: ignore[return-value]
