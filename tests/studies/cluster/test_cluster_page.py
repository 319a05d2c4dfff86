from __future__ import annotations

from pathlib import Path

from lab.ask.scenario import build
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from studies.cluster import page


def test_the_page_compares_what_was_run_and_leaves_the_rest_open(tmp_path: Path) -> None:
    raw = {
        "name": "H4-100",
        "policies": ["fifo", "gavel-makespan"],
        "cluster": {
            "servers": {"v100": {"count": 1, "gpus": 2}},
            "synthetic": {"count": 3, "per_hour": 60.0, "gpus": [1]},
        },
    }
    runs = {run.policy: run for run in run_scenario(build(raw), RunStore(tmp_path))}
    text = page.document({"H4-100": runs})
    hours = runs["fifo"].metrics["makespan_s"] / 3600
    assert f"| fifo | 100 | 182.30 | {hours:.2f} |" in text
    assert "| fifo | 300 | 295.60 | – | – | – |" in text
    slower = runs["fifo"].metrics["makespan_s"] > runs["gavel-makespan"].metrics["makespan_s"]
    assert f"Of 1 pairs of policies at a load, {int(slower)} are in the source's order." in text
    assert "## Conditions" in text
