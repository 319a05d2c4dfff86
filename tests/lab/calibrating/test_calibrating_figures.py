import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.calibrating.figures import costs, distribution, jitter, per_request
from twinbed import BackendError

DECLARED = {"front": 1e-3, "short": 5e-4, "long": 4e-3}
CALLS = {"front": 5.0, "short": 0.0, "long": 0.0}


@given(st.floats(0.5, 3), st.floats(0, 1e-3), st.floats(0, 1e-3))
def test_costs_are_found_in_what_they_make(dilation, visit_s, call_s):
    used = {name: dilation * DECLARED[name] + visit_s + call_s * CALLS[name] for name in DECLARED}
    found = costs(used, DECLARED, CALLS)
    assert found.dilation == pytest.approx(dilation)
    assert found.visit_s == pytest.approx(visit_s, abs=1e-9)
    assert found.call_s == pytest.approx(call_s, abs=1e-9)


def test_noise_gives_no_negative_overhead():
    found = costs({"front": 1e-4, "short": 4e-4, "long": 4e-3}, DECLARED, CALLS)
    assert found.visit_s >= 0
    assert found.call_s == 0


def test_a_distribution_says_its_size_and_percentiles():
    found = distribution([float(each) for each in range(1, 101)], "s", "measured: x")
    assert (found.value, found.n) == (50.5, 100)
    assert (found.p50, found.p95) == (50.5, pytest.approx(95.05))


def test_jitter_is_that_of_a_normal_delay_without_its_outliers():
    values = [1e-4] * 90 + [1e-4 + 1.645e-4] * 9 + [0.09]
    assert jitter(values, "measured: x").value == pytest.approx(1e-4, rel=0.05)


def test_nothing_measured_is_no_distribution():
    with pytest.raises(BackendError, match="nothing was measured"):
        distribution([], "s", "measured: x")


def test_what_idles_does_not_count_for_a_request():
    # 2 s of idling in both runs, 1 ms per request.
    assert per_request((2.05, 2.2), (50, 200)) == pytest.approx(1e-3)
