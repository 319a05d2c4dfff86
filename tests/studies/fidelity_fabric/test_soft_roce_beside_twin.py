"""The fate of a queue pair of soft RoCE, fault by fault, beside the twin's prediction."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from control.fabric import BfdTimers
from studies.fidelity_fabric import soft_roce
from testbed import vm
from testbed.fabric import ownership
from testbed.fabric.probe import Gap
from testbed.fabric.soft_roce import RETRIES_USED_UP, PingPong
from twinbed import ScenarioError

MS = 1_000_000
TIMERS = BfdTimers(0.1, 3)


def pings(error: str | None = None) -> PingPong:
    """A round takes 2 ms; the one at 1 s takes 340, and that at 9 s is quick."""
    round_s = np.full(5_000, 0.002)
    round_s[500] = 0.34
    return PingPong(round_s, 0, 11_000 * MS, error)


def test_a_fault_in_the_way_is_told_beside_the_twin() -> None:
    there = [Gap(0, 1_000 * MS, 1_300 * MS, 60), Gap(1, 1_001 * MS, 1_290 * MS, 58)]
    lost = [[*there, Gap(0, 9_000 * MS, 9_300 * MS, 60)], []]
    measured = soft_roce.beside_twin(TIMERS, pings(), [1_001 * MS, 9_000 * MS], lost, timeout=14)

    assert measured.injected == 2
    (hit,) = measured.hits
    assert (*hit.gaps_s, hit.stall_s) == pytest.approx((0.3, 0.0, 0.34))
    # The fifth ACK timeout of 67 ms is the first after the gap.
    assert hit.twin_s == pytest.approx((5 * 4.096e-6 * 2**14, 0.0))
    assert hit.twin_survives
    text = soft_roce.told(measured)
    assert "2 faults, 1 in the queue pair's way; it survived" in text
    assert "the twin: survives; gaps there/back" in text
    assert text.endswith("gap  300/   0  stall  340  twin  336/   0")


def test_a_guest_whose_clock_is_slow_does_not_hide_late_faults() -> None:
    round_s = np.full(5_000, 0.002)
    round_s[4_500] = 0.34
    # The guest counts 97 of 100 seconds, so by its own count the stalled round began 0.27 s too early.
    slow = PingPong(0.97 * round_s, 0, round(round_s.sum() * 1e9), None)
    begins_ms = 9_000
    lost = [[Gap(0, begins_ms * MS, (begins_ms + 300) * MS, 60)], []]
    measured = soft_roce.beside_twin(TIMERS, slow, [begins_ms * MS + 100 * MS], lost, timeout=14)
    (hit,) = measured.hits
    assert hit.stall_s == pytest.approx(0.97 * 0.34)


def test_a_queue_pair_that_broke_is_told() -> None:
    measured = soft_roce.MeasuredTimers(TIMERS, PingPong(np.empty(0), 0, 0, "Failed status 12"), 1, ())
    assert "it broke: Failed status 12" in soft_roce.told(measured)


def test_what_a_queue_pair_survives_is_told_beside_the_twin() -> None:
    trials = [soft_roce.Trial(4.0, None, 4.1), soft_roce.Trial(5.0, RETRIES_USED_UP, 5.5)]
    assert list(soft_roce.told_survival(trials, retry_count=2)) == [
        "2 retries, ACK timeout 2.15 s; the twin's budget 6.4 s",
        "  gap  4.0 s  survived; the twin: survives",
        "  gap  5.0 s  broke after 5.5 s (Failed status 12); the twin: breaks",
    ]


def test_a_setting_that_is_none_is_named() -> None:
    assert soft_roce.bfd_timers("3x100") == TIMERS
    with pytest.raises(ScenarioError, match="'fast' are no timers; write MULTIPLIERxMS"):
        soft_roce.bfd_timers("fast")


@pytest.mark.root
@pytest.mark.vm
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_queue_pair_lives_through_silent_faults() -> None:
    if "ROCE" not in os.environ:
        pytest.skip("two VMs take a minute and a half: make test-roce")
    there, reason = vm.available()
    if not there:
        pytest.skip(f"no VM here: {reason}")
    if shutil.which("ib_send_lat") is None:
        pytest.skip("perftest is not installed (Debian's perftest): make system")
    measured = soft_roce.measure(TIMERS, duration_s=15.0)

    assert measured.pings.error is None
    assert measured.injected >= 2
    # One port after the other was silent. One of the ports was on the queue pair's way, and the queue pair
    # waited for the other way.
    assert measured.hits
    assert soft_roce.NAME not in ownership.fabrics()
