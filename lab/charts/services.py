"""Reduces the requests and services of a run to the size of a chart.

For: latency, throughput and failures over time, the distribution of latency, figures per kind of request and
per container, and why a limit changed. Not for: drawing (lab.charts.services_drawing) or one container's
series (lab.charts.series). DuckDB reads the Parquet files of a run that has the table `requests`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from lab.charts import series
from lab.runs.store import Run

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
"""Percentiles of latency over time: column → quantile."""

NOT_ANSWERED = ("timed_out", "dropped", "failed", "pending")
"""Statuses of the requests table other than an answer."""

AT_LEAST = "_at_least"
"""Suffix of the column that is true if a latency is a lower bound."""

_EXACT = "CASE WHEN status = 'ok' THEN latency_s ELSE CAST('infinity' AS DOUBLE) END"
_KNOWN = "CASE WHEN status = 'ok' THEN latency_s ELSE greatest($end_s - at_s, 0) END"
"""Latency of a request, in SQL. A request without an answer has an infinite latency (_EXACT), which is known
to be at least its wait until the run's end (_KNOWN)."""

_LEAST_STRETCH_S = 1.0
"""Shortest stretch, s. Hundreds of requests arrive in a second, enough for a 99th percentile."""
_TAIL = 1 - np.geomspace(0.1, 0.0001, 61)
_CDF_POINTS = np.unique(np.round(np.concatenate([np.linspace(0, 1, 101), _TAIL]), 6))


def stretch_s(run: Run, most: int) -> float:
    """Return the length of the stretches that divide a run's time into at most `most`: 1, 2, 5, 10, … s."""
    least = max(_LEAST_STRETCH_S, series.duration_s(run) / most)
    power = 10.0 ** np.floor(np.log10(least))
    return float(next(power * step for step in (1, 2, 5, 10) if power * step >= least * (1 - 1e-9)))


def over_time(run: Run, most: int) -> pd.DataFrame:
    """Return the clients' figures over time, one row for each of at most `most` equal stretches.

    Columns: at_s, to_s; p50, p90, p99: latency of the requests that arrived in the stretch, s, NaN if there
    are none; p50_at_least, …: whether that is a lower bound (lab.containers.run.figures); arrived_rps,
    not_answered_rps and one column for each of NOT_ANSWERED: requests that arrived in the stretch, 1/s;
    answered_rps: answers given in the stretch, 1/s, whenever they were requested. The last stretch may be
    shorter than the others; its rates are over its own length.
    """
    width, duration_s = stretch_s(run, most), series.duration_s(run)
    fates = ", ".join(f"count(*) FILTER (status = '{status}') AS {status}" for status in NOT_ANSWERED)
    came = _query(
        run,
        f"""SELECT CAST(floor(at_s / $width) AS INTEGER) AS stretch, count(*) AS arrived, {fates},
            quantile_cont({_EXACT}, {list(PERCENTILES.values())}) AS exact,
            quantile_cont({_KNOWN}, {list(PERCENTILES.values())}) AS known
            FROM requests GROUP BY stretch""",
        {"width": width, "end_s": duration_s},
    ).set_index("stretch")
    answered = _query(
        run,
        """SELECT CAST(floor((at_s + latency_s) / $width) AS INTEGER) AS stretch, count(*) AS answered
           FROM requests WHERE status = 'ok' GROUP BY stretch""",
        {"width": width},
    ).set_index("stretch")["answered"]
    stretches = np.arange(max(1, int(np.ceil(duration_s / width - 1e-9))))
    came, answered = came.reindex(stretches), answered.reindex(stretches)
    rows = pd.DataFrame({"at_s": stretches * width, "to_s": np.minimum((stretches + 1) * width, duration_s)})
    length = rows["to_s"] - rows["at_s"]
    rows["arrived_rps"] = came["arrived"].fillna(0).to_numpy() / length
    rows["answered_rps"] = answered.fillna(0).to_numpy() / length
    for name in NOT_ANSWERED:
        rows[name] = came[name].fillna(0).to_numpy() / length
    rows["not_answered_rps"] = rows[list(NOT_ANSWERED)].sum(axis=1)
    return rows.assign(**_bounded(came["exact"], came["known"]))


def _bounded(exact: pd.Series, known: pd.Series) -> dict[str, np.ndarray[Any, Any]]:
    """Return a column of latencies for each of PERCENTILES, and a column that is true for lower bounds.

    exact, known: a row's percentiles. They are infinite, or the last known time, if no request was answered,
    and NaN without requests.
    """
    nothing = [np.nan] * len(PERCENTILES)
    rows, least = (
        np.array([row if np.ndim(row) else nothing for row in column], np.float64).reshape(
            -1, len(PERCENTILES)
        )
        for column in (exact, known)
    )
    bounds = ~np.isnan(least) & ~np.isfinite(rows)
    # A percentile is at least as large as every lower one. The exact value of a lower percentile may exceed
    # the known bound of a higher one.
    values = np.fmax.accumulate(np.where(bounds, least, rows), axis=1)
    columns = {key: values[:, place] for place, key in enumerate(PERCENTILES)}
    return columns | {f"{key}{AT_LEAST}": bounds[:, place] for place, key in enumerate(PERCENTILES)}


