"""Laws of scaling, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from control.jobs import Configuration, candidates
from control.recommender.scaling_laws import Laws, Reference, log_time, reference, sample, smoothed
from tests.control.recommender.made_jobs import PRICES, TYPES, clusters


def test_a_law_sums_serial_parallel_and_overhead_and_slows_down_where_memory_is_short() -> None:
    among = candidates(TYPES, PRICES, [Configuration("m.large", 2), Configuration("m.large", 8)])
    serial, penalty = np.array([0.2]), np.log([3.0])
    laws = Laws(serial, np.array([0.1]), penalty, np.log([100.0]), np.array([1.0]), np.array([0.05]))
    # Of 32 GiB 31 are usable: 62 of the 100 that it needs, and 248. The reference has 64 vCPUs, 4 machines.
    short, enough = 0.2 + 0.8 * 64 / 16 * 3 + 0.1 * 2 / 4, 0.2 + 0.8 * 64 / 64 + 0.1 * 8 / 4
    assert np.exp(log_time(laws, among, Reference(64.0, 4.0)))[0] == pytest.approx([short, enough], rel=1e-3)
    at = reference(among)
    assert (at.vcpus, at.machines) == pytest.approx((np.sqrt(16 * 64), 4.0))


def test_laws_are_spread_over_their_ranges() -> None:
    laws, among = sample(clusters(), 1024), clusters()
    odds = laws.serial / (1 - laws.serial)
    with_cliff, with_overhead = laws.penalty > 0, laws.overhead > 0
    assert (with_cliff.mean(), with_overhead.mean()) == pytest.approx((0.5, 0.7), abs=0.01)
    memory = among.memory_gib * among.count
    for values, low, high in (
        (np.log(odds), np.log(1e-3), np.log(10)),
        (np.log(laws.overhead[with_overhead]), np.log(1e-3), 0.0),
        (laws.penalty[with_cliff], 0.2, 2.2),
        (laws.need_log_gib, np.log(memory.min()), np.log(memory.max())),
        (laws.reserved_gib, 0.0, 1.5),
    ):
        # As even as a ruler: the quartiles of a uniform distribution.
        assert np.quantile(values, [0, 0.25, 0.5, 0.75, 1]) == pytest.approx(
            np.linspace(low, high, 5), abs=0.01 * (high - low)
        )
    assert np.unique(laws.width, return_counts=True)[1].tolist() == [512, 512]


def test_a_law_gives_weight_to_laws_near_it() -> None:
    # The kernel's standard deviation is 0.4 in the first coordinate, and the last law is out of its reach.
    points = np.zeros((3, 6))
    points[1:, 0] = 0.4, 40.0
    kernel = np.array([1.0, np.exp(-0.5), 0.0])
    assert smoothed(points, np.array([1.0, 0.0, 0.0])) == pytest.approx(kernel / kernel.sum(), abs=1e-6)
    assert smoothed(points, np.array([0.0, 0.0, 1.0])) == pytest.approx([0, 0, 1], abs=1e-6)
    assert smoothed(points, np.zeros(3)) == pytest.approx(np.full(3, 1 / 3))


def test_a_type_of_unknown_size_does_not_hide_the_size_of_the_others() -> None:
    among = clusters()
    vcpus = np.append(among.vcpus[:-1], np.nan)
    at = reference(replace(among, vcpus=vcpus))
    assert at.vcpus == reference(among.take(np.arange(len(among) - 1))).vcpus
    assert reference(replace(among, vcpus=np.full(len(among), np.nan))).vcpus == 1.0
