"""What the service program costs, found by asking the twin: which costs make it use the CPU that was used.

For: pure arithmetic on runs of the calibration's application (subject.py). Not for: making them (program.py).
CPU per container is linear in every cost but wake_tau_s, for which a grid is tried; so the twin is run with
each cost raised a little, and non-negative least squares of relative errors gives all of them at once. What a
container uses whatever it is asked (timers, its first connections) is a further unknown of each, the same at
every rate. Source: Gauss-Newton's method; scipy.optimize.nnls (Lawson & Hanson 1974).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from control.allocator import make
from lab.calibrating import subject
from lab.calibration import Program, load_calibration
from twin.containers import simulate
from twin.containers.model import Floats
from twin.containers.requests.model import Arrivals, RequestLog

TAUS_S = tuple(0.001 * 2.0 ** (step / 2) for step in range(15))
"""Time constants that are tried: 1 to 128 ms."""

_STEPS = {"visit_s": 5e-5, "stage_s": 5e-5, "call_s": 5e-5, "dilation": 0.05, "wake_s": 5e-5}
"""By how much each cost is raised to see what it does."""
_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Ran:
    """A run for real: arrivals; duration_s; used_s: float64[N], CPU per container; latency_s: float64[A], NaN
    where there was no answer."""

    arrivals: Arrivals
    duration_s: float
    used_s: Floats
    latency_s: Floats


@dataclass(frozen=True, slots=True)
class Fitted:
    """program: with the costs found; error: float64[runs, N], relative, of the twin's CPU with what is used
    whatever is asked (0 where nothing was used)."""

    program: Program
    error: Floats


def fit(runs: Sequence[Ran], start: Program, cores: float, taus_s: Sequence[float] = TAUS_S) -> Fitted:
    """The costs of `start` (whose other fields are kept) that explain the runs best, on a host of `cores`."""
    tried = [_fitted(runs, replace(start, wake_tau_s=tau_s), cores) for tau_s in taus_s]
    return min(tried, key=lambda each: float(np.square(each.error).sum()))


def beyond_cpu_s(runs: Sequence[Ran], costs: Program, cores: float) -> Floats:
    """float64[answers to requests that made calls]: latency that the twin does not explain by CPU, per call
    that was waited for."""
    hops = subject.hops()
    left = []
    for ran in runs:
        log = simulated(ran, replace(costs, network_s=0.0), cores)[1]
        waited = hops[ran.arrivals.kind]
        asked = (waited > 0) & np.isfinite(ran.latency_s) & np.isfinite(log.latency_s)
        left.append((ran.latency_s - log.latency_s)[asked] / waited[asked])
    return np.concatenate(left)


def _fitted(runs: Sequence[Ran], costs: Program, cores: float) -> Fitted:
    used_s = np.concatenate([ran.used_s for ran in runs])
    share = np.divide(1.0, used_s, out=np.zeros_like(used_s), where=used_s > 0.0)
    count = len(used_s) // len(runs)
    idle = np.tile(np.eye(count), (len(runs), 1))
    for _ in range(_ROUNDS):
        at = np.array([getattr(costs, name) for name in _STEPS])
        here_s = _used_s(runs, costs, cores)
        slopes = np.stack(
            [
                (_used_s(runs, replace(costs, **{name: getattr(costs, name) + step}), cores) - here_s) / step
                for name, step in _STEPS.items()
            ],
            axis=1,
        )
        wanted_s = used_s - (here_s - slopes @ at)
        found, _ = nnls(np.hstack([slopes, idle]) * share[:, None], wanted_s * share)
        costs = replace(costs, **dict(zip(_STEPS, found.tolist(), strict=False)))
    error = (_used_s(runs, costs, cores) + idle @ found[len(_STEPS) :] - used_s) * share
    return Fitted(costs, error.reshape(len(runs), count))


def _used_s(runs: Sequence[Ran], costs: Program, cores: float) -> Floats:
    return np.concatenate([simulated(ran, costs, cores)[0] for ran in runs])


def simulated(ran: Ran, costs: Program, cores: float) -> tuple[Floats, RequestLog]:
    """(CPU per container, what became of the requests) of the twin's run without limits."""
    load = subject.workload(ran.arrivals, ran.duration_s, costs, cores)
    machine = load_calibration().machine()
    seed = np.random.SeedSequence(0)
    outcome = simulate(load, make("unlimited", {}), machine, seed=seed, record=False)
    assert isinstance(outcome.requests, RequestLog)
    return outcome.done_s, outcome.requests
