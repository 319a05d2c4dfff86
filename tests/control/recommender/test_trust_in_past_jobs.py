import numpy as np
import pytest

from control.recommender.belief import believe
from control.recommender.model import History, no_observations
from control.recommender.population import UNTOLD, learn
from control.recommender.trust import log_odds, share, trust
from tests.control.recommender.made_jobs import clusters, made_history, time_of


def history_of(*time_s: np.ndarray) -> History:
    among, times = clusters(), np.array(time_s)
    names = tuple(f"job-{place}" for place in range(len(times)))
    return History(names, among, times, times / 3600 * among.price_usd_h, np.ones_like(times, dtype=np.bool_))


def test_nobody_and_a_single_past_job_leave_it_open() -> None:
    assert trust(None) == UNTOLD
    assert share(np.array([])) == share(np.array([9.0])) == UNTOLD
    assert trust(made_history(1)) == UNTOLD


@pytest.mark.parametrize("jobs", [2, 5, 11])
def test_the_share_is_that_of_a_coin_with_one_toss_less_than_past_jobs(jobs: int) -> None:
    # Jeffreys' prior and m − 1 successes: Beta(m − ½, ½)
    assert share(np.full(jobs, 60.0)) == pytest.approx((jobs - 0.5) / jobs, abs=2e-3)
    assert share(np.full(jobs, -60.0)) == pytest.approx(0.5 / jobs, abs=2e-3)


def test_odds_that_say_nothing_change_nothing() -> None:
    assert share(np.zeros(7)) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.slow
def test_past_jobs_are_trusted_where_one_tells_the_other_and_not_where_it_misleads() -> None:
    among = clusters()
    rng = np.random.default_rng(3)
    noise = np.exp(0.03 * rng.standard_normal((3, len(among))))
    kinds = np.unique(among.name, return_inverse=True)[1]
    by_type = np.exp(1.0 * rng.standard_normal(kinds.max() + 1))[kinds]
    lawful = [time_of(among, 0.003, 600.0, 4.0, size) for size in (900.0, 2000.0)]
    kin = history_of(lawful[0] * noise[0], lawful[1] * noise[1])
    strangers = history_of(lawful[0] * noise[0], lawful[1] * noise[2] * by_type)
    assert (log_odds(kin) > 0).all()
    assert trust(kin) > 0.6
    assert log_odds(strangers)[1] < 0
    assert trust(strangers) < 0.5


def test_whether_past_jobs_are_followed_is_learned_from_trials() -> None:
    history = made_history(4)
    prior = learn(history.without("job-0"), history.candidates, trusted=0.5)
    assert believe(prior, no_observations()).past_share == pytest.approx(0.5)
    certain = learn(history.without("job-0"), history.candidates, trusted=1.0)
    seen = no_observations().with_trial(3, 400.0, 1.0, True).with_trial(20, 600.0, 9.0, True)
    assert believe(certain, seen).past_share == pytest.approx(1.0)
    assert believe(prior, seen).past_share != pytest.approx(0.5, abs=1e-3)


def test_a_past_that_is_not_believed_changes_nothing_but_how_long_jobs_take() -> None:
    history = made_history(3)
    seen = no_observations().with_trial(3, 100.0, 1.0, True).with_trial(20, 300.0, 2.0, True)
    alone = believe(learn(None, history.candidates), seen).summary()
    beside = believe(learn(history, history.candidates, trusted=0.0), seen).summary()
    assert np.allclose(alone[0], beside[0], atol=0.15)
