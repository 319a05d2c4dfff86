"""The events of a cluster run as tracks of a timeline: jobs on servers, and the queue.

For: `Kind.timeline`. Not for: writing a file (lab.runs.timeline).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lab.runs.store import Run
from lab.runs.timeline import Counter, Spans, Tracks

_QUEUE = {"waiting": "jobs", "running": "jobs", "busy_gpus": "GPUs"}


def tracks(run: Run) -> Tracks:
    """Return the jobs of each server, if the run is small enough to have kept them, and the queue."""
    return [*_queue(run), *_servers(run)]


def _queue(run: Run) -> Iterator[Counter]:
    frame = run.frame("queue", ["at_s", *_QUEUE])
    at_s = frame["at_s"].to_numpy(np.float64)
    for column, unit in _QUEUE.items():
        yield Counter("queue", column.replace("_", " "), unit, at_s, frame[column].to_numpy(np.float64))


def _servers(run: Run) -> Iterator[Spans]:
    if "spans" not in run.tables:
        return
    jobs = run.frame("jobs", ["job", "model"])
    models = dict(zip(jobs["job"], jobs["model"], strict=True))
    frame = run.frame("spans").sort_values(["type", "server", "begin_s"])
    for (kind, server), own in frame.groupby(["type", "server"], sort=False):
        yield Spans(
            f"{kind} servers",
            f"server {server}",
            [f"job {job}: {models[job]}" for job in own["job"]],
            own["begin_s"].to_numpy(np.float64),
            own["end_s"].to_numpy(np.float64),
            {"GPUs": own["gpus"].tolist()},
        )
