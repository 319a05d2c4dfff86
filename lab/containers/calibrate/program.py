"""Measures the costs of the service program: CPU per visit, stage, call and wake-up, memory, network, load
generator.

For: `twinbed calibrate`, which runs the application of subject.py on the testbed without limits. Not for:
scenarios, nor separating the costs (fit.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from control.allocator import make
from control.allocator.model import Application
from control.services import RequestStatus
from lab.ask.calibration import Value, distribution
from lab.containers.calibrate import fit, subject
from lab.containers.calibrate.figures import per_request
from lab.containers.calibrate.values import Program
from lab.containers.input.services.graph import service_app
from lab.containers.real.backend import CLIENT_GRACE_S
from lab.containers.real.outcome import Busy
from testbed.containers import ownership
from testbed.containers.host import loop
from testbed.containers.host.identity import own
from testbed.containers.host.observed import Observed
from testbed.containers.load.generator import LoadGenerator
from testbed.containers.load.plan import LoadPlan, LoadResult
from testbed.containers.machine import switches_of
from testbed.containers.services.deploy import SERVE, deploy
from twin.containers.requests.model import Arrivals, Index
from twinbed import BackendError

_START = Program(1e-4, 1e-4, 5e-5, 1.05, 1e-4, 0.02, 1e-4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Costs at which the search begins."""
_SOURCE = "measured: an application of twelve services under no limits at three rates, the twin fitted to it"
_CLIENT = "measured: the same, by what more requests add"
_SHORT = 0.1
"""Length of the short run as a share of the long one's. It only shows the costs that do not depend on
requests."""
_FITTED = ("visit_s", "stage_s", "call_s", "dilation", "wake_s", "wake_tau_s")
_UNITS = {"dilation": "ratio"}
"""Units of the fitted costs that are not in seconds."""
_WAY = "measured: latency beyond what the fitted twin has without a network"
_STOLEN = "measured: the hypervisor's share of the CPU time that was wanted in that run, /proc/stat"
_IMBALANCE = "measured: latencies of that run, which the twin has most nearly with it"
_MOVES = "measured: changes of the CPU per voluntary switch of the services' first threads in that run, /proc"
_UNMOVED = "assumption: this kernel has no /proc/PID/sched; 0 keeps a container on its CPU"
_LATENCY = "measured: root mean square of the logarithms of the fitted twin's to real latency quantiles"
_MEMORY = "measured: what a container holds in that run, working set"
LEAST_ANSWERED = 0.95
"""Share of the requests that must be answered for the run to count."""


@dataclass(frozen=True, slots=True)
class MeasuredProgram:
    """The measured values. program: fields of lab.containers.calibrate.values.Program except loop_cores;
    residuals: relative errors of the fitted twin's CPU and latency."""

    program: dict[str, Value]
    residuals: dict[str, Value]


def measure(about_s: float, tell: Callable[[float], None]) -> MeasuredProgram:
    """Make a run of about `about_s` seconds and a short one. tell: function called with the fraction done.
    Raise the errors of `control`."""
    _, few, _, _ = _run(subject.schedule(about_s * _SHORT))
    tell(_SHORT)
    asked = subject.schedule(about_s)
    observed, load, stolen, moves = _run(asked)
    tell(1.0)
    counts = (_answered(few), _answered(load))
    client_s = max(per_request((few.cpu_s, load.cpu_s), counts), 0.0)
    ran = _ran(asked, observed, load)
    cores = float(os.cpu_count() or 1)
    start = replace(
        _START,
        loop_cores=observed.times.own_cores,
        client_request_s=client_s,
        stolen=stolen,
        moves=moves.value,
    )
    fitted = fit.fit(ran, start, cores)
    way = fit.way(ran, fitted.program, cores)
    n = counts[1]
    costs = {
        name: Value(getattr(fitted.program, name), _UNITS.get(name, "s"), _SOURCE, n) for name in _FITTED
    }
    return MeasuredProgram(
        costs
        | dict(_memory(observed.series.memory_bytes, asked.rate))
        | {
            "network_s": Value(way.call_s, "s", f"{_WAY}, per call waited for", way.n),
            "client_request_s": Value(client_s, "s", _CLIENT, sum(counts)),
            "client_s": Value(way.client_s, "s", f"{_WAY}, of a request that makes no calls", way.n),
            "stolen": Value(stolen, "1", _STOLEN),
            "moves": moves,
            "imbalance": Value(way.imbalance, "1", _IMBALANCE, way.n),
        },
        dict(_residuals(fitted)) | {"program_error_latency": Value(way.error, "ratio", _LATENCY, way.n)},
    )


