"""An experiment small enough for tests: one synthetic container, two policies, three seeds."""

from __future__ import annotations

import pytest

from lab.runs import runner
from studies.experiments import catalogue, evaluate
from studies.experiments.measures import Pick, change, mean
from studies.experiments.model import Change, Experiment, Figure

SCENARIO = """
name: tiny
question: Does it run?
workload:
  containers:
    - name: steps
      threads: 2
      memory_bytes: 100000000
      steps:
        - {duration_s: 2, cpu_cores: 0.5}
        - {duration_s: 2, cpu_cores: 1.5}
host_cores: 4
vary:
  budget_factor: [1.5, 2.0]
policies: [escra, "static:factor=1.5"]
seeds: [0, 1, 2]
"""

ESCRA, STATIC = Pick("escra"), Pick("static:factor=1.5")

TINY = Experiment(
    name="E1",
    title="A tiny experiment",
    scenario="tiny.yaml",
    method="By hand.",
    figures=(
        Figure("slack", "CPU slack, Escra vs Static", "%", 1, change("cpu_slack_p50_cores", ESCRA, STATIC)),
        Figure("follows_s", "A bound of the source", "s", 2, mean("lateness_p50_s", ESCRA)),
    ),
    discussion=("It is tiny.",),
    sensitivity=(Change("kappa=0.2", ("escra.kappa=0.2",)),),
)


def install(monkeypatch: pytest.MonkeyPatch, folder) -> Experiment:
    """Make the tiny experiment known, with its scenario in `folder`."""
    (folder / "tiny.yaml").write_text(SCENARIO)
    monkeypatch.setattr(evaluate, "SCENARIOS", folder)
    # Worker processes would take longer to start than the runs take.
    monkeypatch.setattr(runner, "cores", lambda: 1)
    monkeypatch.setattr(catalogue, "EXPERIMENTS", {TINY.name: TINY})
    return TINY
