"""The Kubernetes-like scalers against the limits that Autothrottle's published code gives them."""

import numpy as np

from control.allocator import make
from lab.check.driven_fleet import DrivenFleet
from tests.control.allocator.fleets import MIB, application
from tests.oracles.vectors import series, vectors


@vectors("autothrottle_captain/k8s_scalers")
def test_limits_are_those_of_the_published_code(vector):
    policy = make(vector["kind"], {"target_utilisation": vector["target_utilisation"]})
    fleet = DrivenFleet(
        policy,
        [application(100.0)],
        [0],
        host_cores=100.0,
        peaks=([vector["initial_limit_cores"]], [MIB]),
        period_s=vector["step_s"],
    )
    (container,) = fleet.ids
    limits = [fleet.cores[container]]
    for used in vector["usage_cores"]:
        fleet.cores[container] = 100.0  # the vectors' usage does not heed the limit
        decision = fleet.period({container: (used, MIB)})
        limits += decision.cpu.quota_cores.tolist() or limits[-1:]
    expected = series(vector["limits_cores"], len(vector["usage_cores"]))
    np.testing.assert_allclose(limits, expected, rtol=1e-6)
