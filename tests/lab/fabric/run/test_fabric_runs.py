"""Runs of fabrics: stored, the same again to the bit, compared, and kept apart from runs of containers."""

import math

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from lab.ask.scenario import build, with_overrides
from lab.cli.main import app
from lab.fabric import nccl
from lab.fabric.run.training import accuracy_curve
from lab.fabric.timeline import tracks
from lab.runs.compare import as_result
from lab.runs.report import document
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from tests.lab.explorer.test_pages import html
from tests.lab.fabric.sample_fabric import SENDS
from tests.patience import PATIENCE_S
from twinbed import ScenarioError, StoreError


def of(runs, policy, kind):
    asked = policy, kind
    return [run for run in runs if (run.policy, run.manifest["spec"]["fabric"]["faults"]["kind"]) == asked]


@pytest.mark.slow
def test_a_fault_in_the_middle_delays_one_message_and_breaks_who_has_no_other_path(sends):
    _, runs = sends
    assert len(runs) == 8
    for run in of(runs, "thorn", "single"):
        assert run.metrics["failed"] == 0
        assert run.metrics["late_messages"] == 1
        assert run.metrics["latency_max_s"] > 0.1 > run.metrics["latency_p50_s"]
        assert len(run.frame("series")) == 40
        assert run.frame("outages")["end_s"].max() < 1
        assert not run.censored
    for run in of(runs, "none", "single"):
        assert run.metrics["failed"] == 1
        unfinished = 40 - len(run.frame("series"))
        assert run.metrics["late_messages"] == unfinished > 0
        assert "latency_max_s" in run.censored
        assert run.metrics["latency_max_s"] > 0.1
    for run in of(runs, "none", "none"):
        assert run.metrics["failed"] == run.metrics["outages"] == 0
        assert math.isnan(run.metrics["gap_p50_s"])


@pytest.mark.slow
def test_the_overlay_costs_its_header_alone(sends):
    _, runs = sends
    ours, plain = (of(runs, policy, "none")[0].metrics["latency_p50_s"] for policy in ("thorn", "none"))
    assert 1 < ours / plain < 1 + 60 / 4096


@pytest.mark.slow
def test_the_same_question_gives_the_same_bytes_and_is_not_asked_twice(sends, tmp_path):
    store, runs = sends
    again = run_scenario(build(SENDS), RunStore(tmp_path), jobs=1)
    assert [run.id for run in again] == [run.id for run in runs]
    assert [run.manifest["tables"] for run in again] == [run.manifest["tables"] for run in runs]
    opened = run_scenario(build(SENDS), store, jobs=1, fresh=False)
    assert [run.manifest["created_at"] for run in opened] == [run.manifest["created_at"] for run in runs]


@pytest.mark.slow
def test_runs_are_compared_over_their_seeds(sends):
    _, runs = sends
    result = as_result(runs)
    labels = ["thorn kind=none", "none kind=none", "thorn kind=single", "none kind=single"]
    assert [row["label"] for row in result.rows] == labels
    assert result.rows[2]["late_messages"] == 1
    assert "one silent fault of a port" in result.facts["fabric"]


@pytest.mark.slow
def test_runs_of_containers_are_not_compared_with_them(sends, stored):
    with pytest.raises(StoreError, match="is of containers"):
        as_result([sends[1][0], stored[1][0]])


@pytest.mark.slow
def test_the_store_lists_shows_and_queries_them(sends):
    store, runs = sends
    assert set(store.ids()) == {run.id for run in runs}
    assert runs[0].verify() == []
    counted = store.query("SELECT count(*) AS n FROM outages").frame
    assert counted["n"][0] == sum(len(run.frame("outages")) for run in runs)
    shown = CliRunner().invoke(app, ["runs", "show", runs[0].id, "--store", str(store.root)])
    assert shown.exit_code == 0, shown.output
    assert "latency_p999_s" in shown.output


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("fabric.topology.tors=1", "one uplink, but scheme thorn needs two: give each rack"),
        ("fabric.values.bfd.interval_s=0.0", "interval_s"),
        ("fabric.topology={tors: 4, racks: 2}", "add spines"),
        ("fabric.values.queue_pair.timeout=40.0", "is not one of 0 … 31"),
    ],
)
def test_what_the_twin_refuses_is_said_in_a_line(tmp_path, change, said):
    scenario = with_overrides(build({**SENDS, "policies": ["thorn"]}), [change])
    with pytest.raises(ScenarioError, match=said):
        run_scenario(scenario, RunStore(tmp_path), jobs=1)


