"""Builds the Arrow tables of a run from the twin's arrays, without pandas.

For: the tables periods, events, containers, summary, requests and spans. Not for: writing files
(lab.runs.store) or the figures' definitions (lab.containers.metrics). The rows of `periods` go period by
period, as the twin recorded them. So its columns are views of the twin's arrays, and one container's rows
can be read as fast as if they lay together.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from control.services import RequestStatus
from lab.containers.metrics import METRICS
from lab.containers.run.figures import Figures
from lab.containers.run.stretches import Counts, Stretches, stretches
from lab.runs.metric import summary
from twin.containers.model import EVENT_KINDS, Events, Outcome, Series, Workload
from twin.containers.requests.model import RequestLog, RequestWorkload, SpanLog
from twin.containers.serverless_model import ServerlessWorkload
from twinbed import InvariantError

_SERIES = (
    "demand_cores", "usage_cores", "quota_cores", "backlog_s", "throttled", "throttled_s", "memory_bytes",
    "limit_bytes", "cpu_reason", "up",
)  # fmt: skip


def of_run(
    workload: Workload | RequestWorkload | ServerlessWorkload,
    outcome: Outcome,
    figures: Figures,
    currency: str,
    together: int = 1,
    stored: Stretches | None = None,
) -> dict[str, pa.Table]:
    """Return all tables of a run by name; `requests` and `spans` only if there were clients.

    together: number of periods in a row of `periods`. stored: these rows, where the series is not recorded.
    """
    apps = tuple(workload.applications[index].name for index in workload.app)
    made = {
        "summary": summary(METRICS, figures.summary, currency, figures.censored),
        "containers": containers(workload.names, apps, {**figures.per_container, **_visits(outcome)}),
        "events": events(outcome.events, workload.names),
        "periods": periods(outcome.series, workload.names, together, stored),
    }
    if outcome.requests is not None and not isinstance(workload, Workload):
        graph = workload.graph if isinstance(workload, RequestWorkload) else None
        kinds = (workload.applications[0].name,) if graph is None else graph.request_names
        made["requests"] = requests(outcome.requests, kinds)
        if graph is not None and outcome.requests.spans is not None:
            made["spans"] = spans(outcome.requests.spans, graph.services, workload.names)
    return made


def _visits(outcome: Outcome) -> dict[str, NDArray[np.float64]]:
    """Return how many calls each container answered; {} if there are no clients."""
    return {} if outcome.requests is None else {"visits": outcome.requests.visits.astype(np.float64)}


def periods(
    series: Series | None, names: tuple[str, ...], together: int = 1, stored: Stretches | None = None
) -> pa.Table:
    """Return one row per period and container: period (int32), container, and the series' columns, not
    copied; request_cores only if the policy decided requests.

    together: number of periods in a row, whose `period` is the last of them. Above 1 the columns are those of
    lab.containers.run.stretches, with three more (int32): periods, up_periods and throttled_periods. stored:
    the rows, if they are made already; else they are made of `series`.
    """
    counts: Counts = {}
    if series is not None and together == 1:
        last = np.arange(len(series.up), dtype=np.int32)
    elif stored is not None:
        last, series, counts = stored
    elif series is not None:
        last, series, counts = stretches(series, together)
    else:
        raise InvariantError("the run was simulated without recording its series")
    length, count = series.up.shape
    columns: dict[str, pa.Array] = {
        "period": pa.array(np.repeat(last, count)),
        "container": _names(np.tile(np.arange(count, dtype=np.int32), length), names),
    }
    requested = () if series.request_cores is None else ("request_cores",)
    for name in (*_SERIES, *requested):
        columns[name] = pa.array(np.ravel(getattr(series, name)))
    if together > 1:
        columns |= {name: pa.array(np.ravel(values)) for name, values in counts.items()}
    return pa.table(columns)


def events(rows: Events, names: tuple[str, ...]) -> pa.Table:
    """Return one row per event: at_s (float64), container, kind, limit_bytes (int64)."""
    kinds = [EVENT_KINDS.index(kind) for kind in rows.kind]
    return pa.table(
        {
            "at_s": pa.array(np.array(rows.at_s, np.float64)),
            "container": _names(np.array(rows.container, np.int32), names),
            "kind": _names(np.array(kinds, np.int32), EVENT_KINDS),
            "limit_bytes": pa.array(np.array(rows.limit_bytes, np.int64)),
        }
    )


def containers(
    names: tuple[str, ...], apps: tuple[str, ...], figures: Mapping[str, NDArray[np.float64]]
) -> pa.Table:
    """Return one row per container: container, app, and `figures` (key → float64[N])."""
    columns = {"container": pa.array(names), "app": pa.array(apps)}
    return pa.table(columns | {key: pa.array(values) for key, values in figures.items()})


def requests(log: RequestLog, kinds: tuple[str, ...]) -> pa.Table:
    """Return one row per client request, in order of arrival: at_s (float64), kind, latency_s (float64,
    NaN while pending), status (a `RequestStatus` in lower case)."""
    statuses = tuple(status.name.lower() for status in RequestStatus)
    return pa.table(
        {
            "at_s": pa.array(log.at_s),
            "kind": _names(log.kind.astype(np.int32), kinds),
            "latency_s": pa.array(log.latency_s),
            "status": _names(log.status.astype(np.int32), statuses),
        }
    )


def spans(log: SpanLog, services: tuple[str, ...], names: tuple[str, ...]) -> pa.Table:
    """Return one row per span of some answered requests, callers before callees: request (int32, its row in
    `requests`), parent (int32, the caller's row here; −1: the client called), service, container (null: none
    was reached), start_s, end_s (float64, the call and its end as the caller saw them), work_s (float64, CPU
    seconds of its own), drawn (the request was drawn at random; else it is there because it was slow)."""
    reached = pa.array(np.maximum(log.container, 0).astype(np.int32), mask=log.container < 0)
    return pa.table(
        {
            "request": pa.array(log.request.astype(np.int32)),
            "parent": pa.array(log.parent.astype(np.int32)),
            "service": _names(log.service.astype(np.int32), services),
            "container": pa.DictionaryArray.from_arrays(reached, pa.array(names, pa.string())),
            "start_s": pa.array(log.start_s),
            "end_s": pa.array(log.end_s),
            "work_s": pa.array(log.work_s),
            "drawn": pa.array(log.drawn),
        }
    )


def _names(index: NDArray[np.int32], names: tuple[str, ...]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(index), pa.array(names, pa.string()))
