"""The `serverless:` section: what is refused and how, what it becomes, and its runs in the store."""

from __future__ import annotations

import numpy as np
import pytest

from control.allocator.model import PAGE_BYTES
from control.services import Draw
from lab.ask.scenario import Scenario, build, expand, load, variants, with_overrides
from lab.containers.input.sections import machine_of
from lab.containers.input.services.functions import load_source
from lab.containers.input.services.serverless import FUNCTIONS
from lab.containers.metrics import METRICS
from lab.containers.run.remarks import facts
from lab.runs.compare import as_result
from lab.runs.formats import table
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from twin.containers.serverless_model import Batch, Invocations, ServerlessWorkload
from twinbed import ScenarioError

MIB = 1 << 20
SMALL = {
    "name": "resize",
    "assumptions": "A test's.",
    "pod": {"start": {"mean_s": 0.5, "distribution": "fixed"}, "initialise": {"mean_s": 0.2}},
    "parts": [{"wait_s": 0.1}, {"cpu_s": 0.3, "distribution": "exponential"}],
}


def serverless(**section: object) -> Scenario:
    given = {"function": SMALL, "interval_s": 0.5, "duration_s": 10.0, "max_pods": 3} | section
    return build(
        {
            "name": "pods",
            "serverless": {key: value for key, value in given.items() if value is not None},
            "policies": ["static:factor=1", "escra:upsilon=35"],
            "budget_factor": 1.0,
        }
    )


