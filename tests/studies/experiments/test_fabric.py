"""T1 to T5: their inputs are the source's, and every figure names its adapter."""

import pytest

from lab.ask.scenario import expand, with_overrides
from lab.fabric.run.world import build_world
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from studies.experiments.catalogue import EXPERIMENTS
from studies.experiments.evaluate import changed, scenario_of
from studies.experiments.fabric import PROFILES, T3
from studies.reference_figures import reference_figures
from twin.fabric.jobs import Cluster, Job, iteration_s
from twin.fabric.rdma import goodput_bps

JOBS = ("dp", "pp", "pp_tp")
OF_A_JOB = ("iterations", "epochs", "average", "jitter_cv", "checkpoint")


def usual_s(spec):
    world = build_world(spec)
    asked = world.asked.training.model_dump(exclude=set(OF_A_JOB))
    rate_bps = goodput_bps(world.rate_bps, world.fabric.queue_pair.mtu_bytes, world.scheme)
    return iteration_s(
        Job(**asked), Cluster(1, rate_bps, world.fabric.alpha_s, rate_bps, world.fabric.alpha_s)
    )


def test_t3_s_iterations_are_as_long_as_the_source_s_milliseconds_over_its_percents():
    source = {figure.key: figure.low for figure in reference_figures() if figure.experiment == "T3"}
    specs = [spec for spec in expand(scenario_of(T3, [0])) if spec.policy.name == "thorn"]
    quiet = [spec for spec in specs if spec.scenario.fabric.faults.kind == "none"]
    for spec, job in zip(quiet, JOBS * len(PROFILES), strict=True):
        told_s = [source[f"{job}_p{share}_ms"] / source[f"{job}_p{share}"] / 10 for share in (90, 95)]
        assert min(told_s) * 0.995 <= usual_s(spec) <= max(told_s) * 1.005
        assert spec.scenario.fabric.training.jitter_cv > 0


@pytest.mark.parametrize("name", ["T1", "T2", "T3", "T4", "T5"])
def test_every_figure_names_its_adapter_and_none_has_todays_nccl(name):
    item = EXPERIMENTS[name]
    assert {figure.aside for figure in item.figures} == set(PROFILES)
    pairs = [build_world(spec).fabric.queue_pair for spec in expand(scenario_of(item, [0]))]
    assert {pair.timeout for pair in pairs} == {14 if name == "T5" else 18}
    assert len({pair.retry_profile for pair in pairs}) == len(PROFILES)


def test_t3_s_variation_is_one_of_its_assumptions(tmp_path):
    titles = {change.title: change for change in T3.sensitivity}
    for title, cv in (("iterations do not vary", 0.0), ("iterations vary by 5 %", 0.05)):
        varied = changed(scenario_of(T3, [0]), titles[title], tmp_path)
        assert {training["jitter_cv"] for training in varied.vary["fabric.training"]} == {cv}


# Profile: T2, %; T3 at p90 and p95, data and pipeline parallel, ms; T4, all-to-all and all-reduce, %.
EXPECTED = {
    "plain": (1.92, (0.0, 107.4), (107.4, 107.4), (2.96, 1.01)),
    "cx6-20.43": (0.54, (7.2, 23.9), (44.0, 44.0), (1.23, 0.41)),
    "cx6-20.40": (0.68, (0.0, 25.3), (52.2, 52.2), (1.46, 0.49)),
}
"""Seed 0, as tried once with another twin: routes after 1 ms, and T3's micro-batches of 0.1524 s without
variation. The pages have routes as measured since (23.5 ms), and T3's iterations as long as the source's."""
THEN = ("policies=[thorn]", "seeds=[0]", "fabric.values.control.route_s=0.001")


def measured(name, profile, tmp_path, *changes):
    """Return the metrics without faults and with faults all the time."""
    vary = "vary={fabric.faults.kind: [none, round_robin]}"
    # 20.40 was measured up to 2^16 alone.
    timeout = 16 if profile == "cx6-20.40" else 18
    pair = f"fabric.nccl.variables={{NCCL_IB_TIMEOUT: {timeout}}}"
    asked = [*THEN, pair, f"fabric.retry_profile={profile}", vary, *changes]
    scenario = with_overrides(scenario_of(EXPERIMENTS[name], [0]), asked)
    return [run.metrics for run in run_scenario(scenario, RunStore(tmp_path), jobs=1)]


@pytest.mark.slow
@pytest.mark.parametrize("profile", EXPECTED)
def test_t2_to_t4_s_expected_figures_come_from_their_own_inputs(profile, tmp_path):
    job, data, pipeline, bus = EXPECTED[profile]
    quiet, faulty = measured("T2", profile, tmp_path)
    assert 100 * (faulty["job_s"] / quiet["job_s"] - 1) == pytest.approx(job, abs=0.05)
    usual = "micro_batch_s: 0.1524, layers: 12, parameters: 124000000.0, activation_bytes: 18874368.0"
    usual += ", iterations: 4000, average: 10"
    shapes = (data, "micro_batches: 4, data: 4"), (pipeline, "micro_batches: 16, pipeline: 4")
    for added_ms, shape in shapes:
        quiet, faulty = measured("T3", profile, tmp_path, f"fabric.training={{{usual}, {shape}}}")
        for share, expected_ms in zip((90, 95), added_ms, strict=True):
            added_s = faulty[f"iteration_p{share}_s"] - quiet[f"iteration_p{share}_s"]
            assert 1000 * added_s == pytest.approx(expected_ms, abs=0.5)
    for operation, expected in zip(("alltoall", "all_reduce"), bus, strict=True):
        quiet, faulty = measured("T4", profile, tmp_path, f"fabric.collective.operation={operation}")
        key = "bus_bandwidth_mean_gbps"
        assert 100 * (1 - faulty[key] / quiet[key]) == pytest.approx(expected, abs=0.03)
