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


def test_real_waits_stand_beside_those_of_our_schedulers(tmp_path: Path) -> None:
    log = tmp_path / "pods.csv"
    log.write_text(
        "name,num_gpu,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "a,2,,LS,Succeeded,0,1000,100\nb,1,,LS,Failed,50,300,50\nc,1,,LS,Running,5,2000,5\n"
    )
    raw = {
        "name": "alibaba",
        "policies": ["fifo"],
        "cluster": {
            "servers": {"t4": {"count": 1, "gpus": 2}, "g2": {"count": 2, "gpus": 8}},
            "log": {"path": str(log), "format": "alibaba-gpu-2023"},
        },
    }
    (run,) = run_scenario(build(raw), RunStore(tmp_path / "runs"))
    text = page.document({"alibaba": {"fifo": run}})
    assert "| in the cluster | 2 | 50 | 90 | 99 | 50.0 |" in text
    assert "| fifo | 2 | 0 | 0 | 0 | 0.0 |" in text
    assert "held at most 3 of 18 GPUs at once" in text
