"""The request engine against closed forms of single queues, and against Ciw's tests of processor sharing.

A figure of a closed form must lie in the 99.9 % confidence interval of independent replications (Student's
t), whose half width is bounded so that the agreement means something: by a share of the figure, or by as many
points where the figure is a share itself. There are as many replications as that width takes (Chow and
Robbins 1965). Where requests wait in turn, control variates narrow it (Lavenberg and Welch 1981). Sequences
are exact.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from control.services import Draw
from control.services import RequestStatus as Status
from tests.oracles.vectors import vectors
from tests.twin.containers.requests.request_world import Driver, Handler, Service, world

EVERYBODY = 1 << 14
"""More workers than there are ever requests: all share the CPUs."""

LEAST_REPLICATIONS, REPLICATIONS, MOST_REPLICATIONS = 10, 20, 60
"""Replications: until the interval is narrow enough; where states are compared; at most."""

REQUESTS = {0.3: 100_000, 0.5: 100_000, 0.7: 650_000, 0.85: 1_100_000, 0.95: 1_100_000}
"""Requests of a replication by load: enough for the queue to be in its steady state."""

WARM_UP = 0.1
"""Share of a replication's requests that are left out at its beginning, when the queue is still empty."""


LEVELS = {"p50_s": 0.5, "p90_s": 0.9, "p99_s": 0.99}


def found(at_s: np.ndarray, end_s: np.ndarray) -> np.ndarray:
    """How many requests each request finds when it comes."""
    # Most requests end in the order in which they came, which a stable sort of numbers uses.
    return np.arange(len(at_s)) - np.searchsorted(np.sort(end_s, kind="stable"), at_s)


def figures(names: Collection[str], at_s: np.ndarray, end_s: np.ndarray, servers: int) -> dict[str, float]:
    """Return the figures with these names of the requests after the warm-up."""
    begin = int(WARM_UP * len(at_s))
    sojourn_s = (end_s - at_s)[begin:]
    made = {"mean_s": float(sojourn_s.mean()), "sd_s": float(sojourn_s.std(ddof=1))}
    if not LEVELS.keys().isdisjoint(names):
        made |= zip(LEVELS, np.quantile(sojourn_s, list(LEVELS.values())).tolist(), strict=True)
    if "waits" in names:
        # A request finds a free server if all but the last few requests before it have ended.
        end_s = np.sort(end_s, kind="stable")
        made["waits"] = float((end_s[begin - servers : -servers] >= at_s[begin:]).mean())
    return {name: figure for name, figure in made.items() if name in names}


