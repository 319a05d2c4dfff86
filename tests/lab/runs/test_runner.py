import json
import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from lab.ask.scenario import build, expand, load
from lab.containers.input.whatif import whatif_scenario
from lab.containers.kind import Containers
from lab.runs.runner import files_of, run, run_scenario
from lab.runs.store import RunStore
from tests.lab.cluster.test_cluster_scenario import SMALL
from tests.lab.sample_services import question, write_app
from tests.lab.sample_traces import usage_trace, whatif
from traces import parquet
from twinbed import ScenarioError, TraceError

POLICIES = ["escra", "autopilot:update_interval_s=1", "vpa", "static:factor=1"]


def test_whatif_gives_one_stored_run_per_policy_in_the_order_asked(trace_path, store):
    runs = whatif(trace_path, POLICIES, store=store)
    assert [each.policy for each in runs] == POLICIES
    assert sorted(store.ids()) == sorted(each.id for each in runs)
    for each in runs:
        assert each.id.startswith(f"sample-{each.policy.split(':')[0]}-")
        assert each.table("periods").num_rows == 900
        assert each.table("summary").column("metric").to_pylist() == list(each.metrics)
        assert each.frame("containers")["container"].tolist() == ["c0", "c1", "c2"]


def test_the_same_question_gives_the_same_id_and_the_same_bytes(trace_path, tmp_path):
    one, two = (whatif(trace_path, POLICIES, store=RunStore(tmp_path / name)) for name in ("one", "two"))
    for first, second in zip(one, two, strict=True):
        assert first.id == second.id
        assert first.manifest["tables"] == second.manifest["tables"]
        for name in Containers.tables:
            file = f"{name}.parquet"
            assert (first.path / file).read_bytes() == (second.path / file).read_bytes()


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"overrides": ["machine.restart_s=9"]}, {"containers": ["c0", "c1"]}, {"end_s": 20.0}],
)
def test_another_question_has_another_id(trace_path, store, change):
    plain = whatif(trace_path, ["static"], store=store, name="q")
    assert whatif(trace_path, ["static"], store=store, name="q", **change)[0].id != plain[0].id


def test_moving_the_trace_does_not_change_the_id(trace_path, store, tmp_path):
    moved = tmp_path / "elsewhere.parquet"
    moved.write_bytes(trace_path.read_bytes())
    one, two = (whatif(source, ["static"], store=store, name="q")[0] for source in (trace_path, moved))
    assert one.id == two.id


def test_the_manifest_says_what_went_in(trace_path, store):
    manifest = whatif(trace_path, ["escra:kappa=0.5"], store=store, seed=4)[0].manifest
    assert manifest["spec"]["policy"]["parameters"]["kappa"] == 0.5
    assert len(manifest["spec"]["policy"]["parameters"]) > 2
    assert manifest["seed"] == 4
    assert manifest["inputs"][0]["source"] == str(trace_path)
    assert len(manifest["inputs"][0]["sha256"]) == 64
    assert manifest["calibration"]["values"]["restart_s"]["source"]
    assert set(manifest["versions"]) == {"twinbed", "code_sha256", "python", "numpy", "pyarrow"}
    assert manifest["workload"]["host_cores"] == 4
    assert any("4 cores each are assumed" in note for note in manifest["notes"])
    assert set(manifest["tables"]) == set(Containers.tables)
    json.dumps(manifest, allow_nan=False)


def test_every_period_keeps_to_the_physics(trace_path, store):
    for each in whatif(trace_path, POLICIES, store=store):
        periods = each.frame("periods")
        assert (periods["usage_cores"] >= 0).all()
        assert np.isfinite(periods["backlog_s"]).all()
        first = periods[periods["container"] == "c0"]
        assert first["period"].tolist() == list(range(300))


