"""What the service program costs, found by asking the twin: which costs make it use the CPU that was used.

For: pure arithmetic on a run of the calibration's application (subject.py). Not for: making it (program.py).
CPU per container is linear in every cost but wake_tau_s, for which a grid is tried; so the twin is run with
each cost raised a little, and non-negative least squares of relative errors gives all of them at once. What a
container uses whatever it is asked is a further unknown of each, the same at every rate. Latency tells what
CPU cannot: how unbalanced the machine's CPUs are, for which a grid is tried too, and the way. Source:
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
from twin.containers import simulate
from twin.containers.model import Floats
from twin.containers.requests.model import Index, RequestLog

TAUS_S = tuple(0.001 * 2.0 ** (step / 2) for step in range(15))
"""Time constants that are tried: 1 to 128 ms."""

IMBALANCE = tuple(0.0625 * step for step in range(17))
"""Shares that are tried."""

_COMPARED = (0.25, 0.5, 0.75)
"""Quantiles of latency by which they are judged: tails are of threads that wait alone."""
_STEPS = {"visit_s": 5e-5, "stage_s": 5e-5, "call_s": 5e-5, "dilation": 0.05, "wake_s": 5e-5}
"""By how much each cost is raised to see what it does."""
_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Ran:
    """A run for real. asked: with the arrivals as they were sent; used_s: float64[rates, N], CPU of
    containers in all rows of a rate; latency_s: float64[A], from when they were sent, NaN where there was no
    answer."""

    asked: subject.Schedule
    used_s: Floats
    latency_s: Floats


@dataclass(frozen=True, slots=True)
class Fitted:
    """program: with the costs found; error: float64[rates, N], relative, of the twin's CPU with what is used
    whatever is asked (0 where nothing was used)."""

    program: Program
    error: Floats


def fit(ran: Ran, start: Program, cores: float, taus_s: Sequence[float] = TAUS_S) -> Fitted:
    """The costs of `start` (whose other fields are kept) that explain the run best, on a host of `cores`."""
    tried = [_fitted(ran, replace(start, wake_tau_s=tau_s), cores) for tau_s in taus_s]
    return min(tried, key=lambda each: float(np.square(each.error).sum()))


@dataclass(frozen=True, slots=True)
class Way:
    """Latency that no CPU time explains. call_s: of each call that is waited for; client_s: of the client's
    own request; imbalance: as Program's; error: root mean square of the logarithms of twin's to real
    quantiles; n: answers that it is from."""

    call_s: float
    client_s: float
    imbalance: float
    error: float
    n: int


def way(ran: Ran, costs: Program, cores: float) -> Way:
    """What explains the latencies of the kinds that make their calls one after another best."""
    still = replace(costs, network_s=0.0, client_s=0.0)
    tried = [_way(ran, replace(still, imbalance=imbalance), cores) for imbalance in IMBALANCE]
    return min(tried, key=lambda each: each.error)


def _way(ran: Ran, costs: Program, cores: float) -> Way:
    """Of this imbalance: the line through the medians of what is beyond the twin's latency, by how many
    calls are waited for; then twin and line beside what was, per kind and rate."""
    log = simulated(ran.asked, costs, cores)[1]
    beyond_s = ran.latency_s - log.latency_s
    arrivals = ran.asked.arrivals
    waited = subject.hops()[arrivals.kind]
    known = np.isfinite(waited) & np.isfinite(beyond_s)
    hops = np.unique(waited[known])
    of_hops = [beyond_s[known & (waited == count)] for count in hops]
    weights = np.sqrt([len(each) for each in of_hops])
    line = np.stack([hops, np.ones_like(hops)], axis=1) * weights[:, None]
    (call_s, client_s), _ = nnls(line, [np.median(each) for each in of_hops] * weights)
    twins_s = log.latency_s + call_s * waited + client_s
    rates = ran.asked.rate[
        np.minimum((arrivals.at_s / subject.PERIOD_S).astype(int), len(ran.asked.rate) - 1)
    ]
    squares, count = 0.0, 0
    for rate, kind in np.ndindex(len(subject.RATES_RPS), len(subject.hops())):
        here = known & (rates == rate) & (arrivals.kind == kind)
        if here.any():
            ratios = np.quantile(twins_s[here], _COMPARED) / np.quantile(ran.latency_s[here], _COMPARED)
            squares += float(np.square(np.log(ratios)).mean()) * int(here.sum())
            count += int(here.sum())
    error = float(np.sqrt(squares / count)) if count else 0.0
    return Way(float(call_s), float(client_s), costs.imbalance, error, int(known.sum()))


def used(usage_cores: Floats, rate: Index) -> Floats:
    """float64[rates, N]: CPU seconds in all rows of each rate; usage_cores: [T, N], of which the last may be
    missing."""
    rate = rate[: len(usage_cores)]
    rows = [usage_cores[: len(rate)][rate == index] for index in range(len(subject.RATES_RPS))]
    return np.stack([each.sum(axis=0, dtype=np.float64) for each in rows]) * subject.PERIOD_S


def simulated(asked: subject.Schedule, costs: Program, cores: float) -> tuple[Floats, RequestLog]:
    """(CPU as `used`, what became of the requests) of the twin's run without limits."""
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
        here_s = _used_s(ran, costs, cores)
        slopes = np.stack(
            [
                (_used_s(ran, replace(costs, **{name: getattr(costs, name) + step}), cores) - here_s) / step
                for name, step in _STEPS.items()
            ],
            axis=1,
        )
        wanted_s = used_s - (here_s - slopes @ at)
        found, _ = nnls(np.hstack([slopes, idle]) * share[:, None], wanted_s * share)
        costs = replace(costs, **dict(zip(_STEPS, found.tolist(), strict=False)))
    error = (_used_s(ran, costs, cores) + idle @ found[len(_STEPS) :] - used_s) * share
    return Fitted(costs, error.reshape(rates, count))


def _used_s(ran: Ran, costs: Program, cores: float) -> Floats:
    return simulated(ran.asked, costs, cores)[0].ravel()
