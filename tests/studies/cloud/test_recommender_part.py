"""The results page's part on recommenders."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from studies.cloud import recommender_part
from studies.cloud.evaluate_recommenders import Judged
from studies.cloud.recommender_part import DATA, FIGURES, area, table, trials


def judged(trials: float, auc: float = float("nan")) -> Judged:
    return Judged("made-up", "ours", "job", 0, trials, 0.1, auc, auc, 0.9)


def test_without_data_each_row_says_so(tmp_path: Path) -> None:
    rows = [line for line in table(tmp_path) if "no data on this machine" in line]
    assert len(rows) == len(FIGURES) + len(DATA)


def test_a_search_that_never_came_there_has_no_mean() -> None:
    assert trials([judged(2.0), judged(4.0)]) == 3.0
    assert trials([judged(2.0), judged(float("nan"))]) == np.inf
    assert np.isnan(area([judged(1.0)]))
    assert area([judged(1.0, 0.8), judged(1.0)]) == 0.8


def test_what_ends_without_a_find_is_counted(public_data: Callable[[str], Path], monkeypatch) -> None:
    folder = public_data("scout_multinode").parent
    monkeypatch.setattr(recommender_part, "DATA", (recommender_part.SCOUT,))
    lines = table(folder, names=("exhaustive", "cost-opt"))
    rows = {line.split(" | ")[1]: line.split(" | ") for line in lines if line.startswith("| scout | ")}
    assert rows["exhaustive"][4] == "0%"
    assert rows["cost-opt"][4] != "0%"
