"""A small network in the engine and in Ciw, an independent queueing simulator."""

import random

import ciw
import numpy as np
import pytest
from scipy import stats

from control.services import Draw
from tests.twin.containers.requests.request_world import Call, Driver, Handler, Service, world

OURS, THEIRS = 160, 12
"""Replications in the engine, and in Ciw, where one takes far longer."""
SECONDS, WARM_UP_S, RATE_RPS = 130.0, 10.0, 30.0
FRONT_S, CATALOGUE_S, STORE_S = 0.03, 0.02, 0.022
CART = 0.5

# front (2 threads, three parts of one demand) → catalogue (shared CPU) → and, half the time, store
# (one worker, first come first served).
SERVICES = [
    Service(
        {"front": Handler(FRONT_S, [[Call("catalogue")], [Call("store", CART)]], Draw.EXPONENTIAL)},
        threads=2.0,
    ),
    Service({"catalogue": Handler(CATALOGUE_S, draw=Draw.LOGNORMAL, cv=1.5)}),
    Service({"store": Handler(STORE_S, draw=Draw.EXPONENTIAL)}, workers=1),
]


class Third(ciw.dists.Distribution):
    """A third of a demand that is drawn at a customer's first visit."""

    def sample(self, t=None, ind=None):
        if not hasattr(ind, "demand_s"):
            ind.demand_s = ciw.dists.Exponential(1 / FRONT_S).sample()
        return ind.demand_s / 3


def route(individual, simulation):
    return [2, 1, 3, 1] if random.random() < CART else [2, 1, 1]  # from front on


def in_ciw(seed: int) -> np.ndarray:
    variance = np.log1p(1.5**2)
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(RATE_RPS), None, None],
        service_distributions=[
            Third(),
            ciw.dists.Lognormal(np.log(CATALOGUE_S) - variance / 2, np.sqrt(variance)),
            ciw.dists.Exponential(1 / STORE_S),
        ],
        number_of_servers=[float("inf"), float("inf"), 1],
        ps_thresholds=[2, 1, 1],
        routing=ciw.routing.ProcessBased(route),
    )
    ciw.seed(seed)
    simulation = ciw.Simulation(network, node_class=[ciw.PSNode, ciw.PSNode, ciw.Node])
    simulation.simulate_until_max_time(SECONDS)
    began, ended = {}, {}
    for record in simulation.get_all_records():
        began[record.id_number] = min(began.get(record.id_number, np.inf), record.arrival_date)
        if record.destination == -1:
            ended[record.id_number] = record.exit_date
    return np.array([ended[who] - began[who] for who in ended if began[who] >= WARM_UP_S])


def in_engine(seed: int) -> np.ndarray:
    rng = np.random.default_rng([11, seed])
    at_s = np.cumsum(rng.exponential(1 / RATE_RPS, int(SECONDS * RATE_RPS * 1.3)))
    at_s = at_s[at_s < SECONDS]
    log = Driver(world(SERVICES, at_s, periods=int(SECONDS / 10), period_s=10.0), seed=seed).run()
    latency_s = log.latency_s[at_s >= WARM_UP_S]
    return latency_s[np.isfinite(latency_s)]


@pytest.mark.slow
def test_means_and_quantiles_agree_with_ciw():
    ours = [in_engine(seed) for seed in range(OURS)]
    theirs = [in_ciw(seed) for seed in range(THEIRS)]
    for measure in (
        np.mean,
        lambda values: np.quantile(values, 0.5),
        lambda values: np.quantile(values, 0.95),
    ):
        a, b = (np.array([measure(latencies) for latencies in side]) for side in (ours, theirs))
        spread = a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b)
        half = stats.t.ppf(0.9995, THEIRS - 1) * np.sqrt(spread)
        assert abs(a.mean() - b.mean()) <= half
        assert half <= 0.15 * b.mean()
