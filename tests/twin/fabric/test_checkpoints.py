"""What a job that dies loses: the walk by hand, its invariants, and the closed forms it must agree with."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from twin.fabric.checkpoints import (
    Checkpointing,
    daly_s,
    expected_ratio,
    progress,
    run,
    young_s,
)
from twinbed import ScenarioError

NEVER = np.empty(0)


def plan(
    interval_s: float = 10.0, save_s: float = 1.0, detect_s: float = 2.0, init_s: float = 3.0
) -> Checkpointing:
    return Checkpointing(interval_s, save_s, detect_s, init_s)


def test_a_job_without_deaths_pays_for_its_saves_only() -> None:
    lives = run(plan(), 35.0, NEVER, NEVER)
    assert lives.end_of_job_s == 35.0 + 3 * 1.0
    assert lives.saves.tolist() == [3]
    assert run(plan(), 30.0, NEVER, NEVER).end_of_job_s == 30.0 + 2 * 1.0  # the end needs no save


def test_a_death_costs_detection_start_and_the_work_since_the_last_save() -> None:
    # 0-10 work, 10-11 save, 11-16 work lost; 16+2 noticed, +3 started: 21; 20 s of work and one save: 42.
    lives = run(plan(), 30.0, np.array([16.0]), np.array([16.0]))
    assert lives.begin_s.tolist() == [0.0, 21.0]
    assert lives.kept_s.tolist() == [10.0, 20.0]
    assert lives.lost_s.tolist() == [5.0, 0.0]
    assert lives.end_of_job_s == 42.0


def test_it_waits_for_the_repair_and_a_death_while_it_starts_makes_it_start_again() -> None:
    lives = run(plan(), 30.0, np.array([16.0, 20.0]), np.array([50.0, 20.0]))
    assert lives.begin_s.tolist() == [0.0, 53.0]  # the second death ended before the first's repair
    lives = run(plan(), 30.0, np.array([16.0, 20.0]), np.array([16.0, 20.0]))
    assert lives.begin_s.tolist() == [0.0, 25.0]


def test_a_death_in_a_save_loses_the_whole_interval() -> None:
    lives = run(plan(), 30.0, np.array([10.5]), np.array([10.5]))
    assert lives.kept_s[0] == 0.0
    assert lives.lost_s[0] == 10.0


def test_deaths_nearer_than_a_start_and_a_segment_let_nothing_progress() -> None:
    deaths_s = np.arange(1, 200) * 15.0
    lives = run(plan(), 1000.0, deaths_s, deaths_s, until_s=3000.0)
    assert not lives.finished
    assert lives.kept_s.sum() == 10.0  # the first life had no start to pay for


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    deaths=st.lists(st.floats(0.0, 400.0), max_size=12),
    repair_s=st.floats(0.0, 30.0),
    work_s=st.floats(0.5, 300.0),
    interval_s=st.one_of(st.floats(0.5, 40.0), st.floats(1e3, 1e18)),
    save_s=st.floats(0.0, 5.0),
)
def test_time_is_kept_work_lost_work_saves_or_standing_still(
    deaths: list[float], repair_s: float, work_s: float, interval_s: float, save_s: float
) -> None:
    deaths_s = np.sort(np.array(deaths, np.float64))
    how = plan(interval_s, save_s)
    lives = run(how, work_s, deaths_s, deaths_s + repair_s)
    assert lives.finished
    assert lives.kept_s.sum() == pytest.approx(work_s)
    assert np.all(lives.begin_s[1:] >= lives.end_s[:-1] + how.restart_s - 1e-9)
    lived_s = lives.end_s - lives.begin_s
    spent_s = lives.kept_s + lives.lost_s + lives.saves * save_s
    assert np.all(spent_s <= lived_s + 1e-6)
    assert np.all(lived_s <= spent_s + save_s + 1e-6)  # the save that a death cut short
    at_s, done_s = progress(how, lives)
    assert np.all(np.diff(at_s) >= -1e-9)
    assert np.all(np.diff(done_s) <= np.diff(at_s) + 1e-6)  # nobody works faster than the clock
    assert done_s[-1] == pytest.approx(work_s)


def test_daly_s_expected_time_is_what_the_walk_measures() -> None:
    for interval_s, mtbf_s in ((600.0, 3600.0), (3600.0, 7200.0), (100.0, 900.0)):
        job = plan(interval_s, 20.0, 30.0, 90.0)
        deaths_s = np.cumsum(np.random.default_rng(5).exponential(mtbf_s, 100_000))
        lives = run(job, np.inf, deaths_s, deaths_s, until_s=float(deaths_s[-1]))
        assert lives.kept_s.sum() / deaths_s[-1] == pytest.approx(expected_ratio(job, mtbf_s), abs=0.004)


def test_daly_s_interval_is_the_best_and_young_s_is_near_it() -> None:
    for save_s, mtbf_s in ((5.0, 10_000.0), (60.0, 10_000.0), (300.0, 4000.0)):

        def wasted(interval_s: float, save_s: float = save_s, mtbf_s: float = mtbf_s) -> float:
            return -expected_ratio(plan(interval_s, save_s, 30.0, 90.0), mtbf_s)

        best_s = minimize_scalar(wasted, bounds=(1.0, mtbf_s), method="bounded").x
        assert daly_s(save_s, mtbf_s) == pytest.approx(best_s, rel=0.02)
        assert wasted(young_s(save_s, mtbf_s)) == pytest.approx(wasted(best_s), rel=0.02)
    assert daly_s(200.0, 100.0) == 100.0


@pytest.mark.parametrize("interval_s", [1e12, 1e300, np.inf])
def test_an_interval_beyond_the_work_never_saves(interval_s: float) -> None:
    how = plan(interval_s)
    lives = run(how, 30.0, np.array([16.0]), np.array([16.0]))
    assert lives.saves.tolist() == [0, 0]
    assert (lives.kept_s.tolist(), lives.lost_s.tolist()) == ([0.0, 30.0], [16.0, 0.0])
    assert lives.end_of_job_s == 16.0 + 5.0 + 30.0
    at_s, done_s = progress(how, lives)
    assert at_s[-1] == 51.0
    assert done_s[-1] == 30.0
    endless = run(how, np.inf, np.array([16.0]), np.array([16.0]), until_s=100.0)
    assert (endless.saves.tolist(), endless.kept_s.tolist()) == ([0, 0], [0.0, 0.0])
    assert expected_ratio(how, 3600.0) == 0.0


@pytest.mark.parametrize("wrong", [{"interval_s": 0.0}, {"save_s": -1.0}, {"init_s": np.inf}])
def test_a_plan_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ScenarioError, match=next(iter(wrong))):
        plan(**wrong)


def test_deaths_out_of_order_are_refused() -> None:
    with pytest.raises(ScenarioError, match="ascending"):
        run(plan(), 30.0, np.array([2.0, 1.0]), np.array([2.0, 2.0]))
    with pytest.raises(ScenarioError, match="must be finite"):
        run(plan(), np.inf, NEVER, NEVER)
