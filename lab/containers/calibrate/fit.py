"""Finds the costs of the service program with which the twin's CPU use equals the measured CPU use.

For: the arithmetic on a run of the calibration's application (subject.py). Not for: making that run
(program.py). The CPU of a container is linear in every cost except wake_tau_s, for which a grid of values
is tried. The twin runs once more for each cost, with the cost raised a little; non-negative least squares
of relative errors then gives all costs at once. The CPU that a container uses without requests is a
further unknown, one per container and the same at every rate. Latency shows two more quantities: the
imbalance of the machine's CPUs, for which a grid is tried too, and the time on the network. Source:
Gauss-Newton's method; scipy.optimize.nnls (Lawson & Hanson 1974).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from control.allocator import make
from lab.containers.calibrate import subject
from lab.containers.calibrate.values import Program, load_calibration
from lab.containers.run.figures import recorded
from twin.containers.model import Floats
from twin.containers.requests.model import Index, RequestLog
from twin.containers.run import simulate

TAUS_S = tuple(0.001 * 2.0 ** (step / 2) for step in range(15))
"""Time constants of waking up to try: 1 to 128 ms, in seconds."""

IMBALANCE = tuple(0.0625 * step for step in range(17))
"""Shares of imbalance to try, 0 to 1."""

_COMPARED = (0.25, 0.5, 0.75)
"""Quantiles of latency that are compared. Tails are left out, because they come from single threads that
wait."""
_STEPS = {"visit_s": 5e-5, "stage_s": 5e-5, "call_s": 5e-5, "dilation": 0.05, "wake_s": 5e-5}
"""Steps by which each cost is raised to see its effect: seconds, and a ratio for dilation."""
_ROUNDS = 2
"""Number of steps of Gauss-Newton's method."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A run on the testbed.

    asked: the load, with the arrivals as they were sent.
    used_s: CPU seconds of the containers in all rows of a rate, float64[rates, N].
    latency_s: time from when requests were sent, s, float64[A], NaN where there was no answer.
    """

    asked: subject.Schedule
    used_s: Floats
    latency_s: Floats


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of a fit. program: with the costs that explain the run; error: float64[rates, N],
    relative error of the twin's CPU, with the CPU that is used without requests (0 where nothing was
    used)."""

    program: Program
    error: Floats


def fit(ran: Ran, start: Program, cores: float, taus_s: Sequence[float] = TAUS_S) -> Fitted:
    """Return the costs that explain the run best on a host of `cores`; the other fields are those of
    `start`."""
    tried = [_fitted(ran, replace(start, wake_tau_s=tau_s), cores) for tau_s in taus_s]
    return min(tried, key=lambda fitted: float(np.square(fitted.error).sum()))


@dataclass(frozen=True, slots=True)
class Way:
    """Latency that CPU time does not explain.

    call_s: latency of each call for which a request waits, s
    client_s: latency of the client's own request, s
    imbalance: as in Program
    error: root mean square of the logarithms of the ratios of the twin's quantiles to the real ones
    n: number of answers used
    """

    call_s: float
    client_s: float
    imbalance: float
    error: float
    n: int


def way(ran: Ran, costs: Program, cores: float) -> Way:
    """Return the network times and the imbalance that explain the measured latencies best. Only kinds of
    requests that make their calls one after another are used."""
    still = replace(costs, network_s=0.0, client_s=0.0)
    tried = [_way(ran, replace(still, imbalance=imbalance), cores) for imbalance in IMBALANCE]
    return min(tried, key=lambda way: way.error)


def _way(ran: Ran, costs: Program, cores: float) -> Way:
    """Return the way for one imbalance. A line is fitted through the medians of the latency beyond the
    twin's, over the number of calls for which a request waits. The error compares quantiles of twin plus line
    with the real ones, per kind and rate."""
    log = simulated(ran.asked, costs, cores)[1]
    beyond_s = ran.latency_s - log.latency_s
    arrivals = ran.asked.arrivals
    waited = subject.hops()[arrivals.kind]
    known = np.isfinite(waited) & np.isfinite(beyond_s)
    hops = np.unique(waited[known])
    of_hops = [beyond_s[known & (waited == count)] for count in hops]
    weights = np.sqrt([len(group) for group in of_hops])
    line = np.stack([hops, np.ones_like(hops)], axis=1) * weights[:, None]
    (call_s, client_s), _ = nnls(line, [np.median(group) for group in of_hops] * weights)
    twins_s = log.latency_s + call_s * waited + client_s
    rates = ran.asked.rate[
        np.minimum((arrivals.at_s / subject.PERIOD_S).astype(int), len(ran.asked.rate) - 1)
    ]
    squares, count = 0.0, 0
    for rate, kind in np.ndindex(len(subject.RATES_RPS), len(subject.hops())):
        counted = known & (rates == rate) & (arrivals.kind == kind)
        if counted.any():
            ratios = np.quantile(twins_s[counted], _COMPARED) / np.quantile(ran.latency_s[counted], _COMPARED)
            squares += float(np.square(np.log(ratios)).mean()) * int(counted.sum())
            count += int(counted.sum())
    error = float(np.sqrt(squares / count)) if count else 0.0
    return Way(float(call_s), float(client_s), costs.imbalance, error, int(known.sum()))


def used(usage_cores: Floats, rate: Index) -> Floats:
    """Return float64[rates, N]: CPU seconds in all rows of each rate. usage_cores: [T, N], whose last rows
    may be missing."""
    rate = rate[: len(usage_cores)]
    rows = [usage_cores[: len(rate)][rate == index] for index in range(len(subject.RATES_RPS))]
    return np.stack([group.sum(axis=0, dtype=np.float64) for group in rows]) * subject.PERIOD_S


def simulated(asked: subject.Schedule, costs: Program, cores: float) -> tuple[Floats, RequestLog]:
    """Return (CPU as `used`, the log of requests) of the twin's run without limits."""
    load = subject.workload(asked, costs, cores)
    machine = load_calibration().machine()
    outcome = simulate(load, make("unlimited", {}), machine, seed=np.random.SeedSequence(0))
    assert isinstance(outcome.requests, RequestLog)
    return used(np.asarray(recorded(outcome).usage_cores, np.float64), asked.rate), outcome.requests


def _fitted(ran: Ran, costs: Program, cores: float) -> Fitted:
    used_s = ran.used_s.ravel()
    share = np.divide(1.0, used_s, out=np.zeros_like(used_s), where=used_s > 0.0)
    rates, count = ran.used_s.shape
    seconds = np.bincount(ran.asked.rate[ran.asked.rate != subject.WARM_UP], minlength=rates)
    idle = np.kron(seconds[:, None] * subject.PERIOD_S, np.eye(count))
    for _ in range(_ROUNDS):
        at = np.array([getattr(costs, name) for name in _STEPS])
        base_s = _used_s(ran, costs, cores)
        slopes = np.stack(
            [
                (_used_s(ran, replace(costs, **{name: getattr(costs, name) + step}), cores) - base_s) / step
                for name, step in _STEPS.items()
            ],
            axis=1,
        )
        wanted_s = used_s - (base_s - slopes @ at)
        solution, _ = nnls(np.hstack([slopes, idle]) * share[:, None], wanted_s * share)
        costs = replace(costs, **dict(zip(_STEPS, solution.tolist(), strict=False)))
    error = (_used_s(ran, costs, cores) + idle @ solution[len(_STEPS) :] - used_s) * share
    return Fitted(costs, error.reshape(rates, count))


def _used_s(ran: Ran, costs: Program, cores: float) -> Floats:
    return simulated(ran.asked, costs, cores)[0].ravel()
