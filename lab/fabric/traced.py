"""Turns measurements of a real training job (traces, nccl-tests) into questions to the fabric twin.

For: `twinbed traces import kineto`, `chakra` and `nccl-tests`. Not for: reading the files (traces.readers).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import yaml

from lab.ask.scenario import build
from lab.fabric.calibrate import values
from lab.runs.formats import Column, Record, Result
from traces.readers.job_trace import UNMARKED, Collective, TrainingTrace
from traces.readers.nccl_tests import NcclTimes
from twin.fabric import collectives
from twin.fabric.model import Scheme
from twin.fabric.rdma import goodput_bps
from twinbed import ScenarioError

_COLUMNS = (
    Column("operation", "Collective"),
    Column("size_bytes", "Size", "B", 0),
    Column("ranks", "Ranks", decimals=0),
    Column("per_step", "Per step", decimals=2),
    Column("time_ms", "Time (median)", "ms", 3),
    Column("bus_gbps", "Bus bandwidth", "Gbit/s", 2),
    Column("link_bytes", "Per link", "B/step", 0),
)
_KNOWN = frozenset(map(str, collectives.Collective))
_GRADIENTS = ("all_reduce", "reduce_scatter")


def table(trace: TrainingTrace) -> Result:
    """Return a row per collective and size, and the parts of a step.

    link_bytes: bytes that a ring sends from each rank to the next in a step.
    """
    groups: dict[tuple[str, float, int], list[Collective]] = defaultdict(list)
    for call in trace.collectives:
        groups[call.operation, call.size_bytes, call.ranks].append(call)
    steps = len(trace.number)
    rows = tuple(
        _row(*key, len(calls) / steps, float(np.median([call.duration_s for call in calls])))
        for key, calls in sorted(groups.items(), key=lambda group: -group[0][1] * len(group[1]))
    )
    whose = "one rank" if trace.rank is None else f"rank {trace.rank}"
    which = f"{steps}, number {trace.number[0]} to {trace.number[-1]} of the profiler"
    if trace.number[0] == UNMARKED:
        which = "1, the whole trace"
    facts = {
        "job": f"{whose} of {trace.ranks}, " + ("kernels of a GPU" if trace.on_gpu else "operators on a CPU"),
        "steps": which,
        "step": _ms(trace.step_s),
        "computes": _ms(trace.compute_s),
        "communicates": f"{_ms(trace.communication_s)}, of which alone {_ms(trace.exposed_s)}",
        "gradients": f"{gradient_bytes(trace):,.0f} B per step",
    }
    return Result(_COLUMNS, rows, facts)


def gradient_bytes(trace: TrainingTrace) -> float:
    """Return the bytes that all ranks together reduce in a step (median), B."""
    reduced = _reduced(trace)
    sums = np.bincount(
        [call.step for call in reduced], [call.size_bytes for call in reduced], len(trace.number)
    )
    return float(np.median(sums))


def scenario(trace: TrainingTrace, name: str, iterations: int) -> str:
    """Return the text of a scenario: the job on the twin's fabric, and a port that fails silently.

    The work of a micro-batch is a step less the time of communication alone, so that the twin's own network
    adds its time. Raises ScenarioError for a trace without gradients, and for a bad name.
    """
    size_bytes = gradient_bytes(trace)
    if not size_bytes:
        raise ScenarioError(
            f"{name}: no all_reduce or reduce_scatter of all {trace.ranks} ranks in most steps; "
            "profile a data-parallel job"
        )
    element = max(_reduced(trace), key=lambda call: call.size_bytes).element_bytes
    work_s = trace.step_s - trace.exposed_s
    # Sums of squares of relative deviations; one step has no spread.
    spread = float(work_s.std() / work_s.mean())
    document = {
        "name": name,
        "title": f"A traced job of {trace.ranks} ranks",
        "question": "How long do its iterations take on this fabric, and what does a silent port cost it?",
        "fabric": {
            "topology": {"hosts": trace.ranks, "tors": 2},
            "faults": {"kind": "single"},
            "training": {
                "parameters": size_bytes / element,
                "gradient_bytes": float(element),
                "micro_batch_s": float(f"{np.median(work_s):.6g}"),
                "jitter_cv": float(f"{spread:.3g}"),
                "data": trace.ranks,
                "iterations": iterations,
            },
        },
        "policies": [str(scheme) for scheme in (Scheme.THORN, Scheme.BOND, Scheme.REROUTE, Scheme.NONE)],
    }
    build(document, f"scenario {name!r}")  # An invalid scenario is reported now.
    return yaml.safe_dump(document, sort_keys=False)


def calibration(times: NcclTimes, operation: str, name: str) -> tuple[str, Result]:
    """Return a calibration file with α and the rate fitted to the times, and the quality of the fit.

    All other values are those that ship. Raises ScenarioError for an unknown operation, and for another than
    the output's.
    """
    if operation and times.operation not in ("", operation):
        raise ScenarioError(f"--operation {operation}: the output is of {times.operation}; leave it out")
    operation = operation or times.operation
    if operation not in _KNOWN:
        known = ", ".join(sorted(_KNOWN))
        raise ScenarioError(f"--operation {operation or 'is not in the output'}: give one of {known}")
    kind = collectives.Collective(operation)
    (line,) = collectives.fit(kind, times.size_bytes, times.ranks, times.duration_s)
    if not np.isfinite(line.rate_bps):
        raise ScenarioError(f"{name}: the times do not grow with the size; measure up to 1 GB (-e 1G)")
    default = values.load_calibration()
    pair = values.fabric(default, {}).queue_pair
    # The twin's rate is the rate of a link, including headers.
    rate_bps = line.rate_bps / goodput_bps(1.0, pair.mtu_bytes, Scheme.THORN)
    source = f"measured: nccl-tests {operation}, {times.ranks} ranks, {len(times.size_bytes)} sizes"
    changed = dict(default.values)
    for key, value in (("collective.alpha_s", line.alpha_s), ("link.rate_bps", rate_bps)):
        changed[key] = replace(default.values[key], value=value, source=source, n=len(times.size_bytes))
    now = f"{datetime.now(UTC):%Y-%m-%d}"
    text = values.write(replace(default, name=name, date=now, values=changed))
    told = collectives.predict(kind, times.size_bytes, times.ranks, [line])
    rows = tuple(
        {"size_bytes": size, "time_ms": 1e3 * took, "fitted_ms": 1e3 * fitted, "error": fitted / took - 1}
        for size, took, fitted in zip(
            times.size_bytes.tolist(), times.duration_s.tolist(), told.tolist(), strict=True
        )
    )
    columns = (
        Column("size_bytes", "Size", "B", 0),
        Column("time_ms", "Measured", "ms", 3),
        Column("fitted_ms", "Fitted", "ms", 3),
        Column("error", "Error", "1", 1, percent=True),
    )
    facts = {
        "operation": f"{operation}, {times.ranks} ranks",
        "step's latency": f"{1e6 * line.alpha_s:.1f} µs",
        "rate of a rank": f"{line.rate_bps / 1e9:.2f} Gbit/s of payload",
    }
    return text, Result(columns, rows, facts)


def _reduced(trace: TrainingTrace) -> list[Collective]:
    """Return the collectives in which all ranks reduce."""
    return [
        call for call in trace.collectives if call.operation in _GRADIENTS and call.ranks == trace.ranks > 1
    ]


def _row(operation: str, size_bytes: float, ranks: int, per_step: float, time_s: float) -> Record:
    row: dict[str, str | float | None] = {
        "operation": operation,
        "size_bytes": size_bytes,
        "ranks": ranks,
        "per_step": per_step,
        "time_ms": 1e3 * time_s,
    }
    if operation in _KNOWN and ranks > 1:
        kind = collectives.Collective(operation)
        busy = float(collectives.bus_factor(kind, ranks)) * size_bytes
        row |= {"bus_gbps": busy * 8 / time_s / 1e9 if time_s else None, "link_bytes": busy * per_step}
    return row


def _ms(times_s: np.ndarray) -> str:
    return f"{1e3 * float(np.median(times_s)):.3f} ms"