def prepared(scenario: Scenario, seed: int = 0) -> ServerlessWorkload:
    spec = expand(scenario)[0]
    replay = load_source(scenario).prepare(scenario, machine_of(spec), np.random.SeedSequence(seed))
    assert isinstance(replay.workload, ServerlessWorkload)
    return replay.workload


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return run_scenario(serverless(), RunStore(tmp_path_factory.mktemp("store")), jobs=1)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    scenario = serverless(batch={"tasks": 12, "workers": 3}, interval_s=None, duration_s=60.0)
    return run_scenario(scenario, RunStore(tmp_path_factory.mktemp("store")), jobs=1)


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"function": "image_proces"}, "did you mean 'image_process'"),
        ({"function": "nothing like it"}, "there are image_process, grid_search"),
        ({"interval_s": None}, "give one of interval_s, arrivals, batch"),
        ({"batch": {"tasks": 3, "workers": 2}}, "give one of interval_s, arrivals, batch"),
        ({"max_pods": None}, "max_pods: give the largest number"),
        ({"interval_s": 0.0}, "interval_s"),
        ({"hosts": 0}, "hosts"),
        ({"function": SMALL | {"parts": []}}, "parts"),
        ({"function": SMALL | {"parts": [{"cpu_s": 1.0, "wait_s": 1.0}]}}, "give one of cpu_s, wait_s"),
        ({"function": SMALL | {"parts": [{}]}}, "give one of cpu_s, wait_s"),
        ({"function": SMALL | {"pod": {"memory": 256}}}, "memory"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(section, problem):
    with pytest.raises(ScenarioError, match="serverless") as refused:
        serverless(**section)
    assert problem in str(refused.value)


def test_a_scenario_is_about_one_thing():
    with pytest.raises(ScenarioError, match=r"give one of .*serverless"):
        build(
            {
                "name": "two",
                "serverless": {"function": "grid_search", "interval_s": 1, "max_pods": 1},
                "trace": {"source": "compile_batch"},
            }
        )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_come_along_say_where_their_figures_are_from_and_fit_their_pods(name):
    function = FUNCTIONS[name]
    assert len(function.assumptions) > 200
    pod = function.pod
    assert pod.base_mib + pod.retained_mib + pod.working_mib <= pod.memory_mib


def test_the_section_becomes_the_twins_workload():
    workload = prepared(serverless(hosts=2, phases=3))
    assert isinstance(workload.load, Invocations)
    np.testing.assert_allclose(workload.load.at_s, np.arange(20) * 0.5)
    assert (workload.max_pods, workload.hosts, workload.phases, workload.periods) == (3, 2, 3, 100)
    assert workload.cores_per_host == 16.0
    wait, compute = workload.steps
    assert (wait.cpu, wait.draw, wait.mean_s) == (False, Draw.LOGNORMAL, 0.1)
    assert (compute.cpu, compute.draw, compute.mean_s) == (True, Draw.EXPONENTIAL, 0.3)
    pod = workload.pod
    assert (pod.start.cpu, pod.start.draw, pod.start.mean_s, pod.initialise.cpu) == (
        False,
        Draw.FIXED,
        0.5,
        True,
    )
    assert (pod.memory_bytes, pod.base_bytes) == (256 * MIB, 40 * MIB)
    # Ω and M: what the pods ask for together, and a page each for rounding.
    assert workload.application.cpu_limit_cores == pytest.approx(3.0)
    assert workload.application.memory_limit_bytes == 3 * (256 * MIB + PAGE_BYTES)


def test_arrivals_come_from_the_runs_seed():
    scenario = serverless(arrivals={"kind": "exponential", "rate_rps": 3.0}, interval_s=None)
    first, again, other = (prepared(scenario, seed).load for seed in (1, 1, 2))
    assert isinstance(first, Invocations)
    assert np.array_equal(first.at_s, again.at_s)
    assert not np.array_equal(first.at_s, other.at_s)


def test_a_batch_has_as_many_pods_as_workers():
    scenario = serverless(batch={"tasks": 9, "workers": 4}, interval_s=None, max_pods=None)
    workload = prepared(scenario)
    assert workload.load == Batch(9, 4, 1)
    assert len(workload.names) == 4


def test_single_figures_of_a_function_that_comes_along_can_be_set_and_varied():
    scenario = serverless(function="image_process")
    changed = with_overrides(scenario, ["serverless.function.pod.threads=2"])
    assert prepared(changed).pod.threads == 2
    varied = with_overrides(scenario, ["vary.serverless.function=[image_process, grid_search]"])
    assert [spec.scenario.serverless.function.name for spec in expand(varied)] == [
        "image_process",
        "image_process",
        "grid_search",
        "grid_search",
    ]


def test_prose_does_not_make_another_run():
    one, other = serverless(), serverless(function=SMALL | {"assumptions": "Others."})
    assert load_source(one).sha256 == load_source(other).sha256
    assert load_source(one).sha256 != load_source(serverless(interval_s=0.6)).sha256


def test_a_run_has_its_invocations_as_requests(runs):
    for run in runs:
        asked = run.table("requests")
        assert asked.num_rows == 20
        assert set(asked["kind"].to_pylist()) == {"resize"}
        done = asked["status"].to_pylist().count("ok")
        assert run.metrics["throughput_rps"] == pytest.approx(done / 10.0)
        assert run.metrics["latency_mean_s"] >= 0.2
        assert 1 <= run.metrics["cold_starts"] <= 3
        assert np.isnan(run.metrics["makespan_s"])


def test_static_pods_reserve_what_they_ask_for_while_they_are_there(runs):
    static = runs[0]
    pods = static.frame("periods").groupby("period")["up"].sum()
    assert static.metrics["mean_reserved_cores"] == pytest.approx(pods.mean(), rel=1e-6)
    assert static.metrics["mean_reserved_mib"] == pytest.approx(256 * pods.mean(), rel=1e-6)


def test_what_the_pods_may_use_never_exceeds_what_the_application_may(runs, jobs):
    for run in (*runs, *jobs):
        application = run.manifest["workload"]["applications"][0]
        assert run.metrics["mean_reserved_cores"] <= application["cpu_limit_cores"]
        assert run.metrics["mean_reserved_mib"] * MIB <= application["memory_limit_bytes"]


def test_a_batch_has_a_job_time_and_is_recorded_until_then(jobs):
    for run in jobs:
        tasks = run.table("requests")
        assert tasks["status"].to_pylist() == ["ok"] * 12
        job_s = run.metrics["makespan_s"]
        assert job_s == pytest.approx(max(tasks["latency_s"].to_pylist()))
        assert run.manifest["workload"]["periods"] == int(np.ceil(job_s / 0.1))


def test_every_run_says_what_it_assumes(runs):
    assert any("A test's." in note for note in runs[0].manifest["notes"])
    assert any("1 core and 256 MiB" in note for note in runs[0].manifest["notes"])
    assert set(runs[0].metrics) == {metric.key for metric in METRICS}


def test_runs_of_pods_stand_beside_each_other(runs, jobs):
    for compared, asked in ((runs, "20 to resize, arrivals every 0.5 s"), (jobs, "one batch for 3 workers")):
        assert asked in str(facts(compared)["requests"])
        shown = table(as_result(compared), 200)
        assert "Latency mean" in shown
        assert "Mean reserved memory" in shown
        assert ("Job time" in shown) == (compared is jobs)


def test_the_same_seed_makes_the_same_run(runs, tmp_path):
    again = run_scenario(serverless(), RunStore(tmp_path), jobs=1)
    assert [run.id for run in again] == [run.id for run in runs]
    assert [run.manifest["tables"] for run in again] == [run.manifest["tables"] for run in runs]


def test_the_shipped_scenario_s_pods_are_of_the_source_s_size():
    for _, scenario in variants(load("scenarios/E5.yaml")):
        workload = prepared(scenario)
        assert (workload.pod.cores, workload.pod.memory_bytes) == (1.0, 256 * MIB)


@pytest.mark.slow
def test_escra_serves_image_process_on_less_than_its_pods_ask_for(tmp_path):
    asked = "serverless={function: image_process, interval_s: 0.8, max_pods: 48}"
    given = [asked, "budget_factor=1.0", "seeds=[0]", "policies=['static:factor=1', 'escra:upsilon=35']"]
    scenario = with_overrides(load("scenarios/E5.yaml"), given)
    static, escra = run_scenario(scenario, RunStore(tmp_path), jobs=1)
    assert escra.metrics["mean_reserved_cores"] < static.metrics["mean_reserved_cores"]
    assert escra.metrics["mean_reserved_mib"] < static.metrics["mean_reserved_mib"]
    assert escra.metrics["latency_mean_s"] == pytest.approx(static.metrics["latency_mean_s"], rel=0.2)
    assert escra.metrics["oom_kills"] == 0
