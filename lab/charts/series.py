"""Reduces a run's series to the size of a chart, without losing an extreme value.

For: one container's periods, thinned to a few thousand rows; throttled spans; distributions and shares over
all containers. Not for: drawing (lab.charts.drawing) or figures (lab.containers.metrics). DuckDB reads only
the needed columns and rows of the run's Parquet files.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from control.allocator.model import Reason
from lab.charts import words
from lab.charts.palette import Shown
from lab.runs.store import Run
from twinbed import StoreError

MIB = float(1 << 20)
UNLIMITED_BYTES = (1 << 63) - 1
_ONE = "*, 1 AS periods, up::INT AS up_periods, (throttled AND up)::INT AS throttled_periods"
"""Columns of a series that has a row per period."""

_CDF_POINTS = np.unique(np.concatenate([np.linspace(0, 1, 101), np.linspace(0.9, 1, 51)]))


def periods_in_a_row(run: Run) -> int:
    """Return the number of periods that a row of the run's series covers."""
    workload = run.manifest["workload"]
    interval_s, period_s = float(workload.get("series_interval_s", 0.0)), float(workload["period_s"])
    return max(1, round(interval_s / period_s))


def row(runs: Sequence[Run]) -> str:
    """Return how long the rows of the runs' series are if they are means over several periods, as `5 min`;
    else an empty text."""
    long_s = [periods_in_a_row(run) * run.manifest["workload"]["period_s"] for run in runs]
    coarse = any(periods_in_a_row(run) > 1 for run in runs)
    return words.duration(max(long_s)) if coarse else ""


def of_means(runs: Sequence[Run]) -> str:
    """Return a sentence about the slack of series whose rows are means; else an empty text."""
    if not (long := row(runs)):
        return ""
    return f"Slack is a mean over {long} here; the table's percentiles are of all periods, and further apart."