def test_a_fault_of_a_host_that_does_not_exist_names_its_key(tmp_path):
    fabric = {**SENDS["fabric"], "faults": {"kind": "single", "host": 9}}
    scenario = build({**SENDS, "fabric": fabric, "vary": {}, "policies": ["thorn"]})
    with pytest.raises(ScenarioError, match=r"^fabric\.faults\.host: 9 does not exist: give 0 to 1"):
        run_scenario(scenario, RunStore(tmp_path), jobs=1)


@pytest.mark.slow
def test_a_collective_loses_bandwidth_to_faults_and_only_where_they_are(tmp_path):
    collective = {"operation": "all_reduce", "message_bytes": 500_000_000, "repeats": 700}
    raw = {
        "name": "ring",
        # Its queue pairs give up before a port is back after 20 s.
        "fabric": {"topology": {"hosts": 3}, "nccl": {"version": "2.18.1"}, "collective": collective},
        "vary": {"fabric.faults.kind": ["none", "round_robin"]},
        "policies": ["thorn", "none"],
    }
    quiet, plain, faulty, broken = run_scenario(build(raw), RunStore(tmp_path), jobs=1)
    bandwidths = [run.metrics["bus_bandwidth_mean_gbps"] for run in (faulty, quiet, plain)]
    assert bandwidths == sorted(bandwidths)
    assert faulty.metrics["failed"] == 0
    assert broken.metrics["failed"] == 1
    assert faulty.metrics["bus_bandwidth_p80_gbps"] == quiet.metrics["bus_bandwidth_p80_gbps"]


def test_a_ring_follows_the_flows_between_neighbours_alone(tmp_path):
    collective = {"message_bytes": 10**8, "repeats": 100}
    fabric = {"topology": {"hosts": 5}, "collective": collective, "faults": {"kind": "flapping", "up_s": 0.2}}
    (run,) = run_scenario(build({"name": "r", "fabric": fabric, "policies": ["thorn"]}), RunStore(tmp_path))
    outages = run.frame("outages")
    assert set((outages["source"] - outages["destination"]) % 5) == {1, 4}


@pytest.mark.slow
def test_a_job_goes_on_through_faults_or_falls_back_to_its_last_save(tmp_path):
    raw = {
        "name": "job",
        "fabric": {
            "topology": {"hosts": 2},
            "faults": {"kind": "single", "at_s": 95.0},
            "nccl": {"version": "2.18.1"},
            "training": {
                "parameters": 1e6, "micro_batch_s": 1.0, "data": 2, "iterations": 300, "epochs": 30,
                "checkpoint": {"interval_s": 50.0, "save_s": 0.0, "init_s": 7.0},
            },
        },
        "policies": ["thorn", "none"],
    }  # fmt: skip
    through, back = run_scenario(build(raw), RunStore(tmp_path), jobs=1)
    assert through.metrics["kept_share"] == back.metrics["kept_share"] == 1
    assert 300 < through.metrics["job_s"] < 302
    # 45 s since the save are done again, once the port is back after 20 s and the job has started in 7 s.
    assert back.metrics["deaths"] == 1
    assert back.metrics["stuck_s"] == pytest.approx(20 + 7 + 45, abs=0.1)
    assert back.metrics["job_s"] - through.metrics["job_s"] == pytest.approx(72, abs=2)
    # An epoch of 10 s ended 5 s before the fault: nothing new is learnt until the next one is done.
    assert back.metrics["flat_s"] == pytest.approx(72 + 10, abs=0.1)
    assert through.metrics["accuracy"] >= back.metrics["accuracy"] > 0.1
    learnt = [run.frame("accuracy") for run in (through, back)]
    assert [len(frame) for frame in learnt] == [30, 30]
    assert learnt[0]["accuracy"].tolist() == learnt[1]["accuracy"].tolist()
    assert (learnt[0]["at_s"] <= learnt[1]["at_s"] + 0.1).all()


def job(tmp_path, policy, faults, *, nccl=None, **training):
    asked = {"parameters": 1e6, "micro_batch_s": 1.0, "data": 2, "iterations": 100, **training}
    fabric = {"topology": {"hosts": 2}, "faults": faults, "nccl": nccl, "training": asked}
    raw = {"name": "job", "fabric": fabric, "policies": [policy]}
    return run_scenario(build(raw), RunStore(tmp_path), jobs=1)[0]


