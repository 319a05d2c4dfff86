"""Plans of a fleet as runs of a scenario: the bill, its causes, and a search for spares."""

import numpy as np
import pytest
from typer.testing import CliRunner

from lab.ask.scenario import build, with_overrides
from lab.cli.main import app
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from twin.fabric.planner import BINS
from twinbed import ScenarioError

RAW = {
    "name": "planned",
    "fabric": {"fleet": {"gpus": 16_384, "days": 54, "plan": {}}},
    "policies": ["none", "thorn"],
    "seeds": [0],
}


def run(tmp_path, *changes):
    return run_scenario(with_overrides(build(RAW), changes), RunStore(tmp_path), jobs=1)


def test_gpu_hours_add_up_and_money_is_linear_in_the_price(tmp_path):
    dear, _ = run(tmp_path)
    figures = dear.metrics
    spares = 16 + 7  # Cold ones, and the 99th percentile of Binomial(2048, 1.2e-3).
    hours = sum(figures[f"{name}_gpu_h"] for name in BINS)
    assert hours == pytest.approx((16_384 + 8 * spares) * 54 * 24)
    assert figures["lost_gpu_h"] == pytest.approx(hours - figures["productive_gpu_h"])
    free, _ = run(tmp_path, "fabric.fleet.price_gpu_hour=0.0")
    assert free.metrics["lost_cost"] == 0 == free.frame("causes")["lost_cost"].sum()
    assert figures["lost_cost"] == 2 * figures["lost_gpu_h"]


def test_causes_bear_what_is_no_save_and_no_spare(tmp_path):
    figures, causes = (run(tmp_path)[0].metrics, run(tmp_path)[0].frame("causes"))
    assert causes["deaths"].sum() == figures["deaths"]
    caused = causes.filter(like="_gpu_h").to_numpy().sum()
    others = figures["productive_gpu_h"] + figures["checkpoint_gpu_h"] + figures["idle_spare_gpu_h"]
    assert caused + others == pytest.approx(sum(figures[f"{name}_gpu_h"] for name in BINS))


def test_a_scheme_survives_the_edge_and_slow_detection_costs(tmp_path):
    none, thorn = run(tmp_path)
    assert none.metrics["queue_gpu_h"] > 0 == thorn.metrics["queue_gpu_h"]
    edge = thorn.frame("causes").set_index("cause").loc[["cable", "switch"]]
    assert edge["deaths"].sum() == 0 < edge["stalls"].sum()
    _, slow = run(tmp_path, "fabric.fleet.plan.inspection=false")
    assert slow.metrics["effective_share"] < thorn.metrics["effective_share"]


def test_without_a_plan_a_fleet_is_simulated_iteration_by_iteration(tmp_path):
    whole, _ = run(tmp_path, "fabric.fleet={gpus: 64, days: 1}")
    assert np.isnan(whole.metrics["productive_gpu_h"])
    assert whole.metrics["effective_share"] > 0.9


def test_a_plan_whose_checkpoints_a_failure_can_all_destroy_is_refused(tmp_path):
    with pytest.raises(ScenarioError, match="one must survive everything"):
        run(tmp_path, "fabric.fleet.plan.tiers=[{name: a, survives: node, save_s: 1.0, restore_s: 1.0}]")


@pytest.mark.slow
def test_tuning_finds_how_many_spares_pay(tmp_path):
    asked = ["tune", "planner", "--store", str(tmp_path), "--minimise", "lost_cost", "--trials", "8"]
    asked += ["--set", "policies=[thorn]", "--set", "vary={}", "--set", "fabric.fleet.plan.warm=0"]
    asked += ["--over", "fabric.fleet.plan.cold=0:200", "--seeds", "0:3", "--format", "json"]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 0, told.output
    assert "fabric.fleet.plan.cold" in told.output
