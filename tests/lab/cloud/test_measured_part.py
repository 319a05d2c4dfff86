"""The results page's part on the table that ships, on a few of its rows."""

import numpy as np
import pytest

pytest.importorskip("xgboost", reason="xgboost is not installed: pip install 'twinbed[cloud]'")

from lab.cloud import measured_figures, measured_part
from lab.cloud.predicting import PHYSICAL
from lab.experiments.catalogue import CLOUD


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


def test_every_experiment_has_its_table_and_its_reasons(monkeypatch):
    monkeypatch.setattr(measured_part, "CLOUD", {name: CLOUD[name] for name in ("C4", "F1")})
    lines = measured_part.experiments()
    assert [line for line in lines if line.startswith("### ")] == [
        f"### {name}: {CLOUD[name].title}" for name in ("C4", "F1")
    ]
    assert all(text in lines for name in ("C4", "F1") for text in CLOUD[name].discussion)