def test_a_job_meets_a_single_fault_in_its_middle(tmp_path):
    met = job(tmp_path, "none", {"kind": "single"})
    undisturbed_s = job(tmp_path, "none", {"kind": "none"}).metrics["job_s"]
    assert met.frame("outages")["begin_s"].tolist() == pytest.approx([undisturbed_s / 2] * 2)
    assert 49 <= int(met.frame("series")["duration_s"].argmax()) <= 50


@pytest.mark.parametrize("checkpoint", [None, {"interval_s": 10.0, "save_s": 0.0, "init_s": 1.0}])
def test_a_job_does_not_die_of_a_fault_after_its_end(tmp_path, checkpoint):
    faults = {"kind": "single", "at_s": 150.0, "down_s": 1000.0}
    run = job(tmp_path, "none", faults, checkpoint=checkpoint)
    assert (run.metrics["failed"], run.metrics["deaths"], run.metrics["kept_share"]) == (0, 0, 1)
    assert run.metrics["job_s"] == job(tmp_path, "none", {"kind": "none"}).metrics["job_s"]
    assert run.metrics["outages"] == len(run.frame("outages")) == 0


def test_the_end_of_the_watch_is_no_death(tmp_path):
    # Back after 20 s and a start of 100 s, it needs 50 s more, but is watched for 200 s alone.
    saving = {"interval_s": 49.0, "save_s": 0.0, "init_s": 100.0}
    run = job(tmp_path, "none", {"kind": "single"}, nccl={"version": "2.18.1"}, checkpoint=saving)
    assert (run.metrics["failed"], run.metrics["deaths"]) == (1, 1)
    # All that is known of its time is that it was watched for twice what it needs.
    assert run.metrics["job_s"] == pytest.approx(200, rel=0.01)
    assert run.censored == {"job_s"}
    lost = job(tmp_path, "none", {"kind": "single"}, nccl={"version": "2.18.1"})
    assert (lost.metrics["job_s"], lost.censored) == (run.metrics["job_s"], {"job_s"})


def test_saves_delay_what_an_undisturbed_job_learns_too(tmp_path):
    saving = {"interval_s": 10.0, "save_s": 5.0, "init_s": 1.0}
    learnt = job(tmp_path, "none", {"kind": "none"}, epochs=10, checkpoint=saving).metrics
    assert learnt["flat_s"] == pytest.approx(10 + 5, abs=0.1)
    assert learnt["accuracy"] == accuracy_curve()[:11].max()


def test_a_job_that_outlasts_the_faults_that_were_drawn_took_at_least_its_time(tmp_path):
    # Each fault costs the library 40 s, and one comes every 40 s, but only for twice the job's time.
    run = job(tmp_path, "reroute", {"kind": "flapping", "down_s": 35.0, "up_s": 5.0})
    assert run.metrics["job_s"] > 200
    assert run.censored == {"job_s"}


@pytest.mark.parametrize("one_way", ["out", "in"])
def test_a_message_without_its_acknowledgements_stands_still_too(tmp_path, one_way):
    raw = {
        "name": "answers",
        "fabric": {
            "topology": {"hosts": 2},
            "faults": {"kind": "single", "one_way": one_way},
            "collective": {"operation": "broadcast", "message_bytes": 1 << 30, "repeats": 100},
        },
        "policies": ["none"],
    }
    (run,) = run_scenario(build(raw), RunStore(tmp_path), jobs=1)
    assert run.frame("series")["duration_s"].max() > 20


@pytest.mark.parametrize("measure", [
    {"collective": {"message_bytes": 10**8, "repeats": 200}},
    {"training": {"parameters": 1e7, "micro_batch_s": 0.05, "data": 3, "iterations": 40}},
])  # fmt: skip
@pytest.mark.parametrize("host", [0, 2])
def test_a_single_fault_is_on_a_path_that_the_measurement_takes(tmp_path, measure, host):
    fabric = {"topology": {"hosts": 3}, "faults": {"kind": "single", "host": host, "one_way": "out"}}
    raw = {"name": "ring", "fabric": fabric | measure, "policies": ["bond"], "seeds": list(range(8))}
    for run in run_scenario(build(raw), RunStore(tmp_path), jobs=1):
        assert run.frame("series")["duration_s"].max() > 1.5


