"""The events of a fabric's run as tracks of a timeline: outages by cause, and the measurements.

For: `Kind.timeline`. Not for: writing a file (lab.runs.timeline), or each step of one fault
(twin.fabric.timeline).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from control.fabric import Direction
from lab.runs.store import Run
from lab.runs.timeline import Spans, Tracks
from twinbed import ScenarioError


def tracks(run: Run) -> Tracks:
    """Return the outages of each fault, and the measured iterations, operations or exchanges that met them.

    Raises ScenarioError for a run of a whole fleet, which stores days without their events.
    """
    name = measured(run)
    if name is None:
        raise ScenarioError(f"run {run.id}: a run of a fleet keeps no timeline")
    return [*_measured(run, name), *_outages(run)]


def measured(run: Run) -> str | None:
    """Return what a row of the table `series` is: iteration, operation, or exchange of two messages; None for
    a run of a fleet."""
    asked = run.manifest["spec"]["fabric"]
    names = {"training": "iteration", "collective": "operation", "sends": "exchange"}
    return next((name for section, name in names.items() if asked.get(section)), None)


def _measured(run: Run, name: str) -> Iterator[Spans]:
    frame = run.frame("series", ["at_s", "duration_s"])
    frame = frame[np.isfinite(frame["duration_s"])]
    begin_s = frame["at_s"].to_numpy(np.float64)
    end_s = begin_s + frame["duration_s"].to_numpy(np.float64)
    yield Spans("job", f"{name}s", [name] * len(frame), begin_s, end_s, {})


def _outages(run: Run) -> Iterator[Spans]:
    """Yield the times at which packets were lost, and at which the sender did not yet know."""
    if "outages" not in run.tables:
        return
    frame = run.frame("outages")
    for fault, own in frame.groupby("fault"):
        names = [
            f"host {source} to host {destination}, {Direction(direction).name.lower()}"
            for source, destination, direction in own[["source", "destination", "direction"]]
            .to_numpy()
            .tolist()
        ]
        end_s = np.where(np.isfinite(own["end_s"]), own["end_s"], own["begin_s"])
        steps = {
            f"{step} after (ms)": [
                round(1000 * after, 3) if np.isfinite(after) else "never"
                for after in own[f"{step}_s"] - own["begin_s"]
            ]
            for step in ("detected", "selected", "installed")
        }
        yield Spans("faults", f"fault {fault}", names, own["begin_s"].to_numpy(np.float64), end_s, steps)
