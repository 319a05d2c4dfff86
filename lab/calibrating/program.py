"""What the service program costs: CPU per visit, stage, call and wake-up, memory, network, load generator.

For: `twinbed calibrate`: the application of subject.py, run for real without limits at a few rates. Not for:
scenarios, nor for how the costs are told apart (fit.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from control.allocator import make
from control.allocator.model import Application
from lab.calibrating import fit, subject
from lab.calibrating.figures import distribution, per_request
from lab.calibration import Program, Value
from lab.services.program import service_app
from testbed.containers import loop, ownership
from testbed.containers.load.generator import LoadGenerator
from testbed.containers.load.plan import LoadPlan, LoadResult, Status
from testbed.containers.observed import Observed
from testbed.containers.services.deploy import deploy
from twinbed import BackendError

RATES_RPS = (8.0, 24.0, 64.0)
_START = Program(1e-4, 1e-4, 5e-5, 1.05, 1e-4, 0.02, 1e-4, 0.0, 0.0, 0.0)
"""Where the search for the costs begins."""
_SOURCE = (
    "measured: an application of twelve services under no limits at three rates, the twin fitted to its CPU"
)
_RATES = "measured: the same, by what more requests add"
_FITTED = ("visit_s", "stage_s", "call_s", "dilation", "wake_s", "wake_tau_s")
_UNITS = {"dilation": "ratio"}
"""Of those that are not seconds."""
_IDLE_ROWS = 3
_LEAST_ANSWERED = 0.95


@dataclass(frozen=True, slots=True)
class Measured:
    """program: fields of lab.calibration.Program but loop_cores; residuals: by how much the fitted twin's CPU
    is not the real one."""

    program: dict[str, Value]
    residuals: dict[str, Value]


@dataclass(frozen=True, slots=True)
class _Run:
    rate_rps: float
    observed: Observed
    load: LoadResult


def measure(duration_s: float, tell: Callable[[float], None]) -> Measured:
    """A run of duration_s per rate; tell: called with the fraction done. Raises as loop.control."""
    runs = []
    for number, rate_rps in enumerate(RATES_RPS):
        runs.append(_run(rate_rps, duration_s))
        tell((number + 1) / len(RATES_RPS))
    counts = [_answered(each.load) for each in runs]
    client_s = max(per_request([each.load.cpu_s for each in runs], counts), 0.0)
    idle = runs[0].observed.series.memory_bytes[:_IDLE_ROWS]
    ran = [_ran(each, duration_s) for each in runs]
    beside = float(np.mean([each.observed.times.own_cores for each in runs]))
    start = replace(_START, loop_cores=beside, client_request_s=client_s)
    cores = float(os.cpu_count() or 1)
    found = fit.fit(ran, start, cores)
    n = sum(counts)
    costs = {name: Value(getattr(found.program, name), _UNITS.get(name, "s"), _SOURCE, n) for name in _FITTED}
    return Measured(
        costs
        | {
            "network_s": distribution(
                np.maximum(fit.beyond_cpu_s(ran, found.program, cores), 0.0),
                "s",
                "measured: latency beyond what the fitted twin has without a network, per call waited for",
            ),
            "base_bytes": Value(
                float(np.median(idle)), "B", "measured: memory of the idle process", int(idle.size)
            ),
            "client_request_s": Value(client_s, "s", _RATES, n),
        },
        dict(_residuals(found)),
    )


def _residuals(found: fit.Fitted) -> Iterator[tuple[str, Value]]:
    """Per rate the median and the largest relative error of a container's CPU."""
    for rate_rps, error in zip(RATES_RPS, np.abs(found.error), strict=True):
        for name, value in (("median", np.median(error)), ("max", error.max())):
            source = f"measured: {name} over containers at {rate_rps:g} requests/s, fitted twin's CPU"
            yield f"program_error_{name}_{rate_rps:g}rps", Value(float(value), "ratio", source, error.size)


def _run(rate_rps: float, duration_s: float) -> _Run:
    app = service_app(subject.application())
    load = subject.arrivals(rate_rps, duration_s)
    with ownership.temporary_directory() as folder, deploy(app, folder) as placed:
        plan = LoadPlan(load.at_s, load.kind, placed.entries, duration_s)
        with LoadGenerator(plan, folder) as client:
            observed = loop.control(
                [loop.Managed(each.spec, ready=each.ready) for each in placed.containers],
                [Application(app.name, 64.0, 1 << 40)],
                make("unlimited", {}),
                loop.Settings(duration_s=duration_s, logs=folder),
                client=client,
            )
            return _Run(rate_rps, observed, client.result())


def _ran(run: _Run, duration_s: float) -> fit.Ran:
    load = run.load
    answered = load.status == Status.OK
    arrivals = subject.arrivals(run.rate_rps, duration_s)
    return fit.Ran(arrivals, duration_s, run.observed.done_s, np.where(answered, load.latency_s, np.nan))


def _answered(load: LoadResult) -> int:
    """How many; BackendError when so many are missing that visits of theirs would be counted to others."""
    count = int(np.count_nonzero(load.status == Status.OK))
    if count < _LEAST_ANSWERED * len(load.at_s):
        raise BackendError(
            f"calibration: {count} of {len(load.at_s)} requests were answered at a rate that a quiet machine "
            "serves with ease; end what else runs here and calibrate again"
        )
    return count
