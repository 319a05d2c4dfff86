"""Firm in a closed loop with the request engine: its input, the culprits that it finds, and the outcome."""

from dataclasses import replace

import numpy as np

from control.allocator.firm import Firm, FirmSettings
from control.allocator.model import Application, Reason
from control.services import Draw
from tests.twin.containers.requests.request_world import QUIET, chain, world
from twin.containers.requests.model import Client
from twin.containers.run import simulate

MIB = 1 << 20
SECONDS, RATE = 60, 50


class Told(Firm):
    def __init__(self, settings):
        super().__init__(settings)
        self.stats = []

    def on_service(self, stats):
        self.stats.append(stats)
        return super().on_service(stats)


def ran(peaks, **client):
    """A caller that needs 0.1 core and a callee that needs 0.4, under limits that begin at `peaks`."""
    services = chain([0.002, 0.008], Draw.EXPONENTIAL, threads=4.0)
    at_s = np.sort(np.random.default_rng(1).uniform(0.0, SECONDS, SECONDS * RATE))
    load = replace(
        world(services, at_s, periods=10 * SECONDS, client=Client(**client)),
        applications=(Application("app", 2.0, 1 << 30),),
        peak_cores=np.array(peaks),
        peak_bytes=np.full(2, MIB),
    )
    firm = Told(FirmSettings(slo_p99_s=0.2))
    return firm, simulate(load, firm, QUIET, seed=np.random.SeedSequence(1))


def test_the_container_that_is_short_is_found_and_gets_what_it_needs():
    firm, outcome = ran([1.0, 0.25])
    quota, latency_s = outcome.series.quota_cores, outcome.requests.latency_s
    assert (quota[:, 0] == 1.0).all()
    assert quota[0, 1] == 0.25
    assert quota[-1, 1] >= 0.5
    assert Reason.CULPRIT in outcome.series.cpu_reason[:, 1]
    first, last = (latency_s[slice(*ends)] for ends in ((0, 500), (-500, None)))
    assert np.quantile(first, 0.99) > 0.2 > np.quantile(last, 0.99)
    # There is one kind of request, and every request is answered in the end.
    assert all(stats.mix.tolist() == [[1.0, 0.0, 0.0]] for stats in firm.stats)
    assert all(stats.failed.tolist() == [0.0] for stats in firm.stats)


def test_clients_that_give_up_count_as_too_slow():
    firm, outcome = ran([1.0, 0.02], timeout_s=0.3)
    failed = [float(stats.failed[0]) for stats in firm.stats]
    assert failed[0] > 0.9
    assert failed[-1] == 0.0
    assert outcome.series.quota_cores[-1, 1] >= 0.5


def test_what_suffices_is_never_raised_and_the_same_run_is_the_same():
    quota = ran([1.0, 1.0])[1].series.quota_cores
    assert (quota <= 1.0).all()
    np.testing.assert_array_equal(quota, ran([1.0, 1.0])[1].series.quota_cores)
