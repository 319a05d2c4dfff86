"""The page of the cloud, and its part on the table that ships, on a few of its rows."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("xgboost", reason="xgboost is not installed: pip install 'twinbed[cloud]'")

from control.predictor import physical
from lab.cloud.run import predicting
from lab.cloud.run.predicting import PHYSICAL
from studies.cloud import measured, page
from studies.experiments.catalogue import CLOUD


def test_the_page_begins_with_the_counts_and_ends_with_the_conditions():
    text = page.document(["| a | reached |\n| b | missed |", "| c | reproduced in size |"])
    assert "1 of the 2 targets below are reached" in text
    assert "Of the 1 figures of the sources' experiments 1 are reproduced" in text
    assert text.index("| c |") < text.index("## Conditions")


def test_the_page_claims_nothing_that_its_parts_do_not_tell():
    assert "better than" not in page.document([])


@pytest.mark.slow
def test_the_corrected_physics_stands_beside_its_targets(monkeypatch):
    rows = measured.rows()
    few = np.flatnonzero(rows.job < 3)
    some = rows.take(few[np.linspace(0, len(few) - 1, 30).astype(int)])
    monkeypatch.setattr(measured, "rows", lambda: some)
    # Every fold of the judging trains a model, which has folds of its own: a few of each do here.
    monkeypatch.setattr(predicting, "FOLDS", 2)
    monkeypatch.setattr(physical, "_FOLDS", 3)
    lines = "\n".join(measured.section((PHYSICAL, "linear"))).splitlines()
    targets = [line.split(" | ") for line in lines if line.startswith(("| cost | ", "| time | "))]
    assert len(targets) == 10
    assert {line[-1] for line in targets} <= {"reached |", "missed |"}
    assert sum(line.startswith(("| physical | ", "| linear | ")) for line in lines) == 8
    assert "real runs" in " ".join(lines)
    assert any(" of 4 comparisons: of cost and time" in line for line in lines)


@pytest.mark.slow
def test_runs_measured_twice_say_how_well_any_predictor_can_do(monkeypatch, tmp_path):
    path = tmp_path / "again.csv"
    monkeypatch.setattr(measured, "AGAIN", path)
    assert measured.again() is None
    table = pd.read_csv(measured.data_set.TABLE)
    fine = table[table.outcome == "ok"]
    fine.iloc[:5].to_csv(path, index=False)
    same = measured.again()
    assert same is not None
    assert same.differences.tolist() == [0.0] * 5
    assert set(same.ceiling.values()) == {1.0}
    assert set(same.told_well.values()) == {7.0}
    twice = fine.iloc[:5].assign(
        step_median_s=lambda rows: 2 * rows.step_median_s, step_mean_s=lambda rows: 2 * rows.step_mean_s
    )
    twice.to_csv(path, index=False)
    other = measured.again()
    assert other is not None
    assert (other.differences > 0.5).all()
    assert max(other.ceiling.values()) < 1.0
    assert max(other.told_well.values()) < 7.0
    assert next(measured.repeated()).startswith("5 of these runs were measured once more")


def test_every_experiment_has_its_table_and_its_reasons():
    some = {name: CLOUD[name] for name in ("C4", "F1")}
    lines = list(page.experiments(some))
    assert [line for line in lines if line.startswith("### ")] == [
        f"### {name}: {item.title}" for name, item in some.items()
    ]
    assert all(text in lines for item in some.values() for text in item.discussion)
