"""Plans of a fleet as runs of a scenario: the bill, its causes, and a search for spares."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from lab.ask.scenario import build, expand, with_overrides
from lab.cli.main import app
from lab.fabric.input import fabric_of
from lab.fabric.run import planned as module
from lab.fabric.run.planned import plan_of
from lab.fabric.run.world import build_world
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from twin.fabric.planner import BINS, NO_PROGRESS, Loss, Plan
from twin.fabric.recovery_forms import expected_ettr
from twinbed import ScenarioError

RAW = {
    "name": "planned",
    "fabric": {"fleet": {"gpus": 16_384, "days": 54, "plan": {}}},
    "policies": ["none", "thorn"],
    "seeds": [0],
}


def run(tmp_path, *changes):
    return run_scenario(with_overrides(build(RAW), changes), RunStore(tmp_path), jobs=1)


def planned(*changes) -> Plan:
    scenario = with_overrides(build(RAW), changes)
    fleet = fabric_of(scenario).fleet
    return plan_of(build_world(expand(scenario)[0]), fleet, fleet.plan)


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


def test_a_plan_is_shown_with_its_own_rate_of_failures_and_its_spares(tmp_path):
    """The GPU-hours of spares count as lost: 16 nodes beside a job of one."""
    shown, _ = run(tmp_path, "fabric.fleet.plan.failures_per_node_day=0.05")
    told = "16,384 GPUs and 23 spare nodes of 8 for 54 days, 0.05 failures of a node a day"
    assert shown.manifest["about"] == told
    small, _ = run(tmp_path, "fabric.fleet.gpus=8")
    assert small.manifest["about"].startswith("8 GPUs and 16 spare nodes of 8 for 54 days")


def test_causes_bear_what_is_no_save_and_no_spare(tmp_path):
    figures, causes = (run(tmp_path)[0].metrics, run(tmp_path)[0].frame("causes"))
    deaths = causes.set_index("cause")["deaths"].drop("code change")
    assert deaths.sum() == figures["deaths"]
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


def test_a_fleet_without_failures_has_all_of_its_goodput(tmp_path):
    whole, _ = run(tmp_path, "fabric.fleet.plan.failures_per_node_day=0.0")
    assert whole.metrics["goodput_share"] == pytest.approx(1.0)
    assert np.isnan(whole.metrics["between_deaths_s"])
    _, some = run(tmp_path)
    assert some.metrics["effective_share"] < some.metrics["goodput_share"] < 1
    assert some.metrics["between_deaths_s"] == 54 * 86_400 / some.metrics["deaths"]


def test_replica_groups_survive_what_kills_a_job(tmp_path):
    _, whole = run(tmp_path)
    _, groups = run(tmp_path, "fabric.fleet.plan.replica_groups=32")
    assert groups.metrics["effective_share"] > whole.metrics["effective_share"]
    causes = groups.frame("causes").set_index("cause")
    assert causes["deaths"].drop(["silent data corruption", "code change"]).sum() == 0
    # A group of 32 is away for 60 s, and all repeat a step of 6.2 s.
    hosts = causes.loc["faulty GPU"]
    assert hosts["stall_gpu_h"] == pytest.approx(hosts["stalls"] * (60 / 32 + 6.2) * 16_384 / 3600, rel=0.02)


@pytest.mark.parametrize("groups", [1, 2049])
def test_replicas_are_two_at_least_and_whole_nodes(tmp_path, groups):
    with pytest.raises(ScenarioError, match=r"replica_groups.*2"):
        run(tmp_path, f"fabric.fleet.plan.replica_groups={groups}")


def test_a_restart_for_a_change_of_code_is_no_death(tmp_path):
    calm = ("fabric.fleet.plan.failures_per_node_day=0.0", "fabric.fleet.plan.updates_per_day=1.0")
    updated, _ = run(tmp_path, *calm)
    assert updated.metrics["deaths"] == 0
    assert updated.metrics["replace_gpu_h"] > 0


def test_a_checkpoint_s_best_interval_counts_faults_that_a_scheme_does_not_survive(tmp_path):
    # Queue pairs that give up after 33 ms live through no failover.
    dies, survives = (
        run(tmp_path, "fabric.retry_profile=plain", f"fabric.values.queue_pair.timeout={timeout}.0",
            "fabric.fleet.plan.tiers=[{name: remote, survives: peers, save_s: 20.0, restore_s: 120.0}]")[1]
        for timeout in (10, 20)
    )  # fmt: skip
    assert dies.frame("causes").set_index("cause")["deaths"]["cable"] > 0
    # An adapter's two uplinks add the edge's 35 of 419 failures twice to the 384 others.
    ratio = (dies.metrics["checkpoint_interval_s"] / survives.metrics["checkpoint_interval_s"]) ** 2
    # In 1 of 256 no connection is on the cable.
    assert ratio == pytest.approx(384 / (384 + 2 * 35 * 255 / 256), rel=2e-3)


def test_a_fleet_that_saves_in_no_time_needs_an_interval(tmp_path):
    free = ("fabric.fleet={gpus: 64, days: 1, save_s: 0.0}",)
    with pytest.raises(ScenarioError, match="checkpoint_interval_s"):
        run(tmp_path, *free)
    run(tmp_path, *free, "fabric.fleet.checkpoint_interval_s=60.0")


def test_an_interval_is_given_by_its_tier_s_name(tmp_path):
    saves, _ = run(tmp_path, "fabric.fleet.plan.intervals_s.remote=1200")
    assert saves.metrics["checkpoint_interval_s"] == 1200.0
    for wrong, says in (
        ("intervals_s.disk=60", "disk is no tier; there are peer, remote"),
        ("tiers=[{name: a, survives: peers, save_s: 1.0, restore_s: 1.0}, "
         "{name: a, survives: node, save_s: 1.0, restore_s: 1.0}]", "two have the same name"),
    ):  # fmt: skip
        with pytest.raises(ScenarioError, match=says):
            run(tmp_path, f"fabric.fleet.plan.{wrong}")


def tiers(*rows) -> str:
    made = (f"{{name: {name}, survives: {of}, save_s: {save}, restore_s: 1.0}}" for name, of, save in rows)
    return f"fabric.fleet.plan.tiers=[{', '.join(made)}]"


def test_the_tier_with_the_shortest_save_serves_a_failure_in_whatever_order_they_are_given():
    slow, quick, dear = ("memory", "process", 5.0), ("peer", "node", 0.5), ("remote", "peers", 20.0)
    first, other = (planned(tiers(*rows)) for rows in ((slow, quick, dear), (dear, quick, slow)))
    assert first.tiers == other.tiers
    by_name = {tier.name: tier for tier in first.tiers}
    usual = sum(failure.deaths_per_s for failure in first.failures if failure.loss < Loss.PEERS)
    assert by_name["peer"].interval_s == pytest.approx((2 * 0.5 / usual) ** 0.5)
    assert by_name["memory"].interval_s == first.duration_s  # it serves none
    two = planned(tiers(("store", "peers", 60.0), ("faster", "peers", 1.0)))
    every = sum(failure.deaths_per_s for failure in two.failures)
    assert two.tiers[1].interval_s == pytest.approx((2 * 1.0 / every) ** 0.5)


@pytest.mark.parametrize("gpus", [8, 64, 1024])
def test_a_small_fleet_restarts_no_faster_than_the_smallest_that_was_measured(gpus):
    asked = planned(f"fabric.fleet.gpus={gpus}")
    assert (asked.requeue_s, asked.update_s) == (454.0, 46.0)


def test_a_single_node_has_no_peer_that_holds_a_copy(tmp_path):
    alone, two = (planned(f"fabric.fleet.gpus={gpus}") for gpus in (8, 16))
    assert {failure.loss for failure in alone.failures} == {Loss.PROCESS, Loss.PEERS}
    assert Loss.NODE in {failure.loss for failure in two.failures}
    with pytest.raises(ScenarioError, match="a single node has no groups"):
        run(tmp_path, "fabric.fleet.gpus=8", "fabric.fleet.plan.replica_groups=2")


def test_a_plan_may_have_a_million_gpus_and_a_simulation_of_iterations_fewer(tmp_path):
    none, _ = run(tmp_path, "fabric.fleet.gpus=1048576", "fabric.fleet.days=1")
    assert 0 < none.metrics["effective_share"] < 0.2
    with pytest.raises(ScenarioError, match="need a plan"):
        run(tmp_path, "fabric.fleet={gpus: 262144, days: 1}")


def test_without_a_plan_a_fleet_is_simulated_iteration_by_iteration(tmp_path):
    whole, _ = run(tmp_path, "fabric.fleet={gpus: 64, days: 1}")
    assert np.isnan(whole.metrics["rework_gpu_h"])
    assert whole.metrics["effective_share"] > 0.9
    hours = whole.metrics["lost_gpu_h"] + whole.metrics["productive_gpu_h"]
    assert hours == pytest.approx(24 * (64 + 64 * 8))  # 64 spare hosts


def test_money_is_given_by_the_same_bins_as_gpu_hours(tmp_path):
    told, _ = run(tmp_path, "fabric.fleet.price_gpu_hour=3.25")
    bins = told.frame("bins").set_index("bin")
    assert list(bins.index) == list(BINS)
    np.testing.assert_allclose(bins["cost"], 3.25 * bins["gpu_h"])
    for name in BINS:
        assert bins["gpu_h"][name] == told.metrics[f"{name}_gpu_h"]
    np.testing.assert_allclose(bins["cost"].drop("productive").sum(), told.metrics["lost_cost"])


def test_a_plan_whose_checkpoints_a_failure_can_all_destroy_is_refused(tmp_path):
    with pytest.raises(ScenarioError, match=r"^--set: fabric.fleet.plan: tiers: .* add one that survives"):
        run(tmp_path, "fabric.fleet.plan.tiers=[{name: a, survives: node, save_s: 1.0, restore_s: 1.0}]")


@pytest.mark.parametrize("key", ["spares=0", "save_s=5.0", "rates=stepfun"])
def test_a_key_that_a_plan_does_not_read_is_refused(tmp_path, key):
    with pytest.raises(ScenarioError, match=rf"{key.partition('=')[0]}: has no effect with a plan"):
        run(tmp_path, f"fabric.fleet.{key}")


def test_an_adapter_with_one_uplink_is_as_fast_unless_the_scenario_says_otherwise(tmp_path):
    usual, same, slower = (
        run(tmp_path, f"fabric.fleet={{gpus: 4096, days: 30, iteration_s: 2.0{said}}}")[1].metrics
        for said in ("", ", degraded_iteration_s: 2.0", ", degraded_iteration_s: 6.2")
    )
    assert usual["effective_share"] == same["effective_share"] > slower["effective_share"]


def test_an_iteration_with_an_uplink_less_is_not_shorter(tmp_path):
    with pytest.raises(ScenarioError, match=r"degraded_iteration_s: 2 s is below iteration_s, 6\.2 s"):
        run(tmp_path, "fabric.fleet={gpus: 4096, days: 30, degraded_iteration_s: 2.0}")


def test_without_spares_a_fleet_trains_alike_with_a_plan_and_without(tmp_path):
    large = ("fabric.fleet.gpus=131072", "fabric.fleet.days=20")
    _, plan = run(tmp_path, *large, "fabric.fleet.plan.warm=0", "fabric.fleet.plan.cold=0")
    _, single = run(tmp_path, "fabric.fleet={gpus: 131072, days: 20, spares: 0}")
    assert max(plan.metrics["effective_share"], single.metrics["effective_share"]) < 0.005


@pytest.mark.slow
def test_tuning_finds_how_many_spares_pay(tmp_path):
    asked = ["tune", "planner", "--store", str(tmp_path), "--minimise", "lost_cost", "--trials", "8"]
    asked += ["--set", "policies=[thorn]", "--set", "vary={}", "--set", "fabric.fleet.plan.warm=0"]
    asked += ["--over", "fabric.fleet.plan.cold=0:200", "--seeds", "0:3", "--format", "json", "--jobs", "1"]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 0, told.output
    best = json.loads(told.output)["rows"][0]
    assert 0 < best["fabric.fleet.plan.cold"] < 200


@pytest.mark.slow
def test_tuning_finds_how_often_to_save(tmp_path):
    """The best of intervals around the first-order best is near it, as its loss is flat there."""
    asked = ["tune", "planner", "--store", str(tmp_path), "--maximise", "effective_share", "--trials", "8"]
    asked += ["--set", "policies=[thorn]", "--set", "vary={}", "--seeds", "0:3", "--format", "json"]
    asked += ["--jobs", "1"]
    remote = "[{name: remote, survives: peers, save_s: 20.0, restore_s: 120.0}]"
    asked += ["--set", f"fabric.fleet.plan.tiers={remote}"]
    told = CliRunner().invoke(app, [*asked, "--over", "fabric.fleet.plan.intervals_s.remote=60:20000:log"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.output)["rows"][0]["fabric.fleet.plan.intervals_s.remote"]
    _, alone = run(tmp_path, asked[-1])
    assert alone.metrics["checkpoint_interval_s"] / 3 < found < 3 * alone.metrics["checkpoint_interval_s"]


def test_a_fleet_that_fails_without_end_is_refused_as_the_closed_form_refuses_it(tmp_path):
    # A failure every 47 ms leaves no progress on the first day either.
    with pytest.raises(ScenarioError) as run_refused:
        run(tmp_path, "fabric.fleet.days=1", "fabric.fleet.plan.failures_per_node_day=900.0")
    with pytest.raises(ScenarioError) as form_refused:
        expected_ettr(900 * 2048 / 86_400, 480.0, 20.0, 600.0)
    assert str(run_refused.value).startswith(f"fabric.fleet.plan.{NO_PROGRESS}")
    assert str(form_refused.value).startswith(NO_PROGRESS)
    with pytest.raises(ScenarioError, match=r"no progress; .* \(it fails 1e\+11 times\)"):
        run(tmp_path, "fabric.fleet.plan.failures_per_node_day=1e6")


def test_iterations_that_would_fill_the_memory_are_refused(tmp_path):
    with pytest.raises(ScenarioError, match=r"fleet\.iteration_s: 4\.7e\+09 iterations in 54 days"):
        run(tmp_path, "fabric.fleet.plan=null", "fabric.fleet.iteration_s=0.001")


def test_the_length_of_a_stall_tells_nothing_about_whether_it_is_met(monkeypatch):
    seeds, real = [], np.random.default_rng
    monkeypatch.setattr(module, "gap_samples", lambda *args, **_: seeds.append(args[3]) or np.ones((4, 2)))
    monkeypatch.setattr(np.random, "default_rng", lambda seed: seeds.append(seed) or real(seed))
    handled = SimpleNamespace(handling=lambda scheme: None)
    asked = SimpleNamespace(repair_s=1.0, flows=1, faults=SimpleNamespace(silent=True))
    world = SimpleNamespace(
        network=np.random.SeedSequence(1), fabric=handled, scheme=None, port_failover=None, asked=asked
    )
    module._stalls(world, asked, SimpleNamespace(stall_s=np.asarray))
    assert seeds[0].spawn_key != seeds[1].spawn_key
