"""T1 to T5: their inputs are the source's, and every figure names its adapter."""

import pytest

from lab.ask.scenario import expand
from lab.fabric.run.world import build_world
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