def simulated(service: Service, rate_rps: float, requests: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(when due, when ended) of all requests of a replication, which are all answered."""
    at_s = np.cumsum(np.random.default_rng([17, seed]).exponential(1 / rate_rps, requests))
    # Nobody is throttled, so the length of a period changes nothing but the time that the test takes.
    log = Driver(world([service], at_s, periods=int(at_s[-1] / 200) + 3, period_s=200.0), seed=seed).run()
    answered = log.status == Status.OK
    assert answered[: int(requests * 0.99)].all()
    return at_s[answered], log.end_s[answered]


def controls(vector: dict[str, Any], at_s: np.ndarray, end_s: np.ndarray) -> tuple[float, float, float]:
    """Return means of u, N·u and N²·u, which are 0: a request finds N others, independently of u. That is by
    how much its work on the servers exceeds the time until the next request, less its expectation, relative
    to the work's."""
    begin, servers, work_s = int(WARM_UP * len(at_s)), vector["servers"], vector["service_s"]
    start_s = at_s.copy()
    start_s[servers:] = np.maximum(at_s[servers:], np.sort(end_s, kind="stable")[:-servers])
    excess = ((end_s - start_s)[:-1] / work_s - 1) - (np.diff(at_s) * vector["rate_rps"] - 1) / vector["load"]
    others = found(at_s, end_s)[begin:-1].astype(float)
    return tuple(float((others**power * excess[begin:]).mean()) for power in range(3))


def interval(values: Sequence[float], zeros: list[tuple[float, ...]] | None = None) -> tuple[float, float]:
    """Return the mean where the replications' means `zeros` are 0, and half its 99.9 % interval."""
    design = np.column_stack([np.ones(len(values)), *zip(*(zeros or []), strict=True)])
    inverse = np.linalg.inv(design.T @ design)
    best = inverse @ design.T @ values
    left = len(values) - len(best)
    variance = ((values - design @ best) ** 2).sum() / left * inverse[0, 0]
    return float(best[0]), float(stats.t.ppf(0.9995, left) * np.sqrt(variance))


def assert_agrees(mean: float, half: float, theory: float, width: float) -> None:
    """`theory` is in the interval mean ± half, which is at most ± width of it."""
    assert abs(mean - theory) <= half
    assert half <= width * theory


@pytest.mark.slow
@vectors("queueing/closed_forms")
def test_sojourn_times_are_those_of_the_closed_form(vector: dict[str, Any]) -> None:
    servers, load, model = vector["servers"], vector["load"], vector["model"]
    draw = Draw.EXPONENTIAL if vector["cv"] == 1.0 else Draw.LOGNORMAL
    handler = Handler(vector["service_s"], draw=draw, cv=vector["cv"])
    workers = EVERYBODY if "PS" in model else servers
    service = Service({"a": handler}, threads=float(servers), workers=workers)
    share = 0.04 if load > 0.85 else 0.015
    expected: dict[str, float] = vector["expected"]
    width = {name: share / theory if name == "waits" else share for name, theory in expected.items()}
    runs: dict[str, list[float]] = {name: [] for name in expected}
    zeros: list[tuple[float, ...]] = []

    def told(name: str) -> tuple[float, float]:
        # The share of requests that wait varies little without control variates.
        return interval(runs[name], None if name == "waits" else zeros)

    for seed in range(MOST_REPLICATIONS):
        at_s, end_s = simulated(service, vector["rate_rps"], REQUESTS[load], seed)
        for name, figure in figures(runs, at_s, end_s, servers).items():
            runs[name].append(figure)
        zeros.append(() if "PS" in model else controls(vector, at_s, end_s))
        if seed + 1 >= LEAST_REPLICATIONS and all(
            told(name)[1] <= width[name] * expected[name] for name in runs
        ):
            break
    for name in runs:
        assert_agrees(*told(name), expected[name], width[name])
    for values in zip(*zeros, strict=True):
        # The figures of an engine whose work is longer than asked must not be corrected for it.
        mean, half = interval(values)
        assert abs(mean) <= half


@vectors("queueing/processor_sharing", ["*/three_at_full_speed"])
def test_requests_that_share_a_cpu_end_when_ciw_says(vector: dict[str, Any]) -> None:
    handlers = {f"h{k}": Handler(seconds) for k, seconds in enumerate(vector["service_s"])}
    service = Service(handlers, workers=vector["at_once"] or EVERYBODY)
    kinds = np.arange(len(handlers))
    load = world([service], vector["at_s"], list(handlers), kinds, periods=200)
    log = Driver(load).run()
    for end_s, expected_s in zip(log.end_s, vector["ends_s"], strict=True):
        assert expected_s is None or end_s == pytest.approx(expected_s, abs=1e-9)
    if "first_ends_s" in vector:
        first = np.sort(log.end_s)[: vector["first_count"]]
        assert first == pytest.approx(vector["first_ends_s"], abs=1e-9)


@pytest.mark.slow
@vectors("queueing/processor_sharing", ["*/three_together", "*/fourth_*", "*/four_*"])
def test_states_of_a_shared_queue_are_ciw_s(vector: dict[str, Any]) -> None:
    full, rate = vector["full_speed_up_to"], vector["arrival_rate_per_s"]
    handler = Handler(1 / vector["service_rate_per_s"], draw=Draw.EXPONENTIAL)
    service = Service({"a": handler}, threads=float(full), workers=EVERYBODY)
    shares = []
    for seed in range(REPLICATIONS):
        at_s, end_s = simulated(service, rate, 100_000, seed)
        # Poisson arrivals see time averages.
        counts = np.bincount(found(at_s, end_s), minlength=len(vector["state_probabilities"]))
        shares.append(counts / len(at_s))
    for state, theory in enumerate(vector["state_probabilities"]):
        if theory > 1e-3:
            assert_agrees(*interval([share[state] for share in shares]), theory, 0.1)
