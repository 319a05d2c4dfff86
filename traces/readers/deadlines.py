"""Read games of "can't be late": availability and spot price by tick, windows, variants and known costs.

For: comparing policies for deadlines on spot machines. Not for: single probing traces (prices.availability),
nor running policies. The data are a folder of CSV files. Source: Frontier-CS (MIT) with the availability of
SkyPilot's spot traces (Wu et al., NSDI 2024; no licence stated: read, never shipped).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traces.readers import table
from twinbed import TraceError

Real = NDArray[np.float64]
Flags = NDArray[np.bool_]

_HOUR_S = 3600.0
_SETS = {"single_2022": "single_2022.csv.gz", "multi_2023": "multi_2023.csv.gz"}
_COSTS = ("optimum_usd", "greedy_usd", "uniform_progress_usd")
_TERMS = ("job_h", "deadline_h", "restart_overhead_h", "gap_seconds", "ondemand_usd_h")


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant: games on the same terms.

    name: its name. kind: single (one zone per game) or multi (several zones at once).
    data: name of its set of traces.
    windows: name of the family of windows that is judged.
    work_s, deadline_s, restart_s, tick_s: work, deadline, restart time and length of a tick, s.
    on_demand_usd_h: on-demand price, US$/h.
    spot_usd_h: spot price, US$/h; NaN: it changes by tick.
    games: name of a game → its zones.
    only: name of a game → numbers of its judged windows. A game that is missing here has all windows.
    """

    name: str
    kind: str
    data: str
    windows: str
    work_s: float
    deadline_s: float
    restart_s: float
    tick_s: float
    on_demand_usd_h: float
    spot_usd_h: float
    games: Mapping[str, tuple[str, ...]]
    only: Mapping[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class _Series:
    """A zone. first: its first tick. available, spot_usd_h: availability and spot price by tick, US$/h."""

    first: int
    available: Flags
    spot_usd_h: Real


class Games:
    """The data set in `folder`. Raises TraceError, which names file and column, if it cannot be read."""

    def __init__(self, folder: Path) -> None:
        frame = _read(folder / "scenarios.csv", ("scenario", "traces", "windows"))
        zones = dict(zip(frame["scenario"], frame["traces"], strict=True))
        only = dict(zip(frame["scenario"], frame["windows"].astype(str), strict=True))
        frame = _read(
            folder / "variants.csv", ("variant", "kind", "set", "windows", "games", "spot_usd_h"), _TERMS
        )
        self.variants = tuple(_variant(row, zones, only) for row in frame.to_dict("records"))
        frame = _read(folder / "windows.csv", ("set", "judged"), ("window", "start_tick"))
        rows = zip(frame["set"], frame["window"], frame["start_tick"], frame["judged"], strict=True)
        self._windows = [(name, int(number), int(first), str(judged)) for name, number, first, judged in rows]
        frame = _read(folder / "reference.csv", ("variant", "game"), ("window", *_COSTS))
        self.reference = {
            (row["variant"], row["game"], int(row["window"])): np.array([row[cost] for cost in _COSTS])
            for row in frame.to_dict("records")
        }
        """Costs of the optimum, greedy and Uniform Progress, US$, by variant, game and window."""
        self._series = {name: _series(folder / file) for name, file in _SETS.items()}

    def windows(self, variant: Variant, game: str, *, judged: bool) -> tuple[list[int], Flags, Real]:
        """Return numbers of windows, availability bool[n, ticks, zones] and spot prices, US$/h.

        judged: True: the windows by which the variant is judged; False: windows by which no variant is
        judged. They last until the deadline.
        """
        ticks = int(-(-variant.deadline_s // variant.tick_s))
        zones = [self._series[variant.data][zone] for zone in variant.games[game]]
        only = variant.only.get(game)
        numbers, available, price = [], [], []
        for name, number, first, family in self._windows:
            if name != variant.data or family != (variant.windows if judged else ""):
                continue
            if judged and only is not None and number not in only:
                continue
            begins = [first - zone.first for zone in zones]
            placed = [(zone, slice(begin, begin + ticks)) for zone, begin in zip(zones, begins, strict=True)]
            if any(span.start < 0 or span.stop > zone.available.size for zone, span in placed):
                continue
            numbers.append(number)
            available.append(np.column_stack([zone.available[span] for zone, span in placed]))
            price.append(np.column_stack([zone.spot_usd_h[span] for zone, span in placed]))
        spot = np.array(price)
        if np.isfinite(variant.spot_usd_h):
            spot = np.full_like(spot, variant.spot_usd_h)
        return numbers, np.array(available), spot


def _read(path: Path, text: Sequence[str], numbers: Sequence[str] = ()) -> pd.DataFrame:
    return table.read_known(path, (*text, *numbers), numbers, **dict.fromkeys(text, "str"))


def _variant(row: Mapping[Hashable, object], zones: Mapping[str, str], only: Mapping[str, str]) -> Variant:
    names = str(row["games"]).split(";")
    text = str(row["spot_usd_h"])
    hours = [float(str(row[name])) * _HOUR_S for name in ("job_h", "deadline_h", "restart_overhead_h")]
    return Variant(
        name=str(row["variant"]),
        kind=str(row["kind"]),
        data=str(row["set"]),
        windows=str(row["windows"]),
        work_s=hours[0],
        deadline_s=hours[1],
        restart_s=hours[2],
        tick_s=float(str(row["gap_seconds"])),
        on_demand_usd_h=float(str(row["ondemand_usd_h"])),
        spot_usd_h=np.nan if text == "per tick" else float(text),
        games={name: tuple(zones[name].split(";")) if name in zones else (name,) for name in names},
        only={name: frozenset(map(int, only[name].split(";"))) for name in names if name in only},
    )


def _series(path: Path) -> dict[str, _Series]:
    price = ["spot_usd_h"] if "spot_usd_h" in table.header(path) else []
    frame = _read(path, ("trace",), ("tick", "available", *price))
    series = {}
    for name, rows in frame.groupby("trace", sort=True):
        tick = rows["tick"].to_numpy(np.int64)
        if (np.diff(tick) != 1).any():
            raise TraceError(
                f"{path}: column tick: {name} leaves ticks out; every tick is needed once, in order"
            )
        spot_usd_h = rows["spot_usd_h"].to_numpy(np.float64) if price else np.full(tick.size, np.nan)
        series[str(name)] = _Series(int(tick[0]), rows["available"].to_numpy() > 0, spot_usd_h)
    return series
