import numpy as np
import pytest

from control.fabric import BfdTimers
from twin.fabric.bfd import detection_s, false_downs_per_hour, silence_s
from twin.fabric.model import Stalls
from twinbed import ScenarioError

COUNT = 200_000


def test_detection_counts_from_the_last_packet_received_at_each_end_alone():
    timers = BfdTimers(0.05, 3)
    known = detection_s(timers, COUNT, np.random.default_rng(1))
    # Spacings evenly in 37.5 … 50 ms: the mean age is E[X²]/2E[X] = (43.75² + 12.5²/12)/87.5 = 22.02 ms.
    assert known.mean(axis=0) == pytest.approx([0.15 - 0.02202] * 2, abs=1e-4)
    assert known.max() <= 0.15
    assert known.min() >= 0.10
    assert abs(np.corrcoef(known.T)[0, 1]) < 0.01


def test_the_age_of_the_last_packet_is_that_of_a_train_of_jittered_packets():
    random = np.random.default_rng(2)
    sent = np.cumsum(random.uniform(0.75, 1.0, COUNT))
    moments = random.uniform(10.0, sent[-1], COUNT)
    ages = moments - sent[np.searchsorted(sent, moments) - 1]
    drawn = silence_s(BfdTimers(1.0, 5), COUNT, random)
    shares = [0.05, 0.25, 0.5, 0.75, 0.95, 0.999]
    assert np.quantile(drawn, shares) == pytest.approx(np.quantile(ages, shares), abs=0.01)


def test_with_multiplier_one_packets_never_come_as_late_as_the_interval():
    assert silence_s(BfdTimers(1.0, 1), COUNT, np.random.default_rng(3)).max() <= 0.9


def stalled(timers, stalls, sessions, hours, random):
    """bool[stalls, sessions], what each stall brings down, drawn one by one."""
    count = random.poisson(stalls.per_s * 3600 * hours)
    length = stalls.floor_s + stalls.excess_s * random.standard_exponential(count)
    age = silence_s(timers, count * sessions * 2, random).reshape(count, sessions, 2).max(axis=2)
    return age + length[:, None] > timers.detection_s


@pytest.mark.parametrize("timers", [BfdTimers(0.05, 3), BfdTimers(0.02, 3), BfdTimers(0.1, 3)])
def test_false_downs_are_as_many_as_stalls_bring_when_drawn_one_by_one(timers):
    stalls, hours = Stalls(per_s=0.04, floor_s=0.05, excess_s=0.04), 4000
    down = stalled(timers, stalls, 4, hours, np.random.default_rng(4))
    assert false_downs_per_hour(timers, stalls, 4) == pytest.approx(down.sum() / hours, rel=0.02)


def test_longer_detection_is_wrong_less_often_and_no_stall_is_never_wrong():
    stalls = Stalls(per_s=0.04, floor_s=0.05, excess_s=0.04)
    rates = [false_downs_per_hour(BfdTimers(0.05, multiplier), stalls, 1) for multiplier in range(1, 8)]
    assert rates == sorted(rates, reverse=True)
    # Stalls longer than the detection time bring every session down: 144 an hour.
    assert false_downs_per_hour(BfdTimers(0.01, 3), stalls, 2) == pytest.approx(2 * 144.0)
    assert false_downs_per_hour(BfdTimers(), Stalls(0.0, 0.05, 0.04), 4) == 0.0


@pytest.mark.parametrize(
    ("timers", "message"),
    [
        (BfdTimers(0.0, 3), "interval_s: 0.0"),
        (BfdTimers(np.inf, 3), "interval_s: inf"),
        (BfdTimers(0.05, 0), "multiplier: 0"),
        (BfdTimers(0.05, 256), "multiplier: 256"),
    ],
)
def test_timers_that_the_protocol_does_not_have_are_refused(timers, message):
    with pytest.raises(ScenarioError, match=message):
        detection_s(timers, 1, np.random.default_rng(0))


def test_stalls_that_are_none_are_refused():
    with pytest.raises(ScenarioError, match="excess_s"):
        false_downs_per_hour(BfdTimers(), Stalls(1.0, 0.05, 0.0), 1)
