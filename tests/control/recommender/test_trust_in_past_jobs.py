import numpy as np
import pytest

from control.jobs import History
from control.recommender import trust
from control.recommender.ports import no_observations
from control.recommender.posterior import condition
from control.recommender.prior import DEFAULT_TRUST, fit_prior
from control.recommender.trust import WIDTHS, belief, left_out, share
from tests.control.recommender.made_jobs import clusters, history_of, made_history, time_of


def test_one_past_job_or_none_leaves_trust_at_a_half() -> None:
    assert belief(None).trust == DEFAULT_TRUST
    assert share(np.array([])) == share(np.array([9.0])) == DEFAULT_TRUST
    assert belief(made_history(1)).trust == DEFAULT_TRUST


@pytest.mark.parametrize("jobs", [2, 5, 11])
def test_the_share_is_that_of_a_coin_with_one_toss_less_than_past_jobs(jobs: int) -> None:
    # Jeffreys' prior and m − 1 successes: Beta(m − ½, ½)
    assert share(np.full(jobs, 60.0)) == pytest.approx((jobs - 0.5) / jobs, abs=2e-3)
    assert share(np.full(jobs, -60.0)) == pytest.approx(0.5 / jobs, abs=2e-3)


def test_odds_that_say_nothing_change_nothing() -> None:
    assert share(np.zeros(7)) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.slow
def test_past_jobs_are_trusted_if_they_predict_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    among = clusters()
    rng = np.random.default_rng(3)
    noise = np.exp(0.03 * rng.standard_normal((3, len(among))))
    kinds = np.unique(among.name, return_inverse=True)[1]
    by_type = np.exp(1.0 * rng.standard_normal(kinds.max() + 1))[kinds]
    lawful = [time_of(among, 0.003, 600.0, 4.0, size) for size in (900.0, 2000.0)]
    kin = history_of(["a", "b"], np.array([lawful[0] * noise[0], lawful[1] * noise[1]]))
    strangers = history_of(["a", "b"], np.array([lawful[0] * noise[0], lawful[1] * noise[2] * by_type]))
    seen: list[np.ndarray] = []

    def watched(history: History) -> tuple[np.ndarray, np.ndarray]:
        odds, scores = left_out(history)
        seen.append(odds)
        return odds, scores

    monkeypatch.setattr(trust, "left_out", watched)
    trusted = belief(kin).trust
    (odds,) = seen
    assert (odds > 0).all()
    assert trusted == share(odds) > 0.6
    odds = left_out(strangers)[0]
    assert odds[1] < 0
    assert share(odds) < 0.5


def test_whether_past_jobs_are_followed_is_learned_from_trials() -> None:
    history = made_history(4)
    prior = fit_prior(history.without("job-0"), history.candidates, trust=0.5)
    assert condition(prior, no_observations()).follows_history == pytest.approx(0.5)
    certain = fit_prior(history.without("job-0"), history.candidates, trust=1.0)
    seen = no_observations().with_trial(3, 400.0, 1.0, True).with_trial(20, 600.0, 9.0, True)
    assert condition(certain, seen).follows_history == pytest.approx(1.0)
    assert condition(prior, seen).follows_history != pytest.approx(0.5, abs=1e-3)


def test_a_history_without_trust_changes_only_how_long_jobs_take() -> None:
    history = made_history(3)
    seen = no_observations().with_trial(3, 100.0, 1.0, True).with_trial(20, 300.0, 2.0, True)
    alone = condition(fit_prior(None, history.candidates), seen).summary()
    beside = condition(fit_prior(history, history.candidates, trust=0.0), seen).summary()
    assert np.allclose(alone[0], beside[0], atol=0.15)


@pytest.mark.slow
def test_intervals_are_as_wide_as_the_left_out_jobs_needed_them(monkeypatch: pytest.MonkeyPatch) -> None:
    history = made_history(4)
    odds, scores = left_out(history)
    monkeypatch.setattr(trust, "left_out", lambda _: (odds, scores))
    width = belief(history).width
    assert WIDTHS[0] < width < WIDTHS[1]
    assert np.mean(scores < 1.6449 * width) == pytest.approx(0.9, abs=0.02)
    monkeypatch.setattr(trust, "left_out", lambda _: (odds[:3], scores))
    assert belief(history).width == 1.0
