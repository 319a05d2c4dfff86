import numpy as np
import pytest

from control.jobs import Configuration, History, InstanceType, Job, Objective, candidates
from control.recommender.plain_search import Exhaustive
from control.recommender.ports import Observations, Proposal, Request
from studies.cloud.searches import answers, auc, play, ratios, reachable, regret_after, trials_to
from twinbed import InvariantError

TYPES = {name: InstanceType(name, "made-up", 2, 8) for name in "abcd"}
AMONG = candidates(
    TYPES,
    {name: float(place + 1) for place, name in enumerate("abcd")},
    [Configuration(n, 1) for n in "abcd"],
)
TIME = np.array([[3600.0, 1800.0, np.nan, 600.0], [3600.0, 3600.0, 3600.0, 3600.0]])
TABLE = History(
    ("x", "y"),
    AMONG,
    TIME,
    TIME / 3600 * AMONG.price_usd_h,
    np.array([[True, True, False, False], [True, True, True, True]]),
)


def test_only_what_was_measured_can_be_proposed_and_a_failure_is_never_the_best() -> None:
    own = reachable(TABLE, 0)
    assert own.candidates.name.tolist() == ["a", "b", "d"]
    # a: 1 h · 1 $/h; b: 0.5 h · 2 $/h; d failed
    assert ratios(own, 0, Objective.COST).tolist() == [1.0, 1.0, np.inf]
    assert ratios(own, 0, Objective.TIME).tolist() == [2.0, 1.0, np.inf]


def test_a_search_is_told_nothing_but_what_it_paid_for() -> None:
    asked: list[int] = []

    def answer(row: int) -> tuple[float, float, bool]:
        asked.append(row)
        return answers(TABLE, 1)(row)

    class Watched:
        def propose(self, observed: Observations) -> Proposal:
            assert observed.candidate.tolist() == asked
            assert np.array_equal(observed.cost_usd, TABLE.cost_usd[1, asked])
            return Proposal(len(asked), "next")

    played = play(Watched(), answer, most=3)
    assert played.observed.candidate.tolist() == [0, 1, 2]
    assert played.stopped is None


def test_a_search_that_repeats_a_trial_is_our_bug() -> None:
    class Stuck:
        def propose(self, observed: Observations) -> Proposal:
            return Proposal(0, "again")

    with pytest.raises(InvariantError, match="candidate 0 twice"):
        play(Stuck(), answers(TABLE, 1), most=3)


def test_exhaustive_search_finds_the_best_and_stops() -> None:
    request = Request(Job("y"), TABLE.candidates)
    played = play(Exhaustive().searcher(request, 0), answers(TABLE, 1), most=10)
    ratio = ratios(TABLE, 1, Objective.COST)
    assert (played.stopped, played.best) == (4, 0)
    assert trials_to(played.observed, ratio, 0.1) == 1
    assert regret_after(played.observed, ratio, 3, most=5.0) == 0.0


def test_a_search_whose_trials_all_failed_has_the_largest_regret_and_found_nothing() -> None:
    seen = Observations(np.array([2]), np.array([1.0]), np.array([1.0]), np.array([False]))
    ratio = np.array([1.0, 2.0, np.inf])
    assert trials_to(seen, ratio, 0.1) is None
    assert regret_after(seen, ratio, 3, most=5.0) == 5.0


def test_auc_counts_pairs_in_the_right_order() -> None:
    # positives 3 and 1 against negatives 2 and 1: 3 > 2, 3 > 1, 1 < 2, 1 = 1 → 2.5 of 4
    assert auc(np.array([True, False, True, False]), np.array([3.0, 2.0, 1.0, 1.0])) == 0.625
    assert np.isnan(auc(np.array([True]), np.array([1.0])))
