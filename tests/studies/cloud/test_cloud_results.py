from __future__ import annotations

from pathlib import Path

import pytest

from studies.cloud import results


def test_data_that_is_not_there_is_said_and_no_figure_is_made_up(tmp_path: Path):
    rows = [line for line in results.performance(tmp_path) if line.startswith("| ")][2:]
    assert len(rows) == len(results.QUESTIONS)
    assert all("no data on this machine" in row for row in rows)


@pytest.mark.parametrize(
    ("value", "target", "said"), [(0.1, 0.1, "reached"), (0.11, 0.1, "missed"), (1, None, "–")]
)
def test_a_verdict_compares_with_the_target(value: float, target: float | None, said: str):
    assert results.verdict(value, target) == said


def test_a_page_has_every_part():
    assert results.page([lambda: ["one"], lambda: ["two"]]).endswith("\n\none\n\ntwo\n")
