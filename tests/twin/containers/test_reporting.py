"""Reports at an interval of their own, each with its arithmetic."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator.model import Decision
from tests.twin.containers.requests.request_world import Driver, chain, world
from tests.twin.containers.scripted import Scripted, cpu, machine, run, workload
from twin.containers.reporting import Counters
from twin.containers.run import simulate


def reported(interval_s, demand, **policy):
    asked = Scripted(**policy)
    outcome = run(replace(workload(demand), report_interval_s=interval_s), asked, machine())
    return asked.periods, outcome


def test_reports_come_at_their_interval_and_tell_what_was_done_in_it():
    reports, _ = reported(0.15, [0.2, 0.8, 0.4, 0.4, 0.4, 0.4])
    # 20 + 40 ms of 150; 40 + 40 of 150; then 60 of 150 each.
    assert [report.at_s for report in reports] == pytest.approx([0.15, 0.3, 0.45, 0.6])
    assert [report.usage_cores[0] for report in reports] == pytest.approx([0.4, 8 / 15, 0.4, 0.4])
    assert {report.period_s for report in reports} == {0.15}


def test_half_a_period_tells_what_its_half_did_and_who_was_throttled_in_it():
    reports, _ = reported(0.05, [0.5, 0.1, 0.0], quota=0.4)
    # 40 ms of quota last for 80 ms of 0.5 cores; 10 ms of backlog and 5 ms of work follow, then 5 ms.
    reports = reports[:4]
    assert [report.usage_cores[0] for report in reports] == pytest.approx([0.5, 0.3, 0.3, 0.1])
    assert [bool(report.throttled[0]) for report in reports] == [False, True, False, False]
    assert [report.unused_cores[0] for report in reports] == pytest.approx([0.0, 0.0, 0.1, 0.3])


def test_a_quota_written_in_the_middle_of_a_period_fills_the_pool_again():
    def decide(stats):
        return Decision(cpu(stats.ids, 0.4)) if stats.at_s < 0.06 else None

    # 40 ms until 40 ms, and 40 ms more from the write at 50 ms on: 80 ms in all.
    _, outcome = reported(0.05, [1.0, 0.0, 0.0], quota=0.4, period=decide)
    assert outcome.series.usage_cores[0, 0] == pytest.approx(0.8)


def test_the_series_does_not_depend_on_who_looks():
    demand = np.random.default_rng(1).uniform(0, 1, (20, 3))
    ends, looks = (
        run(replace(workload(demand), report_interval_s=s), Scripted(quota=0.5), machine())
        for s in (0.0, 0.07)
    )
    assert looks.series.usage_cores == pytest.approx(ends.series.usage_cores, abs=1e-6)
    assert looks.series.throttled_s == pytest.approx(ends.series.throttled_s, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(interval_s=st.floats(0.02, 0.5), phase_s=st.sampled_from([0.0, 0.025, 0.075]))
def test_reports_of_requests_add_up_to_what_was_used(interval_s, phase_s):
    load = world(chain([0.02, 0.01], phase_s=phase_s), [0.01, 0.13, 0.4, 0.61], periods=10)
    asked = Scripted(quota=0.3)
    outcome = simulate(
        replace(load, report_interval_s=interval_s), asked, machine(), seed=np.random.SeedSequence(1)
    )
    told_s = sum(report.usage_cores * interval_s for report in asked.periods)
    assert (told_s <= outcome.done_s + 1e-9).all()
    assert len(asked.periods) >= int(0.9 / interval_s)


def test_the_first_report_comes_an_interval_after_a_period_of_the_group_began():
    physics = Driver(world(chain([0.01], phase_s=0.03), [0.0])).physics
    # Its periods begin at −0.03 s; reports at 0.02, 0.07, … and at 0.17, 0.37, ….
    assert Counters(physics, 0.05).first_s(0) == pytest.approx(0.02)
    assert Counters(physics, 0.2).first_s(0) == pytest.approx(0.17)