def test_run_is_one_of_the_scenarios_runs(trace_path, tmp_path, monkeypatch):
    monkeypatch.setattr("lab.runs.runner.cores", lambda: 2)
    workers = []
    scenario = build(
        {"name": "s", "trace": {"source": str(trace_path)}, "policies": ["escra", "static"], "seeds": [1, 2]}
    )
    together = run_scenario(
        scenario,
        RunStore(tmp_path / "all"),
        jobs=1,
        progress=lambda *_: workers.extend(multiprocessing.active_children()),
    )
    assert workers == []
    assert [(each.policy, each.seed) for each in together] == [
        ("escra", 1),
        ("escra", 2),
        ("static", 1),
        ("static", 2),
    ]
    alone = run(expand(scenario)[1], RunStore(tmp_path / "one"))
    assert alone.id == together[1].id
    assert alone.manifest["tables"] == together[1].manifest["tables"]


def test_a_run_of_another_kind_that_is_there_is_opened_unless_a_fresh_one_is_wanted(store):
    scenario, seen = build({**SMALL, "policies": ["fifo"]}), []
    (first,) = run_scenario(scenario, store)
    (found,) = run_scenario(scenario, store, fresh=False, progress=lambda *said: seen.append(said))
    assert (found.manifest, seen) == (first.manifest, [("fifo", 1.0)])
    assert run_scenario(scenario, store)[0].manifest["created_at"] != first.manifest["created_at"]


def test_progress_goes_from_0_to_1_for_every_policy(trace_path, store):
    seen = {}
    whatif(
        trace_path,
        ["escra", "static"],
        store=store,
        progress=lambda label, f: seen.setdefault(label, []).append(f),
    )
    for fractions in seen.values():
        assert fractions == sorted(fractions)
        assert fractions[-1] == 1.0


@pytest.mark.parametrize("reason", [KeyboardInterrupt, RuntimeError])
def test_a_run_that_is_cancelled_leaves_nothing_and_earlier_ones_stay(trace_path, store, reason, monkeypatch):
    # On several cores both policies run at a time, and none is the earlier one.
    monkeypatch.setattr("lab.containers.run.side_by_side.cores", lambda: 1)

    def cancel(label, fraction):
        if label == "static":
            raise reason

    with pytest.raises(reason):
        whatif(trace_path, ["escra", "static"], store=store, progress=cancel)
    assert [store.open(each).policy for each in store.ids()] == ["escra"]
    assert [each.name for each in store.root.iterdir() if each.name.startswith((".new", ".old"))] == []


def test_wrong_questions_are_refused_before_anything_is_written(trace_path, store, tmp_path):
    with pytest.raises(TraceError, match="gone"):
        whatif(tmp_path / "gone.parquet", ["escra"], store=store)
    with pytest.raises(ScenarioError, match=r"policies\.0"):
        whatif(trace_path, ["escrow"], store=store)
    with pytest.raises(ScenarioError, match="at least 1"):
        whatif(trace_path, [], store=store)
    assert not store.root.exists()


def test_a_trace_without_memory_has_no_memory_metrics(tmp_path, store):
    parquet.write(usage_trace(memory=False), tmp_path / "cpu.parquet")
    for each in whatif(tmp_path / "cpu.parquet", POLICIES, store=store):
        assert np.isnan(each.metrics["memory_slack_p50_mib"])
        assert each.metrics["oom_kills"] == 0


def test_the_name_is_made_from_the_source():
    assert whatif_scenario("some dir/my trace!.csv.gz", ["escra"]).name == "my-trace"


@pytest.mark.slow
def test_e1_the_limit_follows_the_use_within_a_few_periods(store):
    scenario = load(Path(__file__).parents[3] / "scenarios" / "E1.yaml")
    periods = run_scenario(scenario, store, jobs=1)[0].frame("periods")
    quota, demand = periods["quota_cores"].to_numpy(), periods["demand_cores"].to_numpy()
    for step in range(5):
        settled = slice(step * 100 + 50, step * 100 + 100)
        assert quota[settled].min() > demand[settled][0] * 0.95
        assert quota[settled].max() < demand[settled][0] + 1.0


