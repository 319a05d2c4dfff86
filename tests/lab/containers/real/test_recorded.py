"""When a job's recording is made, and when the one that is there is taken."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from lab.ask.scenario import build
from lab.containers.input.recording import Request
from lab.containers.real import recorded
from tests.lab.containers.advise.histories import trace
from traces import parquet


def test_another_spelling_of_the_interpreter_records_nothing_anew(tmp_path, monkeypatch) -> None:
    (tmp_path / "job.yaml").write_text("containers: [{name: a, command: python -c pass}]\n")
    scenario = build({"name": "t", "job": {"file": str(tmp_path / "job.yaml")}, "policies": ["escra"]})
    made: list[str] = []

    def record(request: Request, _duration_s: float, path: Path) -> None:
        made.append(request.specs[0].command[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write(trace(np.full((1, 10), 0.5), names=["a"], interval_s=0.1), path)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(recorded, "_record", record)
    for spelling in (sys.executable, f"{sys.executable}3"):
        monkeypatch.setattr(sys, "executable", spelling)
        recorded.load_source(scenario)
    assert len(made) == 1
    assert made[0].startswith("/")
