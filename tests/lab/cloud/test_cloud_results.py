from __future__ import annotations

from pathlib import Path

import pytest

from lab.cloud import results


def test_data_that_is_not_there_is_said_and_no_figure_is_made_up(tmp_path: Path):
    rows = [line for line in results.performance(tmp_path) if line.startswith("| ")][2:]
    assert len(rows) == len(results.QUESTIONS)
    assert all("no data on this machine" in row for row in rows)


@pytest.mark.parametrize(
    ("value", "target", "said"), [(0.1, 0.1, "reached"), (0.11, 0.1, "missed"), (1, None, "–")]
)
def test_a_verdict_compares_with_the_target(value: float, target: float | None, said: str):
    assert results.verdict(value, target) == said


def test_every_choice_of_fc2_has_a_row_and_stays_within_the_cap():
    rows = [line.split(" | ") for line in results.choices() if line.startswith("| F")]
    assert [row[0].strip("| ") for row in rows] == [choice.experiment for choice in results.CHOICES]
    assert all(int(row[2].split(" × ")[0]) <= results.CAP for row in rows)


def test_cheap_types_are_chosen_as_the_source_chose_them():
    """F1, exactly: two t2.xlarge at batch 64, three at batch 128."""
    rows = [line.split(" | ") for line in results.choices(results.CHOICES[:2]) if line.startswith("| F1")]
    assert [row[2] for row in rows] == [row[3] for row in rows] == ["2 × t2.xlarge", "3 × t2.xlarge"]


def test_a_page_has_every_part():
    assert results.page([lambda: ["one"], lambda: ["two"]]).endswith("\n\none\n\ntwo\n")
