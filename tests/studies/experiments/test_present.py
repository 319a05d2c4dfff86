"""Evaluations as tables: beside the source, side by side, moved; the page and the results."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lab.runs.formats import grid, markdown
from lab.runs.page import svg
from studies.experiments import present
from studies.experiments.evaluate import Moved, assess
from studies.experiments.measures import Pick, mean
from studies.experiments.model import Figure
from studies.experiments.page import PAGES, Reported, document
from studies.harness import Asked
from studies.reference_figures import ReferenceFigure
from tests.studies.experiments.sample_cases import case
from tests.studies.tiny_experiment import TINY

SCENARIO = SimpleNamespace(seeds=[0, 1], question="What of it?")


def beside():
    """E1's bound of 1 s, broken: 1.5 and 2.5 s in two seeds."""
    experiment = replace(TINY, figures=(Figure("follows_s", "It follows", "s", 2, mean("x", Pick("escra"))),))
    return assess(experiment, SCENARIO, [case(seed=seed, x=1.5 + seed) for seed in (0, 1)])


def apart():
    """Two policies with no figure in the source."""
    figures = tuple(
        Figure(f"x@{policy}", "Quantity", "s", 1, mean("x", Pick(policy)), policy)
        for policy in ("escra", "vpa")
    )
    cases = [case(policy, seed, x=float(seed)) for policy in ("escra", "vpa") for seed in (0, 1)]
    return assess(replace(TINY, name="apart", figures=figures, curve="Policy"), SCENARIO, cases)


def test_ours_stands_beside_the_source_s_with_ratio_and_verdict():
    # Mean 2; standard error sqrt(0.5) / sqrt(2) = 0.5, times t(0.975, 1) = 12.706: 6.35. Ratio to 1: 2.
    header, _, lines = grid(present.result(beside()))
    assert header == ["Figure", "Unit", "Ours", "Source", "Ratio", "Verdict"]
    assert lines == [["It follows", "s", "2.00 ± 6.35", "≤ 1", "2.00", "not reproduced"]]


def test_several_experiments_share_a_table_that_names_them():
    header, _, lines = grid(present.judged([beside(), apart()]))
    assert header[0] == "Experiment"
    assert [line[0] for line in lines] == ["E1", "apart", "apart"]
    assert lines[1][1] == "Quantity (escra)"


def test_the_rule_and_the_discussion_come_with_the_table():
    text = markdown(present.result(beside()))
    assert "within a factor of 1.5" in text
    assert "It is tiny." in text
    assert "1 not reproduced" in text


def test_without_figures_of_the_source_conditions_stand_side_by_side():
    header, _, lines = grid(present.result(apart()))
    assert header == ["", "escra", "vpa"]
    assert lines == [["Quantity (s)", "0.5 ± 6.4", "0.5 ± 6.4"]]


def test_moved_figures_stand_beside_the_declared_and_the_source_s():
    moves = [Moved("as declared", {"follows_s": 2.0}), Moved("kappa=0.2", {"follows_s": math.nan})]
    header, _, lines = grid(present.moved(beside(), moves))
    assert header == ["", "source", "as declared", "kappa=0.2"]
    assert lines == [["It follows (s)", "1.00", "2.00", "–"]]


@pytest.mark.parametrize(
    ("kind", "low", "high", "text"),
    [
        ("change", -38.0, -38.0, "-38"),
        ("absolute", 100.0, 1000.0, "100–1,000"),
        ("at_most", 0.66, 0.66, "≤ 0.66"),
        ("sign", 1.0, 1.0, "> 0"),
        ("sign", -1.0, -1.0, "< 0"),
    ],
)
def test_the_source_s_figure_is_written_as_what_it_is(kind, low, high, text):
    assert present.source_text(ReferenceFigure("E0", "k", "w", kind, low, high, "1", "s")) == text


def test_the_page_escapes_and_has_chart_sensitivity_and_runs():
    page = present.document(beside(), [Moved("<b>", {"follows_s": 1.0})])
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    page = present.document(apart())
    assert "x-vpa-1" in page
    assert page.count("data:image/svg+xml") == 1


def test_the_same_evaluation_gives_the_same_chart():
    assert svg(present.curves(apart())) == svg(present.curves(apart()))


def test_the_results_have_each_experiment_with_the_command_that_prints_it():
    moved = [Moved("as declared", {"follows_s": 2.0})]
    reported = [Reported(beside(), moved), Reported(apart(), [])]
    text = document(PAGES["containers"], reported, Asked())
    assert "Of the source's 1 figures, the twin" in text
    assert text.index("does not reproduce 1.") < text.index("## Summary") < text.index("## Conditions")
    assert "| E1: A tiny experiment | 1 | 0 | 0 | 1 | 0 |" in text
    assert "`python -m studies E1`" in text
    assert "### E1: what it depends on" in text
    assert "`python -m studies apart`" in text
    assert "![A tiny experiment](apart.svg)" in text
    assert "It is tiny." in text


def test_a_page_without_a_source_has_no_verdicts():
    text = document(PAGES["requests-only"], [Reported(apart(), [])], Asked())
    assert "compared with the source" not in text
    assert "Compared with" not in text
    assert "## Summary" not in text
    assert text.index("## apart") < text.index("## Conditions")
