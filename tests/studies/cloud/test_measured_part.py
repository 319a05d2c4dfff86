"""The results page's part on the table that ships, on a few of its rows."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("xgboost", reason="xgboost is not installed: pip install 'twinbed[cloud]'")

from lab.cloud.input import data_set
from lab.cloud.run.predicting import PHYSICAL
from studies.cloud import measure, measured_figures, measured_part
from studies.experiments.catalogue import CLOUD


@pytest.mark.slow
def test_the_corrected_physics_stands_beside_its_targets(monkeypatch):
    rows = measured_figures.rows()
    some = rows.take(np.linspace(0, len(rows) - 1, 40).astype(int))
    monkeypatch.setattr(measured_figures, "rows", lambda: some)
    lines = measured_part.table((PHYSICAL, "linear"))
    targets = [line.split(" | ") for line in lines if line.startswith(("| cost | ", "| time | "))]
    assert len(targets) == 10
    assert {line[-1] for line in targets} <= {"reached |", "missed |"}
    assert sum(line.startswith(("| physical | ", "| linear | ")) for line in lines) == 8
    assert "real runs" in " ".join(lines)


@pytest.mark.slow
def test_runs_measured_twice_say_how_well_any_predictor_can_do(monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "AGAIN", tmp_path / "again.csv")
    assert measured_figures.again() is None
    table = pd.read_csv(data_set.TABLE)
    fine = table[table.outcome == "ok"]
    fine.iloc[:5].to_csv(measure.AGAIN, index=False)
    same = measured_figures.again()
    assert same is not None
    assert same.differences.tolist() == [0.0] * 5
    assert set(same.ceiling.values()) == {1.0}
    assert set(same.told.values()) == {7.0}
    twice = fine.iloc[:5].assign(
        step_median_s=lambda rows: 2 * rows.step_median_s, step_mean_s=lambda rows: 2 * rows.step_mean_s
    )
    twice.to_csv(measure.AGAIN, index=False)
    other = measured_figures.again()
    assert other is not None
    assert (other.differences > 0.5).all()
    assert max(other.ceiling.values()) < 1.0
    assert max(other.told.values()) < 7.0
    assert "5 of these runs took" in " ".join(measured_part._repeated())


def test_every_experiment_has_its_table_and_its_reasons(monkeypatch):
    monkeypatch.setattr(measured_part, "CLOUD", {name: CLOUD[name] for name in ("C4", "F1")})
    lines = measured_part.experiments()
    assert [line for line in lines if line.startswith("### ")] == [
        f"### {name}: {CLOUD[name].title}" for name in ("C4", "F1")
    ]
    assert all(text in lines for name in ("C4", "F1") for text in CLOUD[name].discussion)
