"""Figures of one seed's runs, the arithmetic in comments."""

import math

import pytest

from studies.experiments.measures import (
    Pick,
    change,
    difference,
    largest,
    least_change,
    mean,
    median_change,
    most,
    scaled,
    total,
)
from studies.experiments.model import high_end
from tests.studies.experiments.sample_cases import case

BASE = Pick("static:factor=1.5")
ESCRA = Pick("escra")


def fleet(*values):
    """Per application (a, b, …): Escra's and the baseline's latency."""
    cases = []
    for app, (ours, theirs) in zip("abcdef", values, strict=False):
        cases.append(case("escra", settings={"app": app}, latency=ours))
        cases.append(case(BASE.policy, settings={"app": app}, latency=theirs))
    return cases


def test_a_change_is_the_mean_of_paired_changes_and_not_the_change_of_means():
    # (1/2 - 1) = -50 %, (30/10 - 1) = +200 %: mean +75 %. Means 15.5 against 6 would be +158 %.
    assert change("latency", ESCRA, BASE)(fleet((1.0, 2.0), (30.0, 10.0))) == pytest.approx(75.0)


def test_one_extreme_pair_does_not_move_the_median():
    # -50 %, +200 % and +9,900 %: median 200 %.
    cases = fleet((1.0, 2.0), (30.0, 10.0), (100.0, 1.0))
    assert median_change("latency", ESCRA, BASE)(cases) == pytest.approx(200.0)


def test_pairs_are_found_whatever_the_order():
    cases = fleet((1.0, 2.0), (30.0, 10.0))
    assert change("latency", ESCRA, BASE)(cases[::-1]) == pytest.approx(75.0)


@pytest.mark.parametrize("nothing", [0.0, math.nan])
def test_pairs_without_a_change_are_left_out(nothing):
    assert change("latency", ESCRA, BASE)(fleet((1.0, 2.0), (3.0, nothing))) == pytest.approx(-50.0)


def test_without_any_pair_there_is_no_figure():
    assert math.isnan(change("latency", ESCRA, BASE)(fleet((math.nan, 2.0))))


def test_what_the_picks_name_is_not_what_pairs_are_made_of():
    # At 50 ms against 100 ms, per application: 2/1 and 6/4 are +100 % and +50 %, mean +75 %.
    cases = [
        case(settings={"period_s": period_s, "app": app}, latency=value)
        for period_s, app, value in ((0.05, "a", 2.0), (0.05, "b", 6.0), (0.1, "a", 1.0), (0.1, "b", 4.0))
    ]
    of, against = Pick("escra", {"period_s": 0.05}), Pick("escra", {"period_s": 0.1})
    assert change("latency", of, against)(cases) == pytest.approx(75.0)
    assert difference("latency", of, against)(cases) == pytest.approx(1.5)  # (1 + 2) / 2


def test_means_totals_and_extremes_are_over_the_picked_runs():
    cases = [*(case(kills=float(n), settings={"app": n}) for n in range(3)), case("vpa", kills=9.0)]
    assert mean("kills", ESCRA)(cases) == pytest.approx(1.0)
    assert total("kills", ESCRA)(cases) == 3.0
    assert most("kills", ESCRA)(cases) == 2.0
    assert mean("kills", Pick("escra", {"app": 2}))(cases) == 2.0
    assert scaled(100, mean("kills", ESCRA))(cases) == pytest.approx(100.0)


@pytest.mark.parametrize("measure", [mean, total, most])
def test_without_any_run_there_is_no_figure(measure):
    assert math.isnan(measure("kills", Pick("vpa"))([case(kills=1.0)]))


def bounded(ours, theirs, censored):
    """Escra's and the baseline's latency on one application; censored: whose is a lower bound."""
    keys = {policy: ("latency",) if policy in censored else () for policy in ("escra", BASE.policy)}
    return [
        case("escra", latency=ours, censored=keys["escra"]),
        case(BASE.policy, latency=theirs, censored=keys[BASE.policy]),
    ]


def test_a_change_against_a_bound_is_at_most_what_the_bound_gives():
    # 1 s against more than 2 s: at least 50 % less, at most 100 %.
    value = change("latency", ESCRA, BASE)(bounded(1.0, 2.0, (BASE.policy,)))
    assert (value, high_end(value)) == (pytest.approx(-100.0), pytest.approx(-50.0))


def test_a_change_of_a_bound_is_at_least_what_the_bound_gives():
    value = change("latency", ESCRA, BASE)(bounded(3.0, 2.0, ("escra",)))
    assert (value, high_end(value)) == (pytest.approx(50.0), math.inf)


def test_a_mean_with_a_bound_is_a_bound_and_scales_as_one():
    cases = [
        case(settings={"app": 1}, latency=1.0),
        case(settings={"app": 2}, latency=3.0, censored=("latency",)),
    ]
    value = scaled(1000, mean("latency", ESCRA))(cases)
    assert (value, high_end(value)) == (2000.0, math.inf)


def test_the_largest_factor_is_of_one_pair_and_leaves_bounds_out():
    cases = fleet((1.0, 2.0), (30.0, 10.0))
    ratio = largest("latency", ESCRA, [BASE], lambda ours, theirs: ours / theirs)
    assert ratio(cases) == pytest.approx(3.0)
    assert math.isnan(ratio(bounded(3.0, 2.0, ("escra",))))


def test_the_least_change_may_be_an_interval():
    # -50 % for sure in one pair, at most -60 % in the other: the least is between -100 and -60 %.
    cases = [*fleet((1.0, 2.0)), *bounded(2.0, 5.0, (BASE.policy,))]
    value = least_change("latency", ESCRA, [BASE])(cases)
    assert (value, high_end(value)) == (pytest.approx(-100.0), pytest.approx(-60.0))
