"""Say how often the parts of a training fleet fail, from published totals and a public fault trace.

For: faults per GPU and second by source, and the downtimes in StepFun's trace. Not for: drawing faults
(twin.fabric.fleet), nor the time a path needs to fail over. Sources count GPUs or servers. Rates per GPU hold
for fleets of another size, too. The trace is not shipped.

Sources: A. Dubey et al., The Llama 3 Herd of Models, 2024, section 3.3.4 and table 5; StepFun,
InfiniteHBD-Trace (SIGCOMM 2025, Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from traces.readers import table
from traces.schema import Floats
from twinbed import TraceError

Part = Literal["link", "nic", "other"]
"""A part that fails. link: cables, optics, switch ports. nic: adapters. other: all other faults that take a
host out of a job."""

PARTS: tuple[Part, ...] = ("link", "nic", "other")

DAY_S = 86_400.0
TRACE_DAYS = 348.0
"""Length of StepFun's trace, days."""

FILE = "fault_events.csv"
_COLUMNS = ("node", "event_time_days", "event", "level", "fault_class", "desc")

NO_FAULT = ("Stress Test Failure", "Training Task Troubleshooting", "Change", "Test")
"""Classes of StepFun's trace in which people took a server out of use. No job was hit."""


@dataclass(frozen=True, slots=True)
class FaultCounts:
    """Faults of a fleet by part.

    source: the publication, in one line
    gpus: number of GPUs that were watched
    duration_s: length of the observation, s
    counts: part → number of faults
    """

    source: str
    gpus: int
    duration_s: float
    counts: Mapping[Part, int]


LLAMA3 = FaultCounts(
    source="Llama 3 405B, 54 days on 16,384 GPUs: 419 unexpected interruptions, 8.4 % network switch or "
    "cable and 1.7 % NIC; 47 planned ones are left out",
    gpus=16_384,
    duration_s=54 * DAY_S,
    counts={"link": 35, "nic": 7, "other": 377},
)
"""The job had one path per GPU, so every fault of a path was an interruption. All interruptions are
counted."""

STEPFUN = FaultCounts(
    source="StepFun, 400 GPU servers for 348 days (InfiniteHBD-Trace), tests and changes left out; eight "
    "GPUs a server is an assumption",
    gpus=3_200,
    duration_s=TRACE_DAYS * DAY_S,
    counts={"link": 33, "nic": 16, "other": 287},
)
"""The trace's faults: class "Parameter Plane Cable" counts as link, "NIC" as nic, all others as other."""

FLEETS: Mapping[str, FaultCounts] = {"llama3": LLAMA3, "stepfun": STEPFUN}


def per_gpu_s(counts: FaultCounts, part: Part) -> float:
    """Return faults per second of one GPU's share: its attachment (link, nic) or its part of a host
    (other)."""
    return counts.counts[part] / (counts.gpus * counts.duration_s)


def read_downtimes(path: str | Path, *, servers: int = 400, days: float = TRACE_DAYS) -> list[Floats]:
    """Return when each server of StepFun's trace was out of order: from and to, days, float64[faults, 2].

    path: the file or its folder
    servers: number of servers; the file names only those that failed
    days: length of the trace

    Times when people took a server out of use are left out. A fault without an end lasts to the end of the
    trace. Servers that never failed come last. Raises TraceError, which names the file and the line.
    """
    downtimes: dict[str, list[tuple[float, float]]] = {}
    for node, began, ended in _faults(path, servers, days):
        downtimes.setdefault(node, []).append((began, days if ended is None else ended))
    failed = [np.array(sorted(downtimes[node]), np.float64) for node in sorted(downtimes)]
    return failed + [np.empty((0, 2))] * (servers - len(failed))


def _faults(path: str | Path, servers: int, days: float) -> Iterator[tuple[str, float, float | None]]:
    """Yield node, begin and end of each fault, days, in the order of their ends; None: no end."""
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    frame = table.read_known(
        path, _COLUMNS, node="str", event="str", level="str", fault_class="str", desc="str"
    )
    _check(path, frame, servers, days)
    frame = frame[~frame["fault_class"].isin(NO_FAULT)]
    open_at: dict[tuple[str, str, str], list[float]] = {}
    rows = frame[["node", "fault_class", "desc", "event", "event_time_days"]].itertuples(
        index=False, name=None
    )
    for node, fault_class, desc, event, at_days in rows:
        began = open_at.setdefault((node, fault_class, desc), [])
        if event == "fault_start":
            began.append(at_days)
        elif began:
            yield node, began.pop(0), at_days
    for (node, _, _), left in open_at.items():
        for at_days in left:
            yield node, at_days, None


def _check(path: Path, frame: pd.DataFrame, servers: int, days: float) -> None:
    unknown = ~frame["event"].isin(["fault_start", "fault_end"])
    times = frame["event_time_days"].to_numpy(np.float64)
    outside = ~((times >= 0) & (times <= days))
    for wrong, problem in (
        (unknown.to_numpy(), "column event: expected fault_start or fault_end"),
        (outside, f"column event_time_days: expected 0 to {days:g}"),
        (np.diff(times, prepend=times[:1]) < 0, "column event_time_days: runs backwards"),
    ):
        if wrong.any():
            raise TraceError(f"{path}: line {frame.index[int(np.argmax(wrong))]}, {problem}")
    if frame["node"].nunique() > servers:
        raise TraceError(
            f"{path}: {frame['node'].nunique()} servers failed, more than the {servers} there are"
        )
