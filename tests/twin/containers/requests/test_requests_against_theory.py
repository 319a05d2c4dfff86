"""The engine against queueing theory where the quota does not bind.

Means over independent replications with fixed seeds; the theory must lie in their 99.9 % confidence interval
(Student's t), and the interval must be narrow enough to mean something.
"""

from collections.abc import Callable
from math import factorial, log

import numpy as np
import pytest
from scipy import stats

from control.services import Draw
from control.services import RequestStatus as Status
from tests.twin.containers.requests.request_world import Driver, Handler, Service, chain, world
from twin.containers.requests.model import RequestLog

REPLICATIONS, REQUESTS, WARM_UP = 20, 12_000, 2_000
SERVICE_S = 0.01


def replications(
    services: list[Service], rate_rps: float, measure: Callable[[RequestLog], float]
) -> np.ndarray:
    """Return one figure per replication: `measure` of the log of a run with Poisson arrivals."""
    values = []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng([7, seed])
        at_s = np.cumsum(rng.exponential(1 / rate_rps, REQUESTS))
        load = world(services, at_s, periods=int(at_s[-1] / 10) + 2, period_s=10.0)
        values.append(measure(Driver(load, seed=seed).run()))
    return np.array(values)


def mean_latency(log: RequestLog) -> float:
    assert (log.status == Status.OK).all()
    return float(log.latency_s[WARM_UP:].mean())


def assert_agrees(values: np.ndarray, theory: float, width: float) -> None:
    """The theory is in the 99.9 % confidence interval, which is at most ± `width` of it."""
    half = stats.t.ppf(0.9995, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - theory) <= half
    assert half <= width * theory


def erlang_c(servers: int, load: float) -> float:
    """Probability that an arrival waits, for `load` = λ·s erlangs."""
    rest = load**servers / factorial(servers) * servers / (servers - load)
    return rest / (sum(load**k / factorial(k) for k in range(servers)) + rest)


ERLANGS = 2.4
WAITING_S = erlang_c(3, ERLANGS) * SERVICE_S / (3 - ERLANGS)


@pytest.mark.parametrize(
    ("drawn", "service", "load", "theory_s", "width"),
    [
        # M/M/1 by sharing, and its mean for any distribution.
        ({"draw": Draw.EXPONENTIAL}, {}, 0.3, SERVICE_S / (1 - 0.3), 0.07),
        ({"draw": Draw.EXPONENTIAL}, {}, 0.7, SERVICE_S / (1 - 0.7), 0.07),
        ({"draw": Draw.LOGNORMAL, "cv": 0.5}, {}, 0.6, SERVICE_S / (1 - 0.6), 0.07),
        ({"draw": Draw.LOGNORMAL, "cv": 2.0}, {}, 0.6, SERVICE_S / (1 - 0.6), 0.07),
        # M/D/1, one after the other: waiting = ρ·s / (2·(1 − ρ)) (Pollaczek–Khinchine).
        ({}, {"workers": 1}, 0.6, SERVICE_S * (1 + 0.6 / (2 * 0.4)), 0.05),
        # M/M/3: a worker per CPU; sharing the CPUs has the same mean.
        ({"draw": Draw.EXPONENTIAL}, {"threads": 3.0, "workers": 3}, ERLANGS, SERVICE_S + WAITING_S, 0.07),
        ({"draw": Draw.EXPONENTIAL}, {"threads": 3.0}, ERLANGS, SERVICE_S + WAITING_S, 0.07),
    ],
)
def test_the_mean_latency_of_one_service_is_that_of_its_queue(drawn, service, load, theory_s, width):
    services = [Service({"a": Handler(SERVICE_S, **drawn)}, **service)]
    assert_agrees(replications(services, load / SERVICE_S, mean_latency), theory_s, width)


def test_the_latency_of_an_mm1_queue_is_exponential():
    services = [Service({"a": Handler(SERVICE_S, draw=Draw.EXPONENTIAL)}, workers=1)]

    def p99(log: RequestLog) -> float:
        return float(np.quantile(log.latency_s[WARM_UP:], 0.99))

    values = replications(services, 0.5 / SERVICE_S, p99)
    assert_agrees(values, -log(0.01) * SERVICE_S / (1 - 0.5), 0.1)


def test_a_full_queue_turns_away_as_mm1k():
    # K = 1 worker + 4 in line; blocked with probability (1 − ρ)·ρ^K / (1 − ρ^(K+1)).
    services = [Service({"a": Handler(SERVICE_S, draw=Draw.EXPONENTIAL)}, workers=1, queue=4)]

    def dropped(log: RequestLog) -> float:
        return float((log.status[WARM_UP:] == Status.DROPPED).mean())

    rho = 0.8
    theory = (1 - rho) * rho**5 / (1 - rho**6)
    assert_agrees(replications(services, rho / SERVICE_S, dropped), theory, 0.1)


def test_a_network_of_shared_cpus_has_product_form():
    # A visit's parts are alike, not independent; a Kelly network allows that. Latency = Σ sₖ / (1 − ρₖ).
    means = [0.004, 0.01, 0.007]
    values = replications(chain(means, Draw.EXPONENTIAL), 70.0, mean_latency)
    assert_agrees(values, sum(mean / (1 - 70.0 * mean) for mean in means), 0.06)


def test_a_network_on_a_host_with_too_few_cores_is_one_shared_cpu():
    # Two containers of one thread on one core: with both busy each has half of it, as in one M/M/1-PS.
    services = [
        Service({"a": Handler(0.004, draw=Draw.EXPONENTIAL)}),
        Service({"b": Handler(0.004, draw=Draw.EXPONENTIAL)}),
    ]
    values = []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng([8, seed])
        at_s = np.cumsum(rng.exponential(1 / 150.0, REQUESTS))
        kinds = rng.integers(0, 2, REQUESTS)
        load = world(services, at_s, ["a", "b"], kinds, periods=20, period_s=10.0, cores=(1.0,))
        driver = Driver(load, seed=seed)
        log = driver.run()
        assert driver.physics.fleet.done_s.sum() <= 200.0
        values.append(mean_latency(log))
    # Not plain sharing: k visits in one container get half of the host when the other has any. The work in
    # the system does not depend on that, and equal exponential visits make latency follow from it.
    assert_agrees(np.array(values), 0.004 / (1 - 0.6), 0.07)
