"""The application for measuring the service program's costs, its load, and both on twin and testbed.

For: program.py, which runs it for real, and fit.py, which runs it on the twin. Not for: scenarios. No
validation uses it, so calibration and validation share nothing. Its services differ in everything that the
costs depend on: demand, calls, parallel calls, and idle time between visits (from none, when they are called
several times in a row, to seconds). All demands are fixed, so that only the costs are unknown. One run has
all rates, a few seconds of each in turn, so that other work on the machine meets all rates alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.allocator.model import Application
from lab.containers.calibrate.values import Program
from lab.containers.input.services.application import AppSpec, build_app
from lab.containers.input.services.arrivals import Exponential, generate
from lab.containers.input.services.costs import beside, with_program
from lab.containers.input.services.graph import compile_graph
from twin.containers.cfs import Flags
from twin.containers.model import Floats
from twin.containers.requests.model import Arrivals, Client, Index, RequestWorkload

PERIOD_S = 0.1
RATES_RPS = (8.0, 32.0, 128.0)
WARM_UP = -1
"""Rate index of the rows that do not count, in which connections are opened and code runs for the first
time."""

_BLOCK_S = 5.0
_GAP_S = 0.4
"""Time of a block without requests, half at each end, so that the block's requests end in its rows, s."""

LEAF_BYTES = 32 << 20
"""Memory that each service declares that makes no calls: more than the program takes by itself. The others
declare none."""

_LEAVES_MS = {"often": 0.3, "short": 0.3, "middle": 1.0, "long": 4.0, "far": 0.4}
_OFTEN, _FAR = "often.work", "far.work"
_CALLERS: dict[str, tuple[float, float, list[object]]] = {
    # name: (weight, CPU ms, calls)
    "row": (2.0, 0.6, [_OFTEN] * 5),
    "walk": (2.0, 1.0, ["short.work", "middle.work", "long.work"]),
    "fan": (2.0, 1.0, [["short.work", "middle.work", "long.work", _FAR]]),
    "many": (1.0, 0.5, [[{"call": _OFTEN, "times": 8}]]),
    "mixed": (2.0, 2.0, [["short.work", "middle.work"], [_OFTEN, "short.work"]]),
    "bare": (1.0, 3.0, []),
    "rare": (0.4, 0.5, []),
}


def application() -> AppSpec:
    """Return seven services that clients call, and five services that these call."""
    callers = {
        name: {"handlers": {"page": {"cpu_ms": cpu_ms, "distribution": "fixed", "calls": calls}}}
        for name, (_, cpu_ms, calls) in _CALLERS.items()
    }
    leaves = {
        name: {
            "handlers": {"work": {"cpu_ms": cpu_ms, "distribution": "fixed"}},
            "memory": {"base_mib": LEAF_BYTES >> 20, "request_kib": 0},
        }
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


@dataclass(frozen=True, slots=True)
class Schedule:
    """The load of a run. arrivals: arrivals of all requests; duration_s: length, s; rate: int64[T], index of
    each period into RATES_RPS, or WARM_UP."""

    arrivals: Arrivals
    duration_s: float
    rate: Index


def schedule(about_s: float) -> Schedule:
    """Return the load of a run of about `about_s` seconds, always the same for the same length. It has
    blocks of equal length: the first warms up, then the rates take turns with Poisson arrivals, all
    equally often."""
    rounds = max(1, round((about_s / _BLOCK_S - 1) / len(RATES_RPS)))
    rates = np.array([WARM_UP, *list(range(len(RATES_RPS))) * rounds], np.int64)
    rows = max(round(about_s / len(rates) / PERIOD_S), round(2 * _GAP_S / PERIOD_S))
    block_s = rows * PERIOD_S
    weights = np.array([weight for weight, _, _ in _CALLERS.values()])
    blocks = []
    for number, (rate, seed) in enumerate(
        zip(rates, np.random.SeedSequence(0).spawn(len(rates)), strict=True)
    ):
        # At index −1 (the warm-up) this gives the last rate, which is the highest.
        spec = Exponential(kind="exponential", rate_rps=RATES_RPS[rate])
        drawn = generate(spec, block_s - _GAP_S, weights, seed)
        blocks.append((drawn.at_s + number * block_s + _GAP_S / 2, drawn.kind))
    at_s, kind = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return Schedule(Arrivals(at_s, kind), len(rates) * block_s, np.repeat(rates, rows))


def workload(asked: Schedule, costs: Program, cores: float) -> RequestWorkload:
    """Return the application under that load as the twin takes it, on a machine of `cores`."""
    compiled = with_program(compile_graph(application()), costs)
    count = len(compiled.names)
    whole = RequestWorkload(
        names=compiled.names,
        applications=(Application("calibration", cores, 1 << 40),),
        app=np.zeros(count, np.int64),
        period_s=PERIOD_S,
        periods=len(asked.rate),
        threads=compiled.threads,
        host=np.zeros(count, np.int64),
        cores_of_host=np.array([cores]),
        host_cores=np.full(count, cores),
        peak_cores=np.full(count, cores),
        peak_bytes=np.full(count, 1 << 30),
        phase_s=np.zeros(count),
        graph=compiled.graph,
        arrivals=asked.arrivals,
        client=Client(),
    )
    return beside(whole, costs, len(asked.arrivals.at_s) / asked.duration_s)


def leaves() -> Flags:
    """Return bool[N]: which containers declare LEAF_BYTES."""
    return np.array([name in _LEAVES_MS for name in compile_graph(application()).names])


def hops() -> Floats:
    """Return float64[R]: the number of calls that a request of each kind waits for one after another; NaN
    for kinds with parallel calls, whose answers wait for each other."""
    return np.array(
        [
            np.nan if any(isinstance(call, list) for call in calls) else float(len(calls))
            for _, _, calls in _CALLERS.values()
        ]
    )
