"""The engine against the plain SimPy model of the same chain, request by request."""

import numpy as np
import pytest

from benchmarks.simpy_requests import Chain
from tests.twin.containers.requests.request_world import Driver, chain, world


@pytest.mark.parametrize(("quota", "workers"), [(0.6, 256), (0.6, 3), (np.inf, 2)])
def test_a_chain_under_quota_ends_each_request_at_the_same_instant(quota, workers):
    rng = np.random.default_rng(5)
    means = [0.011, 0.017, 0.007]
    at_s = np.sort(rng.uniform(0.0, 8.0, 240))
    driver = Driver(world(chain(means, threads=2.0, workers=workers), at_s, periods=100), quota=quota)
    log = driver.run()
    plain = Chain(3, 2.0, quota, workers, 0.1)
    plain.run(at_s.tolist(), [means] * len(at_s), 10.0)
    assert driver.physics.fleet.nr_throttled.sum() > 20 or quota == np.inf
    assert np.isfinite(log.end_s).sum() > 200
    assert plain.ends_s == pytest.approx(log.end_s.tolist(), abs=1e-9, rel=0, nan_ok=True)
    assert [cpu.used for cpu in plain.cpus] == pytest.approx(driver.physics.fleet.done_s, abs=1e-9)