def stretch(run: Run, stretches: int) -> int:
    """Return the number of periods of each of at most `stretches` equal stretches of whole rows."""
    rows = periods_in_a_row(run)
    return rows * max(1, -(-int(run.manifest["workload"]["periods"]) // (stretches * rows)))


def duration_s(run: Run) -> float:
    """Return the length of the run in simulated seconds."""
    workload = run.manifest["workload"]
    return float(workload["periods"] * workload["period_s"])


def container(run: Run, name: str) -> pd.DataFrame:
    """Return every row of one container's series.

    Columns: at_s (end of the row), usage_cores, quota_cores, demand_cores, memory_mib, limit_mib, throttled,
    up, reason (why the CPU limit has its value), and how many periods there are (periods), and throttled
    (throttled_periods). Limits are NaN where there is none.
    """
    frame = query(
        run,
        """SELECT period, usage_cores, quota_cores, demand_cores, memory_bytes, limit_bytes, throttled, up,
           cpu_reason, periods, throttled_periods FROM periods WHERE container = ? ORDER BY period""",
        [name],
    )
    frame["at_s"] = (frame.pop("period") + 1) * run.manifest["workload"]["period_s"]
    frame["quota_cores"] = frame["quota_cores"].where(np.isfinite(frame["quota_cores"]))
    limit = frame.pop("limit_bytes")
    frame["limit_mib"] = (limit / MIB).where(limit < UNLIMITED_BYTES)
    frame["memory_mib"] = frame.pop("memory_bytes") / MIB
    # A container that is down has neither use nor limit: draw a gap, not a zero.
    measured = ["usage_cores", "quota_cores", "demand_cores", "limit_mib", "memory_mib"]
    frame[measured] = frame[measured].where(frame["up"])
    # The reason of a limit is the reason of its last change, however long ago.
    reason = frame.pop("cpu_reason").to_numpy()
    last = np.maximum.accumulate(np.where(reason != Reason.NONE, np.arange(len(reason)), 0))
    texts = np.array([kind.describe() for kind in Reason])
    frame["reason"] = texts[reason[last]] if len(reason) else np.array([], dtype=str)
    return frame


def thin(frame: pd.DataFrame, columns: list[str], buckets: int) -> pd.DataFrame:
    """Return the rows of `frame` that a chart of `buckets` pixels can show.

    Kept are, in each of `buckets` equal stretches, the first row and the smallest and largest value of each
    of `columns`; the rows where `up` changes; and the last row.
    """
    length = len(frame)
    if length <= buckets * (1 + 2 * len(columns)):
        return frame
    edges = np.linspace(0, length, buckets + 1).astype(np.int64)
    turns = np.flatnonzero(np.diff(frame["up"].to_numpy(bool)))
    keep = [edges[:-1], turns, turns + 1, np.array([length - 1])]
    for column in columns:
        values = frame[column].to_numpy(np.float64)
        keep += [_smallest(values, edges), _smallest(-values, edges)]
    return frame.iloc[np.unique(np.concatenate(keep))]


def with_begins(frame: pd.DataFrame, period_s: float) -> pd.DataFrame:
    """Return the rows with one more at the begin of each stretch of them in which the container is up.

    A row holds up to its `at_s`: a chart of steps between rows leaves out the first of a stretch.
    """
    up, at_s = frame["up"].to_numpy(bool), frame["at_s"].to_numpy(np.float64)
    first = np.flatnonzero(up & ~np.concatenate([[False], up[:-1]]))
    begins = frame.iloc[first]
    before_s = np.where(first > 0, at_s[first - 1], -np.inf)
    begin_s = np.maximum(begins["at_s"] - begins["periods"] * period_s, before_s)
    return pd.concat(
        [begins.assign(at_s=begin_s).set_index(first - 0.5), frame.reset_index(drop=True)]
    ).sort_index(ignore_index=True)


def _smallest(values: NDArray[np.float64], edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of the smallest value in each stretch. NaN counts as infinite."""
    filled = np.where(np.isnan(values), np.inf, values)
    return np.array([start + int(np.argmin(filled[start:end])) for start, end in pairwise(edges)], np.int64)


def throttled_spans(frame: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return at most `most` stretches in which the container was throttled.

    Columns: from_s, to_s, throttled (number of throttled periods), periods (number of periods in the
    stretch). With up to `most` rows, neighbouring throttled rows form one stretch. With more, the time
    is divided into equal stretches, so that one throttled period in ten does not look like ten.
    """
    at_s, hit = frame["at_s"].to_numpy(), frame["throttled"].to_numpy(bool)
    of, hits = frame["periods"].to_numpy(np.int64), frame["throttled_periods"].to_numpy(np.int64)
    length = len(hit)
    if length == 0 or not hit.any():
        return pd.DataFrame(columns=["from_s", "to_s", "throttled", "periods"])
    if length <= most:
        turns = np.flatnonzero(np.diff(hit)) + 1
        starts = np.concatenate([[0], turns])
    else:
        starts = np.arange(0, length, -(-length // most))
    ends = np.append(starts[1:], length)
    period_s = at_s[1] - at_s[0] if length > 1 else at_s[0]
    spans = pd.DataFrame(
        {
            "from_s": at_s[starts] - period_s,
            "to_s": at_s[ends - 1],
            "throttled": np.add.reduceat(hits, starts),
            "periods": np.add.reduceat(of, starts),
        }
    )
    return spans[spans["throttled"] > 0].reset_index(drop=True)


def slack_distribution(run: Run, quantity: str) -> pd.DataFrame:
    """Return the CDF of `cpu` (cores) or `memory` (MiB) slack over all rows of the series. Columns: slack,
    share.

    Slack is counted as in lab.containers.metrics: while the container is up, where there is a limit, and for
    memory only where the trace has memory. The frame is empty if nothing is counted.
    """
    if quantity == "cpu":
        value, counted = "quota_cores - usage_cores", "isfinite(quota_cores)"
    else:
        value, counted = f"(limit_bytes - memory_bytes) / {MIB}", f"limit_bytes < {UNLIMITED_BYTES}"
        known = run.frame("containers", ["container", "memory_slack_p50_mib"])
        names = known.loc[known["memory_slack_p50_mib"].notna(), "container"].tolist()
        counted += f" AND container IN ({_texts(names)})" if names else " AND false"
    points = ", ".join(f"{point:.4f}" for point in _CDF_POINTS)
    row = query(run, f"SELECT quantile_cont({value}, [{points}]) AS q FROM periods WHERE up AND {counted}")
    quantiles = row["q"].iloc[0]
    if quantiles is None or np.ndim(quantiles) == 0:
        return pd.DataFrame(columns=["slack", "share"])
    return pd.DataFrame({"slack": np.asarray(quantiles, np.float64), "share": _CDF_POINTS})


def throttled_share(run: Run, buckets: int) -> pd.DataFrame:
    """Return the share of throttled containers over time, in at most `buckets` stretches. Columns: at_s,
    to_s, share (0 to 1)."""
    workload, width = run.manifest["workload"], stretch(run, buckets)
    frame = query(
        run,
        """SELECT period // ? AS bucket, sum(throttled_periods) / sum(up_periods) AS share
           FROM periods GROUP BY bucket HAVING sum(up_periods) > 0 ORDER BY bucket""",
        [width],
    )
    frame["at_s"] = frame.pop("bucket") * width * workload["period_s"]
    frame["to_s"] = frame["at_s"] + width * workload["period_s"]
    return frame


def events(run: Run, name: str) -> pd.DataFrame:
    """Return a container's OOM events, grants, kills, restarts. Columns: at_s, kind, limit_mib or NaN."""
    frame = run.frame("events")
    frame = frame[(frame["container"] == name) & frame["kind"].isin(["oom", "grant", "kill", "restart"])]
    limit = frame["limit_bytes"]
    limited = (limit > 0) & (limit < UNLIMITED_BYTES)
    return pd.DataFrame(
        {"at_s": frame["at_s"], "kind": frame["kind"].astype(str), "limit_mib": (limit / MIB).where(limited)}
    ).reset_index(drop=True)


def query(
    run: Run, sql: str, values: list[Any] | dict[str, Any] | None = None, tables: Sequence[str] = ("periods",)
) -> pd.DataFrame:
    """Return the answer to SQL over tables of the run. Raises StoreError if one cannot be read.

    `periods` always has the columns periods, up_periods and throttled_periods of each row.
    """
    paths = {name: str(run.path / f"{name}.parquet").replace("'", "''") for name in tables}
    columns = dict.fromkeys(tables, "*")
    if periods_in_a_row(run) == 1:
        columns["periods"] = _ONE
    known = ", ".join(
        f"{name} AS (SELECT {columns[name]} FROM read_parquet('{path}'))" for name, path in paths.items()
    )
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2")
        try:
            return connection.execute(f"WITH {known} {sql}", values).df()
        except duckdb.Error as error:
            first = str(error).split("\n", 1)[0]
            what = tables[0] if len(tables) == 1 else "tables"
            raise StoreError(f"run {run.id}: its {what} cannot be read: {first}") from None


def by_run(entries: Sequence[Shown], frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the runs' frames below each other, each row with its run's title. Empty frames are left out."""
    parts = [
        frame.assign(title=look.title) for look, frame in zip(entries, frames, strict=True) if len(frame)
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["share"])


def _texts(names: list[str]) -> str:
    return ", ".join("'" + name.replace("'", "''") + "'" for name in names)
