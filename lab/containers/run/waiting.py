"""Which services' waiting makes the requests of a run slow.

For: what `twinbed runs explain` prints and the explorer draws of a stored run's spans. Not for: critical
paths (control.paths) or recording spans (twin.containers.requests).

Slow requests are those whose latency is at least the p99 of all answered requests. Their spans are all kept
(twin.containers.requests.tracing). Typical ones are those between p40 and p60 among the requests that were
drawn at random before the run, because the slow ones that are kept besides would bias them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from control.paths import Blame, Spans, blame, critical_paths
from lab.runs.formats import Column, Record, Result
from lab.runs.store import Run
from twinbed import ScenarioError

SLOW = 0.99
"""Quantile of latency from which a request is slow."""

TYPICAL = (0.4, 0.6)
"""Quantiles of latency between which a drawn request is typical."""

CLIENTS = "(clients)"
"""Stands for the time that passes before a client has a connection for its request."""

_TOLD = 3
"""Number of services that the sentence names."""
_WORTH_TELLING = 0.05
"""Share of the waiting below which the sentence leaves a service out."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The services for which the slow requests of a run waited.

    rows: one per service, the one that waits most in slow requests first: service; slow_wait_s, slow_work_s,
    typical_wait_s, typical_work_s, means per request, s; throttled_share of the periods of its containers.
    slow, typical: number of requests; slow_s, typical_s: their mean latency, s.
    """

    rows: pd.DataFrame
    slow: int
    slow_s: float
    typical: int
    typical_s: float


def waiting(run: Run) -> Waiting:
    """Return why the run's requests are slow. Raises ScenarioError, saying why, if it has no spans."""
    requests = _requests(run)
    frame = run.frame("spans")
    request, parent = (frame[name].to_numpy(np.int64) for name in ("request", "parent"))
    start_s, end_s, work_s = (frame[name].to_numpy(np.float64) for name in ("start_s", "end_s", "work_s"))
    owner = frame["service"].cat.codes.to_numpy().astype(np.int64)
    spans = Spans(request, parent, owner, start_s, end_s, work_s)
    answered = requests.loc[requests["status"] == "ok", "latency_s"]
    roots = frame[frame["parent"] < 0]
    latency = answered.reindex(roots["request"]).to_numpy()
    if not len(latency):
        raise ScenarioError(
            f"run {run.id}: no traced request was answered, so its waiting cannot be explained"
        )
    slow = latency >= answered.quantile(SLOW)
    drawn = roots["drawn"].to_numpy()
    low, high = np.quantile(latency[drawn] if drawn.any() else latency, TYPICAL)
    typical = (latency >= low) & (latency <= high) & (drawn if drawn.any() else True)
    paths, names = critical_paths(spans), frame["service"].cat.categories
    columns: dict[str, pd.Series] = {}
    sent_s = roots["start_s"].to_numpy() - requests["at_s"].to_numpy()[roots["request"]]
    for key, chosen in (("slow", slow), ("typical", typical)):
        blamed: Blame = blame(spans, paths, roots["request"].to_numpy(np.int64)[chosen])
        index = names[blamed.owner]
        columns[f"{key}_wait_s"] = pd.Series(blamed.wait_s, index=index)
        columns[f"{key}_work_s"] = pd.Series(blamed.work_s, index=index)
        if (sent_s[chosen] > 0.0).any():
            columns[f"{key}_wait_s"][CLIENTS] = float(sent_s[chosen].mean())
    rows = pd.DataFrame(columns).fillna(0.0)
    rows["throttled_share"] = _throttled(run, frame)
    rows = rows.rename_axis("service").reset_index()
    rows = rows.sort_values(["slow_wait_s", "service"], ascending=[False, True], ignore_index=True)
    means = float(latency[slow].mean()), float(latency[typical].mean())
    return Waiting(rows, int(slow.sum()), means[0], int(typical.sum()), means[1])


