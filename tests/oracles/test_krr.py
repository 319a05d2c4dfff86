"""KRR's strategies against what the original classes recommend."""

from dataclasses import asdict, replace
from math import isnan

import numpy as np
import pytest

from control.allocator import krr
from control.allocator.krr import KrrSettings
from tests.oracles.vectors import vectors


def agree(made, expected):
    """Compares an amount. Both a missing opinion and no limit are null in the vectors."""
    if expected is None:
        return made is None or isnan(made)
    return made == pytest.approx(expected, rel=1e-9)


@vectors("krr/simple")
def test_recommendations_are_those_of_krr(vector):
    cores, memory = (
        [np.array(pod[kind], np.float64) for pod in vector["pods"].values()]
        for kind in ("cpu_cores", "memory_bytes")
    )
    for expected in vector["expected"]:
        percentiles = {name: float(expected[name]) for name in asdict(KrrSettings()) if name in expected}
        settings = replace(KrrSettings(), **percentiles)
        strategy = getattr(krr, expected["strategy"])
        advice = strategy(cores, memory, settings, float(vector["oom_killed_limit_bytes"]))
        for name, value in asdict(advice).items():
            assert agree(value, expected[name]), name
        if "shown" in expected:
            rounded = krr.shown(advice)
            assert agree(rounded.cpu_request_cores, expected["shown"]["cpu_cores"])
            assert agree(rounded.memory_request_bytes, expected["shown"]["memory_bytes"])