@pytest.mark.parametrize(
    "measure",
    [
        {"sends": {"messages": 40, "message_bytes": 40_000}, "faults": {"up_s": 1e-4}},
        {"collective": {"message_bytes": 10**8, "repeats": 200}, "faults": {"up_s": 0.5}},
    ],
)
def test_queue_pairs_without_a_timer_stand_still_for_ever_and_have_failed(tmp_path, measure):
    fabric = {"topology": {"hosts": 2}, "nccl": {"variables": {"NCCL_IB_TIMEOUT": 0}}, **measure}
    raw = {"name": "timeless", "fabric": fabric, "policies": ["none"]}
    (run,) = run_scenario(build(raw), RunStore(tmp_path), jobs=1)
    assert run.metrics["failed"] == 1
    assert run.metrics["outages"] > 0


def test_faults_go_on_until_slowed_sends_are_done(tmp_path):
    raw = {
        "name": "slowed",
        "fabric": {
            "topology": {"hosts": 2},
            "retry_profile": "plain",
            "nccl": {"version": "2.13"},
            "faults": {"kind": "flapping", "down_s": 0.06, "up_s": 0.04},
            "sends": {"messages": 5000, "message_bytes": 1 << 20},
        },
        "policies": ["none"],
    }
    (run,) = run_scenario(build(raw), RunStore(tmp_path), jobs=1)
    # A message waits 67 ms for its first retransmission: only 33 ms of each 100 ms are left.
    took_s = 2 * run.metrics["latency_mean_s"] * 5000
    assert took_s > 2.5 * 2 * run.metrics["latency_p50_s"] * 5000
    assert run.metrics["late_messages"] == pytest.approx(took_s / 0.1, abs=1)
    assert run.metrics["outages"] == 2 * run.metrics["late_messages"]


def test_epochs_are_equal_parts_and_were_recorded(tmp_path):
    training = {"parameters": 1e6, "micro_batch_s": 1.0, "data": 2, "iterations": 300, "epochs": 70}
    raw = {"name": "job", "fabric": {"faults": {"kind": "none"}, "training": training}, "policies": ["none"]}
    with pytest.raises(ScenarioError, match="300 iterations are not 70 epochs"):
        build(raw)
    with pytest.raises(ScenarioError, match=r"fabric\.training: pipeline: 3 stages do not share 4 layers"):
        build(raw | {"fabric": {"training": {**training, "epochs": None, "layers": 4, "pipeline": 3}}})
    asked = build(raw | {"fabric": {"training": training | {"epochs": 300}}})
    with pytest.raises(ScenarioError, match="300 is more than the 150 recorded"):
        run_scenario(asked, RunStore(tmp_path), jobs=1)


@pytest.mark.slow
def test_a_fleet_is_shown_with_the_spare_hosts_that_it_pays_for(tmp_path):
    raw = {"name": "small", "fabric": {"fleet": {"gpus": 16, "days": 1.0}}, "policies": ["thorn"]}
    (run,) = run_scenario(build(raw), RunStore(tmp_path), jobs=1)
    about = "16 GPUs and 64 spare hosts of 8 for 1 day, faults as in Llama 3's fleet"
    assert run.manifest["about"] == about
    assert run.metrics["lost_gpu_h"] + run.metrics["productive_gpu_h"] == pytest.approx((16 + 64 * 8) * 24)
    assert run.metrics["idle_spare_gpu_h"] == pytest.approx(64 * 8 * 24)


def test_two_uplinks_spare_a_fleet_the_deaths_by_cables(tmp_path):
    fleet = {"gpus": 1024, "days": 200.0}
    raw = {"name": "fleet", "fabric": {"fleet": fleet}, "policies": ["none", "thorn"]}
    alone, thorn = run_scenario(build(raw), RunStore(tmp_path), jobs=1)
    assert 0 < thorn.metrics["deaths"] < alone.metrics["deaths"]
    assert thorn.metrics["effective_share"] > alone.metrics["effective_share"]
    lost_h = ((1 - thorn.metrics["effective_share"]) * 1024 + 64 * 8) * 200 * 24
    assert thorn.metrics["lost_gpu_h"] == pytest.approx(lost_h)
    assert set(thorn.frame("series")["cause"]) <= {"cable", "adapter", "host"}


