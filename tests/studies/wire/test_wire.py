"""The bytes on the wire for one more container: the fitted line, and one real measurement."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.wire import measure
from studies.wire.hosts import PERIOD_NS, PretendedGroup, PretendedTelemetry
from studies.wire.inside import HOSTS, deployment
from studies.wire.measure import Sample, slope


def samples(values, counts=(32, 68, 500)):
    return [Sample(count, value, value, 0.0, 0.0) for count, value in zip(counts, values, strict=True)]


@given(each=st.floats(0.1, 1e4), fixed=st.floats(0.0, 1e5))
def test_a_line_is_found_again_with_an_interval_around_it(each, fixed):
    line = slope(samples([fixed + each * count for count in (32, 68, 500)]), "bytes_s")
    assert line.each == pytest.approx(each, rel=1e-6)
    assert line.low <= line.each <= line.high
    assert line.at(20_000) == pytest.approx(fixed + each * 20_000, rel=1e-5)


def test_noise_widens_the_interval_and_two_samples_have_none():
    # By hand: 1, 3, 2 over 0, 1, 2: slope 0.5, residual 1.5, standard error √(1.5 / 1 / 2), t = 12.706.
    line = slope(samples([1.0, 3.0, 2.0], (0, 1, 2)), "bytes_s")
    assert line.each == pytest.approx(0.5)
    assert line.high - line.each == pytest.approx(12.706 * math.sqrt(0.75), rel=1e-3)
    assert slope(samples([1.0, 3.0], (0, 1)), "bytes_s").high == math.inf


def test_containers_are_spread_and_named_once():
    deployed = deployment(32)
    assert len(deployed.agents) == HOSTS
    assert sum(len(deployed.containers_of(agent)) for agent in deployed.agents) == 32


def test_pretended_containers_change_what_they_use_and_are_throttled_at_their_quota(tmp_path):
    telemetry = PretendedTelemetry()
    groups = [PretendedGroup(number, tmp_path) for number in range(2)]
    telemetry.add(np.arange(2), groups)
    groups[0].set_cpu_quota(0.1)
    first, later = telemetry.collect(0), telemetry.collect(10 * PERIOD_NS)
    assert first.usage_cores.tolist() == [0.05, 0.2]
    assert later.usage_cores.tolist() == [0.1, 0.05]
    assert later.throttled.tolist() == [True, False]


@pytest.mark.root
@pytest.mark.slow
def test_bytes_on_a_real_wire_grow_with_the_containers():
    few, many = measure.measure((4, 40), seconds=2, repeats=1, tell=lambda line: None)
    assert 0 < few.bytes_s < many.bytes_s <= many.most_bytes_s
    assert many.controller_cores > 0
