import pytest

from lab.containers.calibrate.figures import distribution, jitter, per_request
from twinbed import BackendError


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
    # 2 s of idling in all runs, 1 ms per request.
    assert per_request((2.05, 2.2, 2.1), (50, 200, 100)) == pytest.approx(1e-3)
