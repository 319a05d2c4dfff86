"""Open-loop arrival times of client requests, drawn or given, and the kind of each request.

For: `RequestWorkload.arrivals`. Not for: reading rates and time stamps from files (traces), their text form
(lab.containers.input.services.arrivals) or what a client does while it waits (`Client`).

Every function returns float64[A], seconds, ascending, within [0, duration_s). Rates are requests per second,
finite and zero or above. A rate of zero gives no arrivals, and no arrivals are an empty array. A rate or a
length outside its range is an InvariantError, because a user's is refused where the text is read. Source: a
Poisson stream is drawn as a Poisson count and that many uniform times, which is the same process as
exponential gaps and needs no loop (Ross, Introduction to Probability Models, "order statistics" of the
Poisson process).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from twin.containers.model import Floats
from twin.containers.requests.model import Arrivals
from twinbed import InvariantError


def fixed(rate_rps: float, duration_s: float) -> Floats:
    """Return one request every 1/rate seconds, the first at 0."""
    return piecewise([rate_rps], duration_s, None, "even")


def poisson(rate_rps: float, duration_s: float, rng: np.random.Generator) -> Floats:
    """Return a Poisson stream: exponential gaps of mean 1/rate."""
    return piecewise([rate_rps], duration_s, rng)


def burst(
    base_rps: float,
    burst_rps: float,
    every_s: float,
    length_s: float,
    duration_s: float,
    rng: np.random.Generator,
) -> Floats:
    """Return evenly spaced requests at base_rps throughout, and Poisson bursts at burst_rps on top of them.

    Time is cut into cycles of every_s. The last length_s (≤ every_s) of each cycle are the burst, so a run
    begins quiet. The last cycle may be cut.
    """
    if not 0 < length_s <= every_s:
        raise InvariantError(f"bursts of {length_s} s every {every_s} s")
    begins = np.arange(every_s - length_s, duration_s, every_s)
    ends = np.minimum(begins + length_s, duration_s)
    edges = np.concatenate([[0.0], np.column_stack([begins, ends]).ravel()])
    rates = np.zeros(len(edges) - 1)
    rates[1::2] = burst_rps
    bursts = _poisson(_checked(rates), edges, rng)
    return np.sort(np.concatenate([fixed(base_rps, duration_s), bursts]))


def piecewise(
    rates_rps: ArrayLike,
    step_s: float,
    rng: np.random.Generator | None,
    spacing: Literal["poisson", "even"] = "poisson",
) -> Floats:
    """Return arrivals at rates_rps float64[n], each for step_s; duration_s = n·step_s.

    even: the k-th request comes when the integral of the rate reaches k (k = 0, 1, …). This draws nothing, so
    rng may be None.
    """
    rates = _checked(rates_rps)
    if not 0 < step_s < np.inf:
        raise InvariantError(f"steps of {step_s} s")
    edges = np.arange(len(rates) + 1, dtype=np.float64) * step_s
    if spacing == "even":
        return _even(rates, edges)
    if rng is None:
        raise InvariantError("a Poisson stream needs a random generator")
    return _poisson(rates, edges, rng)


def wandering_rates(
    low_rps: float,
    high_rps: float,
    correlation_s: float,
    step_s: float,
    duration_s: float,
    rng: np.random.Generator,
) -> Floats:
    """Return rates for `piecewise`, float64[⌈duration/step⌉], that wander over all of [low, high].

    They are a Brownian motion reflected at both bounds. Every rate between them is equally likely at any
    moment, and the correlation falls as exp(−t/correlation_s) (its slowest mode, 98.6 % of the variance; Cox
    & Miller, The Theory of Stochastic Processes, 5.7).
    """
    if not (0 <= low_rps <= high_rps < np.inf and correlation_s > 0 and step_s > 0):
        raise InvariantError(f"rates wandering over {low_rps}–{high_rps}, {correlation_s} s, {step_s} s")
    steps = int(np.ceil(duration_s / step_s))
    moves = rng.normal(0.0, np.sqrt(2 * step_s / correlation_s) / np.pi, max(steps, 1))
    moves[0] = rng.random()
    folded = np.cumsum(moves)[:steps] % 2.0
    return np.asarray(low_rps + (high_rps - low_rps) * np.minimum(folded, 2.0 - folded), np.float64)


def timestamps(at_s: ArrayLike, duration_s: float) -> Floats:
    """Return the given times that are in [0, duration_s), sorted."""
    times = np.asarray(at_s, np.float64)
    if not np.isfinite(times).all():
        raise InvariantError("an arrival time is not finite")
    return np.sort(times[(times >= 0) & (times < duration_s)])


def with_kinds(at_s: Floats, weights: ArrayLike, rng: np.random.Generator) -> Arrivals:
    """Return arrivals of kinds drawn in proportion to weights (float64[R], ≥ 0, not all 0)."""
    shares = np.asarray(weights, np.float64)
    if not (np.isfinite(shares).all() and (shares >= 0).all() and shares.sum() > 0):
        raise InvariantError(f"weights of requests are {shares.tolist()}")
    total = np.cumsum(shares)
    kind = np.searchsorted(total, rng.random(len(at_s)) * total[-1], side="right")
    # The product may round up to the total, which belongs to the last kind that has a weight.
    return Arrivals(at_s, np.minimum(kind, np.flatnonzero(shares)[-1]).astype(np.int64))


def _checked(rates_rps: ArrayLike) -> Floats:
    rates = np.asarray(rates_rps, np.float64)
    if not (rates.ndim == 1 and np.isfinite(rates).all() and (rates >= 0).all()):
        raise InvariantError(f"request rates are not finite numbers, zero or above: {rates}")
    return rates


def _even(rates: Floats, edges: Floats) -> Floats:
    due = np.concatenate([[0.0], np.cumsum(rates * np.diff(edges))])
    number = np.arange(np.ceil(due[-1]))
    # "right" skips stretches of rate zero, so the division is safe.
    step = np.searchsorted(due, number, side="right") - 1
    at_s = edges[step] + (number - due[step]) / rates[step]
    return np.asarray(at_s[at_s < edges[-1]], np.float64)


def _poisson(rates: Floats, edges: Floats, rng: np.random.Generator) -> Floats:
    length = np.diff(edges)
    counts = rng.poisson(rates * length)
    at_s = np.repeat(edges[:-1], counts) + np.repeat(length, counts) * rng.random(int(counts.sum()))
    # A sum may round up to the end of the last step, which is no longer inside.
    return np.asarray(np.sort(np.minimum(at_s, np.nextafter(edges[-1], 0.0))), np.float64)