def explained(run: Run) -> Result:
    """Return the services by their waiting in slow requests, with a sentence. Raises ScenarioError."""
    waits = waiting(run)
    facts: Record = {
        "run": run.id,
        "policy": run.policy,
        "slow": f"{waits.slow:,} answered requests from p99 on, {_ms(waits.slow_s)} in the mean",
        "typical": f"{waits.typical:,} drawn requests around p50, {_ms(waits.typical_s)} in the mean",
    }
    rows = tuple(_record(row) for row in waits.rows.to_dict("records"))
    return Result(_COLUMNS, rows, facts, notes=tuple(told(waits)))


def told(waits: Waiting) -> list[str]:
    """Return sentences that name the services whose waiting makes the p99."""
    rows, more_s = waits.rows, waits.slow_s - waits.typical_s
    whole = float(rows["slow_wait_s"].sum())
    if whole <= 0.0:
        return ["Slow requests hardly wait: they are slow because they need more CPU work."]
    worth = rows["slow_wait_s"] >= _WORTH_TELLING * whole
    main = rows[worth].head(_TOLD) if worth.any() else rows.head(1)
    parts = zip(main["service"], main["slow_wait_s"] / whole, strict=True)
    names = [f"{service} ({share:.0%} of it)" for service, share in parts]
    work = float((rows["slow_work_s"] - rows["typical_work_s"]).sum())
    texts = [
        f"The slowest 1 % take {_ms(waits.slow_s)}, and wait for {_ms(whole)} of that, mostly in "
        f"{_listed(names)}."
    ]
    if more_s > 0:
        texts.append(
            f"They take {_ms(more_s)} longer than typical requests: {_ms(max(more_s - work, 0.0))} of it is "
            f"waiting, {_ms(max(work, 0.0))} is CPU work on the critical path."
        )
    limited = main[main["throttled_share"] >= _WORTH_TELLING]
    if len(limited):
        shares = [f"{row.service} in {row.throttled_share:.0%}" for row in limited.itertuples()]
        whose = "its containers" if len(limited) == 1 else "their containers"
        texts.append(f"CPU limits stopped {_listed(shares)} of the periods of {whose}.")
    texts.append(
        "Waiting is time on the critical path in which the service did none of the request's CPU work: "
        "queues, throttling, other requests on its CPUs, the network."
    )
    return texts


_COLUMNS = (
    Column("service", "Service"),
    Column("slow_wait_s", "Waits, slow", "s", 4),
    Column("typical_wait_s", "Waits, typical", "s", 4),
    Column("slow_work_s", "Works, slow", "s", 4),
    Column("typical_work_s", "Works, typical", "s", 4),
    Column("throttled_share", "Throttled periods", "1", 1, percent=True),
)


def _requests(run: Run) -> pd.DataFrame:
    """Return the run's requests. Raises ScenarioError if there are none, or no spans."""
    if "requests" not in run.tables:
        raise ScenarioError(f"run {run.id}: has no requests, so no critical paths; make one with `services:`")
    if "spans" not in run.tables:
        real = run.manifest.get("backend") != "twin"
        why = "the testbed keeps no spans" if real else "it was made without them; make it again"
        raise ScenarioError(f"run {run.id}: has no spans: {why}")
    return run.frame("requests", ["at_s", "latency_s", "status"])


def _throttled(run: Run, frame: pd.DataFrame) -> pd.Series:
    """Return each service's mean share of throttled periods over its containers that spans reached."""
    shares = run.frame("containers", ["container", "throttled_share"]).set_index("container")
    pairs = frame[["service", "container"]].dropna().drop_duplicates().astype(str)
    pairs["share"] = shares["throttled_share"].reindex(pairs["container"]).to_numpy()
    return pairs.groupby("service")["share"].mean()


def _record(row: Mapping[Hashable, Any]) -> Record:
    return {str(key): None if pd.isna(value) else value for key, value in row.items()}


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.3g} ms" if seconds < 1.0 else f"{seconds:,.3g} s"


def _listed(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