class TestServices:
    """Clients and an application instead of a trace."""

    @pytest.fixture
    def app(self, tmp_path):
        return write_app(tmp_path)

    def test_a_run_has_its_requests_and_their_figures(self, app, store):
        run = run_scenario(question(app, policies=["static"]), store)[0]
        requests = run.frame("requests")
        assert list(requests.columns) == ["at_s", "kind", "latency_s", "status"]
        assert set(requests["kind"]) == {"page"}
        answered = requests[requests["status"] == "ok"]
        assert run.metrics["throughput_rps"] == pytest.approx(len(answered) / 2.0)
        assert run.metrics["latency_p50_s"] == pytest.approx(answered["latency_s"].median(), rel=1e-6)
        assert run.manifest["workload"]["requests"] == len(requests)
        assert run.manifest["workload"]["application"] == "tiny"

    def test_the_manifest_names_what_went_in_by_content(self, app, store):
        asked = question(app, policies=["static"])
        manifest = run_scenario(asked, store)[0].manifest
        assert str(app) in files_of(asked)
        assert manifest["censored"] == []
        assert [(each["role"], len(each["sha256"])) for each in manifest["inputs"]] == [
            ("application", 64),
            ("arrivals", 64),
        ]
        assert manifest["spec"]["services"]["app"] == "tiny"
        assert manifest["spec"]["services"]["arrivals"] == "exponential rate_rps=50"
        assert manifest["reports"] > 0
        assert manifest["decide_s"] >= 0

    def test_another_application_of_the_same_name_is_another_run(self, tmp_path, store):
        one = run_scenario(question(write_app(tmp_path), policies=["static"]), store)[0]
        two = run_scenario(question(write_app(tmp_path, network_s=0.001), policies=["static"]), store)[0]
        assert one.id != two.id

    @pytest.mark.slow
    def test_several_processes_make_the_same_runs_as_one_to_the_byte(self, app, tmp_path):
        scenario = question(app, seeds=[0, 1], vary={"services.hosts": [1, 2]})
        alone, together = (
            run_scenario(scenario, RunStore(tmp_path / f"jobs{jobs}"), jobs=jobs) for jobs in (1, 2)
        )
        assert [each.id for each in alone] == [each.id for each in together]
        assert [each.manifest["tables"] for each in alone] == [each.manifest["tables"] for each in together]
        assert len({each.id for each in alone}) == 8
        assert multiprocessing.active_children() == []

    def test_a_run_that_is_there_is_opened_unless_a_fresh_one_is_wanted(self, app, store):
        scenario = question(app, policies=["static"])
        first = run_scenario(scenario, store)[0]
        seen = []
        found = run_scenario(scenario, store, fresh=False, progress=lambda *said: seen.append(said))[0]
        assert found.manifest == first.manifest
        assert seen == [("static", 1.0)]
        assert run_scenario(scenario, store)[0].manifest["created_at"] != first.manifest["created_at"]

    def test_only_what_is_missing_is_made(self, app, store):
        run_scenario(question(app, policies=["static"]), store)
        both = question(app, policies=["static", "escra"])
        seen = []
        run_scenario(both, store, fresh=False, progress=lambda *said: seen.append(said))
        assert seen[0] == ("static", 1.0)
        assert {label for label, _ in seen} == {"static", "escra"}

    def test_limits_hold_for_requests_as_for_traces(self, app, store):
        periods = run_scenario(question(app, policies=["static:factor=1"]), store)[0].frame("periods")
        # A quota written within a period would refill its pool; static limits are written once.
        assert (periods["usage_cores"] <= periods["quota_cores"] * (1 + 1e-6)).all()
        assert (periods["memory_bytes"] <= periods["limit_bytes"]).all()