def latency_distribution(run: Run) -> pd.DataFrame:
    """Return the CDF of latency over all requests, finer in the tail. Columns: latency_s, share.

    It ends at the share of requests that were answered. Empty without answers.
    """
    points = ", ".join(f"{point:.6f}" for point in _CDF_POINTS)
    row = _query(run, f"SELECT quantile_cont({_EXACT}, [{points}]) AS q FROM requests")
    quantiles = row["q"].iloc[0]
    if quantiles is None or np.ndim(quantiles) == 0:
        return pd.DataFrame(columns=["latency_s", "share"])
    frame = pd.DataFrame({"latency_s": np.asarray(quantiles, np.float64), "share": _CDF_POINTS})
    answered: pd.DataFrame = frame[np.isfinite(frame["latency_s"])]
    return answered.reset_index(drop=True)


def fates(run: Run) -> pd.DataFrame:
    """Return the outcomes of the requests without an answer. Columns: status (one of NOT_ANSWERED), share of
    all requests."""
    counts = run.frame("requests", ["status"])["status"].value_counts()
    shares = [counts.get(status, 0) / max(1, counts.sum()) for status in NOT_ANSWERED]
    rows = pd.DataFrame({"status": NOT_ANSWERED, "share": shares})
    return rows[rows["share"] > 0].reset_index(drop=True)


def by_kind(run: Run) -> pd.DataFrame:
    """Return one row per kind of request, the most frequent first. Columns: kind, requests, p50, p90, p99
    and whether they are lower bounds as in `over_time`, not_answered_share (0 to 1)."""
    wanted = list(PERCENTILES.values())
    rows = _query(
        run,
        f"""SELECT CAST(kind AS VARCHAR) AS kind, count(*) AS requests,
           quantile_cont({_EXACT}, {wanted}) AS exact, quantile_cont({_KNOWN}, {wanted}) AS known,
           count(*) FILTER (status <> 'ok') / count(*) AS not_answered_share
           FROM requests GROUP BY kind ORDER BY requests DESC, kind""",
        {"end_s": series.duration_s(run)},
    )
    return rows.assign(**_bounded(rows.pop("exact"), rows.pop("known")))


def by_container(run: Run) -> pd.DataFrame:
    """Return one row per container, in the application's order.

    Columns: container; visits_rps; usage_cores and quota_cores, means while up (quota NaN without a limit);
    cpu_slack_p50_cores, throttled_share, memory_slack_p50_mib, turned_away and oom_kills as in
    lab.containers.metrics.
    """
    means = _query(
        run,
        """SELECT container, avg(usage_cores) AS usage_cores,
           avg(quota_cores) FILTER (isfinite(quota_cores)) AS quota_cores
           FROM periods WHERE up GROUP BY container""",
    )
    kept = ["visits", "cpu_slack_p50_cores", "throttled_share", "memory_slack_p50_mib"]
    figures = run.frame("containers", ["container", *kept, "turned_away", "oom_kills"])
    figures.insert(1, "visits_rps", figures.pop("visits") / series.duration_s(run))
    means["container"] = means["container"].astype(str)
    rows = figures.merge(means, on="container", how="left")
    return rows[["container", "visits_rps", "usage_cores", "quota_cores", *kept[1:], *figures.columns[-2:]]]


def limit_changes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return why a container's CPU limit changed, the most frequent reason first. Columns: reason, times,
    raised, lowered.

    frame: rows of `series.container`, all or some. A change is a period whose limit at its end differs from
    the limit at the end of the period before, or before the container went down. Several changes within one
    period count as one, with the reason of the last.
    """
    limited = frame[np.isfinite(frame["quota_cores"])]
    change = np.diff(limited["quota_cores"].to_numpy(np.float64))
    changed = change != 0
    changes = pd.DataFrame(
        {
            "reason": limited["reason"].to_numpy()[1:][changed],
            "raised": change[changed] > 0,
            "lowered": change[changed] < 0,
        }
    )
    counted = changes.groupby("reason", sort=False)[["raised", "lowered"]].sum().astype(int)
    counted.insert(0, "times", counted.sum(axis=1))
    return counted.reset_index().sort_values(["times", "reason"], ascending=[False, True], ignore_index=True)


def costs(run: Run) -> pd.DataFrame:
    """Return the cost of the run's reservations, one row for CPU and one for memory.

    Columns: what; per_hour; per_million, the cost of both for a million answered requests, NaN without
    answers. The currency is that of the price.
    """
    price, metrics = run.manifest["spec"]["price"], run.metrics
    hours = series.duration_s(run) / 3600
    parts = np.array(
        [
            metrics["reserved_core_h"] * price["cpu_core_hour"],
            metrics["reserved_gib_h"] * price["memory_gib_hour"],
        ]
    )
    answers = metrics["throughput_rps"] * series.duration_s(run)
    return pd.DataFrame(
        {
            "what": ["CPU", "memory"],
            "per_hour": parts / hours,
            "per_million": metrics["cost"] / answers * 1e6 if answers > 0 else np.nan,
        }
    )


def _query(run: Run, sql: str, values: dict[str, Any] | None = None) -> pd.DataFrame:
    return series.query(run, sql, values, ("requests", "periods"))
