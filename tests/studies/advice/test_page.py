"""The study of advice: one history judged, and the page that its sums make."""

import numpy as np

from studies.advice.halves import JUDGED, Sums, added, judge
from studies.advice.histories import SETS, History
from studies.advice.page import document
from tests.lab.containers.advise.histories import MIB, trace


def test_what_leaps_in_the_second_half_is_counted_as_an_oom_event_of_those_that_set_limits():
    held = np.full((2, 400), 100.0 * MIB)
    held[1, 300] = 900 * MIB
    sums = judge(trace(np.full((2, 400), 0.2), held), "test")
    own, krr, vpa = (sums[name] for name in ("requests-only", "krr", "vpa"))
    assert (own.containers, own.with_memory) == (2, 2)
    assert (own.without_oom, krr.without_oom, vpa.without_oom) == (1, 1, 2)
    assert own.cpu_money + own.memory_money < krr.cpu_money + krr.memory_money
    assert (own.limited, sums["limits"].limited) == (0, 2)
    # The second half is known, but not how use varies within its intervals.
    assert own.oracle_late_s <= 1.01 * own.late_s


def test_containers_of_one_half_only_do_not_count():
    present = np.ones((1, 10))
    present[0, 5:] = 0
    assert judge(trace(np.ones((1, 10)), present=present), "test") is None


def test_the_page_says_what_was_reached_and_names_what_is_not_there():
    whole = Sums(100, 100, 97, 5.0, 5.0, 0, 0.0, 10.0, 100.0, 1.0, 7.5, 1e9, 1.5e9)
    dear = Sums(100, 100, 90, 8.0, 4.0, 0, 0.0, 8.0, 100.0, 2.0, 7.5, 1e9, 1e9)
    table = {name: whole if name in ("requests-only", "limits") else dear for name in JUDGED}
    page = document([(History("Some set", "", False, "", {}), table)], ["Other set"])
    assert "With twinbed's advice, 97.0 % of 100 containers" in page
    assert "(aim: 95 %, reached; least in Some set: 97.0 %), 90.0 % with krr's" in page
    assert "16.7 % less money than krr's" in page
    assert "1.0 % of the work is late, against 2.0 % with krr's" in page
    aims = "yes, 97.0 % | yes, -16.7 %, -16.7 % | yes, 1 against 2 and 2 % | **no**, 10 against 8 and 8 %"
    assert f"| Some set | {aims} | yes, 7.5 against 8 and 8 % |" in page
    assert "With the second half known, requests that cost less than both rivals' would leave 7.5 %" in page
    assert "Not replayed: Other set." in page
    assert added([whole, whole]).containers == 200


def test_a_page_without_unseen_histories_judges_no_aim():
    page = document([], ["Some set"])
    assert "No history that the first method had not seen was replayed, so no aim is judged." in page
    assert "reached" not in page
    assert "100.0 %" not in page


def test_most_histories_were_not_seen_during_development():
    assert sum(not history.seen for history in SETS) > 60