def _memory(held_bytes: NDArray[np.int64], rate: Index) -> Iterator[tuple[str, Value]]:
    """Yield the memory of containers that declare none, and the memory of others beyond what they declare.

    held_bytes: int64[T, N], whose last rows may be missing. The rows of the warm-up do not count.
    """
    rate = rate[: len(held_bytes)]
    held = held_bytes[: len(rate)][rate != subject.WARM_UP]
    leaves = subject.leaves()
    yield "base_bytes", distribution(held[:, ~leaves].ravel(), "B", f"{_MEMORY}, declares none")
    beyond = (held[:, leaves] - subject.LEAF_BYTES).ravel()
    yield "kernel_bytes", distribution(beyond, "B", f"{_MEMORY}, beyond the {subject.LEAF_BYTES} B declared")


def _ran(asked: subject.Schedule, observed: Observed, load: LoadResult) -> fit.Ran:
    """Return the run for the fit, with requests at the moments at which the load generator turned to them."""
    sent_s = load.at_s + load.late_s
    order = np.argsort(sent_s, kind="stable")
    latency_s = np.where(load.status == RequestStatus.OK, load.end_s - sent_s, np.nan)
    sent = replace(asked, arrivals=Arrivals(sent_s[order], load.kind[order]))
    return fit.Ran(
        sent, fit.used(observed.series.usage_cores.astype(np.float64), asked.rate), latency_s[order]
    )


def _residuals(fitted: fit.Fitted) -> Iterator[tuple[str, Value]]:
    """Yield, per rate, the median and the largest relative error of a container's CPU."""
    for rate_rps, error in zip(subject.RATES_RPS, np.abs(fitted.error), strict=True):
        for name, value in (("median", np.median(error)), ("max", error.max())):
            source = f"measured: {name} over containers at {rate_rps:g} requests/s, fitted twin's CPU"
            yield f"program_error_{name}_{rate_rps:g}rps", Value(float(value), "ratio", source, error.size)


def _run(asked: subject.Schedule) -> tuple[Observed, LoadResult, float, Value]:
    """Return (containers, requests, share of the CPU time that the hypervisor took, Program.moves)."""
    busy, switches = Busy(), (0, 0)
    app = service_app(subject.application())
    with ownership.temporary_directory() as folder, deploy(app, folder) as placed:

        def on_tick(tick: loop.Progress) -> None:
            nonlocal switches
            busy.note(tick.elapsed_s)
            if not switches[1] and tick.elapsed_s >= asked.duration_s - 2 * subject.PERIOD_S:
                switches = switches_of(SERVE, str(folder))

        plan = LoadPlan(asked.arrivals.at_s, asked.arrivals.kind, placed.entries, asked.duration_s)
        with LoadGenerator(plan, folder) as client:
            observed = loop.control(
                [loop.Managed(container.spec, ready=container.ready) for container in placed.containers],
                [Application(app.name, 64.0, 1 << 40)],
                make("unlimited", {}),
                loop.Settings(
                    duration_s=asked.duration_s + CLIENT_GRACE_S, logs=folder, identity=own(os.environ)
                ),
                client=client,
                on_tick=on_tick,
            )
            used, stolen = busy.cores()
            moves = Value(0.0, "1", _UNMOVED)
            if switches[1]:
                moves = Value(switches[0] / switches[1], "1", _MOVES, switches[1])
            return observed, client.result(), stolen / (used + stolen) if stolen else 0.0, moves


def _answered(load: LoadResult) -> int:
    """Return the number of answered requests. Raise BackendError if too many are missing: the costs of their
    visits would be attributed to others."""
    count = int(np.count_nonzero(load.status == RequestStatus.OK))
    if count < LEAST_ANSWERED * len(load.at_s):
        raise BackendError(
            f"calibration: {count} of {len(load.at_s)} requests were answered at a rate that a quiet machine "
            "serves with ease; end the other programs on this machine and calibrate again"
        )
    return count
