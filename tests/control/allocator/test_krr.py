"""KRR's two strategies: which percentile, which memory, and when there is no opinion."""

from math import isnan

import numpy as np
import pytest

from control.allocator.krr import KrrSettings, shown, simple, simple_limit
from tests.control.allocator.fleets import MIB

RAMP = np.arange(101) / 100
FLAT = np.full(101, 400.0 * MIB)
SETTINGS = KrrSettings()


def test_simple_takes_the_pod_with_the_largest_percentile_and_sets_no_cpu_limit():
    advice = simple([RAMP, 2 * RAMP], [FLAT, FLAT / 2], SETTINGS)
    assert advice.cpu_request_cores == pytest.approx(1.9)
    assert advice.cpu_limit_cores is None
    assert advice.memory_request_bytes == advice.memory_limit_bytes == pytest.approx(460 * MIB)


def test_simple_limit_takes_percentiles_of_all_samples_together():
    advice = simple_limit([RAMP], [FLAT], SETTINGS)
    assert (advice.cpu_request_cores, advice.cpu_limit_cores) == pytest.approx((0.66, 0.96))


def test_the_percentile_of_simple_is_rounded_to_whole_percent():
    assert simple([RAMP], [FLAT], KrrSettings(cpu_percentile=99.9)).cpu_request_cores == 1.0


@pytest.mark.parametrize(("limit", "request_mib"), [(300, 460), (400, 500)])
def test_a_limit_that_killed_a_pod_asks_for_a_quarter_more(limit, request_mib):
    advice = simple([RAMP], [FLAT], SETTINGS, limit * float(MIB))
    assert advice.memory_request_bytes == pytest.approx(request_mib * MIB)


def test_the_largest_usage_of_memory_counts_and_is_shown_in_whole_mib():
    advice = simple([RAMP], [np.append(FLAT, 400.2 * MIB)], SETTINGS)
    assert advice.memory_request_bytes == pytest.approx(400.2 * 1.15 * MIB)
    # 460.23 MiB
    assert shown(advice).memory_request_bytes == shown(advice).memory_limit_bytes == 461 * MIB


def test_as_many_samples_as_required_allow_an_opinion_and_one_less_none():
    assert simple([RAMP[:100]], [FLAT[:100]], SETTINGS).memory_request_bytes == pytest.approx(460 * MIB)
    for strategy in (simple, simple_limit):
        advice = strategy([RAMP[:99]], [FLAT[:99]], SETTINGS)
        assert isnan(advice.cpu_request_cores)
        assert isnan(advice.cpu_limit_cores)
        assert isnan(advice.memory_limit_bytes)
        assert isnan(shown(advice).cpu_request_cores)


def test_what_is_shown_is_rounded_up_and_has_a_floor():
    advice = shown(simple_limit([RAMP * 0.012], [FLAT / 40], SETTINGS))
    assert (advice.cpu_request_cores, advice.cpu_limit_cores) == pytest.approx((0.01, 0.012))
    assert advice.memory_request_bytes == 100 * MIB