@pytest.mark.slow
def test_todays_queue_pairs_outlive_20_s_and_those_of_2022_do_not(tmp_path):
    training = {"parameters": 1e6, "micro_batch_s": 1.0, "data": 2, "iterations": 100}
    fabric = {"topology": {"hosts": 2}, "faults": {"kind": "single", "at_s": 50.0}, "training": training}
    fabric["nccl"] = {"version": "2.14.3"}
    raw = {"name": "job", "fabric": fabric, "policies": ["none"]}
    raw["vary"] = {
        "fabric.nccl.version": ["2.14.3", "2.30.7"],
        "fabric.retry_profile": ["plain", "cx6-20.43"],
    }
    runs = run_scenario(build(raw), RunStore(tmp_path), jobs=1)
    assert [run.metrics["failed"] for run in runs] == [1, 1, 0, 0]
    # The rungs that 20 s meet: the fifth of the plain timer, and the second regular one of the other.
    added_s = [run.metrics["job_s"] - 100.0 for run in runs[2:]]
    assert added_s == pytest.approx([21.475, 25.405], abs=0.1)


@pytest.mark.slow
def test_a_variable_that_changes_nothing_is_told_of(tmp_path):
    changes = [f"fabric.nccl={{variables: {{{nccl.UNUSED}: 7}}}}", "seeds=[0]", "policies=[thorn]"]
    run, *_ = run_scenario(with_overrides(build(SENDS), changes), RunStore(tmp_path), jobs=1)
    assert run.manifest["notes"] == list(nccl.notes({nccl.UNUSED: 7}))


@pytest.mark.slow
def test_a_report_of_a_fabric_has_its_figures_and_no_parameters(sends):
    page = document(sends[1][:2])
    assert "Latency p99.9" in page
    assert "Parameters of the policies" not in page


@pytest.mark.slow
def test_a_report_of_a_fault_draws_its_steps_and_what_it_delays(sends):
    page = document(of(sends[1], "thorn", "single") + of(sends[1], "none", "single"))
    assert "From the first fault to the lost exchange" in page
    assert "Every exchange over time" in page
    assert page.count("svg+xml;base64") == 2


@pytest.mark.slow
def test_exchanges_of_messages_follow_one_another(sends):
    for run in sends[1]:
        series = run.frame("series")
        end_s = (series["at_s"] + series["duration_s"]).to_numpy()
        assert end_s[:-1] == pytest.approx(series["at_s"].to_numpy()[1:])


def test_a_job_that_died_has_its_iterations_until_then(tmp_path):
    run = job(tmp_path, "none", {"kind": "single", "at_s": 30.2}, nccl={"version": "2.18.1"})
    assert run.metrics["deaths"] == 1
    assert len(run.frame("series")) == 30
    assert run.frame("series")["duration_s"].max() < 1.1
    iterations = tracks(run)[0]
    assert iterations.end_s.max() < 30.2
    assert "Every iteration over time" in document([run])


@pytest.mark.slow
def test_the_page_runs_compares_them(sends, monkeypatch):
    store, runs = sends
    monkeypatch.setenv("TWINBED_STORE", str(store.root))

    def page() -> None:
        from lab.explorer import runs_page

        runs_page.page()

    shown = AppTest.from_function(page, default_timeout=PATIENCE_S)
    shown.query_params["runs"] = [runs[0].id, runs[1].id]
    shown.run()
    assert not shown.exception
    assert not shown.error
    assert "Latency p99.9" in html(shown)


@pytest.mark.slow
def test_an_overlay_in_the_hosts_kernel_is_slower_than_one_on_the_adapter(tmp_path):
    changes = ["policies=[thorn, thorn-software]", "seeds=[0]", "fabric.faults.kind=none"]
    asked = with_overrides(build(SENDS), [*changes, "fabric.sends.message_bytes=8388608"])
    offloaded, software = run_scenario(asked, RunStore(tmp_path), jobs=1)
    slower = software.metrics["latency_p50_s"] / offloaded.metrics["latency_p50_s"]
    assert slower == pytest.approx(100 / 13, rel=0.02)


def test_it_has_every_epoch_and_it_learns():
    found = accuracy_curve()
    assert len(found) == 151
    assert abs(found[0] - 1 / 10) < 0.1
    assert found[-10:].mean() > found[0] + 0.4
    assert np.all((found > 0) & (found < 1))
