"""The application whose CPU tells what the service program costs, its load, and both on twin and testbed.

For: program.py, which runs it for real, and fit.py, which asks the twin about it. Not for: scenarios; no
validation uses it, so that what is calibrated and what is validated share nothing. Its services differ in all
that the costs are made of: demand, calls, calls at once, and how long they idle between visits (from nothing,
when they are called several times in a row, to seconds). All demands are fixed, so that nothing but the costs
is unknown.
"""

from __future__ import annotations

import numpy as np

from control.allocator.model import Application
from lab.calibration import Program
from lab.services.application import AppSpec
from lab.services.arrivals import Exponential, generate
from lab.services.costs import beside, with_program
from lab.services.graph import compile_graph
from lab.services.load import build_app
from twin.containers.model import Floats
from twin.containers.requests.model import Arrivals, Client, RequestWorkload

PERIOD_S = 0.1
LEAD_S, TAIL_S = 0.5, 1.0
"""Of a run, without requests: before the first, for the loop to settle, and after the last, for it to end."""

_LEAVES_MS = {"often": 0.3, "short": 0.3, "middle": 1.0, "long": 4.0, "far": 0.4}
_OFTEN, _FAR = "often.work", "far.work"
_CALLERS: dict[str, tuple[float, float, list[object]]] = {
    # name: (weight, CPU ms, calls)
    "row": (2.0, 0.6, [_OFTEN] * 5),
    "walk": (2.0, 1.0, ["short.work", "middle.work", "long.work"]),
    "fan": (2.0, 1.0, [["short.work", "middle.work", _OFTEN, _FAR]]),
    "many": (1.0, 0.5, [[{"call": _OFTEN, "times": 8}]]),
    "mixed": (2.0, 2.0, [["short.work", "middle.work"], [_OFTEN, "short.work"]]),
    "bare": (1.0, 3.0, []),
    "rare": (0.4, 0.5, []),
}


def application() -> AppSpec:
    """Seven services that clients ask, and five that these call."""
    callers = {
        name: {"handlers": {"page": {"cpu_ms": cpu_ms, "distribution": "fixed", "calls": calls}}}
        for name, (_, cpu_ms, calls) in _CALLERS.items()
    }
    leaves = {
        name: {"handlers": {"work": {"cpu_ms": cpu_ms, "distribution": "fixed"}}}
        for name, cpu_ms in _LEAVES_MS.items()
    }
    memory = {"base_mib": 0, "request_kib": 0}
    return build_app(
        {
            "name": "calibration",
            "defaults": {"memory": memory},
            "services": callers | leaves,
            "requests": {
                name: {"handler": f"{name}.page", "weight": weight}
                for name, (weight, _, _) in _CALLERS.items()
            },
        }
    )


def arrivals(rate_rps: float, duration_s: float) -> Arrivals:
    """Poisson arrivals, always the same ones, with nobody in the first and the last moments of the run."""
    asked_s = max(duration_s - LEAD_S - TAIL_S, PERIOD_S)
    weights = np.array([weight for weight, _, _ in _CALLERS.values()])
    drawn = generate(
        Exponential(kind="exponential", rate_rps=rate_rps), asked_s, weights, np.random.SeedSequence(0)
    )
    return Arrivals(drawn.at_s + LEAD_S, drawn.kind)


def workload(load: Arrivals, duration_s: float, costs: Program, cores: float) -> RequestWorkload:
    """The application under that load as the twin takes it, on this machine's `cores`."""
    compiled = with_program(compile_graph(application()), costs)
    count = len(compiled.names)
    whole = RequestWorkload(
        names=compiled.names,
        applications=(Application("calibration", cores, 1 << 40),),
        app=np.zeros(count, np.int64),
        period_s=PERIOD_S,
        periods=max(1, round(duration_s / PERIOD_S)),
        threads=compiled.threads,
        host=np.zeros(count, np.int64),
        cores_of_host=np.array([cores]),
        host_cores=np.full(count, cores),
        peak_cores=np.full(count, cores),
        peak_bytes=np.full(count, 1 << 30),
        phase_s=np.zeros(count),
        graph=compiled.graph,
        arrivals=load,
        client=Client(),
    )
    return beside(whole, costs, len(load.at_s) / duration_s)


def hops() -> Floats:
    """float64[R]: how many calls a request of each kind waits for one after another."""
    return np.array([float(len(calls)) for _, _, calls in _CALLERS.values()])
