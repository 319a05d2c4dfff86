from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from lab.cluster.input import ClusterInput, FaultsInput
from lab.cluster.run.figures import grew, nearest_rank
from lab.cluster.run.jobs import build
from lab.cluster.run.runner import DAY_S, Drawn, traced_downtime
from twinbed import ScenarioError, TwinbedError

HEADER = "gpu,placement,model,batch_size,num_gpus,throughput_steps_per_s\n"


@pytest.fixture
def speeds(tmp_path):
    path = tmp_path / "speeds.csv"
    rows = [
        f"{kind},{place},net,{batch},1,{speed * factor}\n"
        for kind, speed in (("v100", 10.0), ("k80", 2.0))
        for place, factor in (("consolidated", 1.0), ("unconsolidated", 0.5))
        for batch in (16, 32)
    ]
    path.write_text(HEADER + "".join(rows))
    return path


def asked(path: Path, **more: object) -> ClusterInput:
    servers = {"v100": {"count": 4, "gpus": 1}, "k80": {"count": 4, "gpus": 1}}
    measured = {"path": str(path), "count": 4000, "per_hour": 4.0, **more}
    return ClusterInput.model_validate({"servers": servers, "measured": measured})


def test_jobs_from_measured_speeds_have_the_generators_distribution(speeds):
    jobs = build(asked(speeds), np.random.SeedSequence(0)).workload
    hours = jobs.steps / jobs.throughput[:, 0, 0] / 3600
    # 80 % of 60·10^U(1.5, 3) s and 20 % of 60·10^U(3, 4) s: mean 60,362 s, which is 16.8 h.
    assert hours.mean() == pytest.approx(60_362 / 3600, rel=0.05)
    assert hours.min() >= 60 * 10**1.5 / 3600
    assert hours.max() <= 60 * 10**4 / 3600
    assert np.diff(jobs.submit_s).mean() == pytest.approx(900, rel=0.05)
    assert np.allclose(jobs.throughput[:, 0, 0] / jobs.throughput[:, 1, 0], 5)
    assert np.allclose(jobs.throughput[:, 0, 1] / jobs.throughput[:, 0, 0], 0.5)


def test_measured_pairs_say_what_each_job_keeps_of_its_speed(speeds, tmp_path):
    pairs = tmp_path / "pairs.csv"
    job = "model_{0},batch_{0},num_gpus_{0}"
    head = f"gpu,placement,{job.format('a')},{job.format('b')},thr_a_steps_per_s,thr_b_steps_per_s"
    pairs.write_text(f"{head}\nv100,consolidated,net,16,1,net,32,1,8.0,6.0\n")
    built = build(asked(speeds, pairs=str(pairs)), np.random.SeedSequence(0))
    small, large = (built.models.index(f"net batch {size}") for size in (16, 32))
    sharing = built.workload.sharing
    assert sharing.of(np.array([small, large]), np.array([large, small])).tolist() == [[0.8, 0.0], [0.6, 0.0]]
    assert not sharing.of(np.array([small]), np.array([small])).any()
    assert [row["role"] for row in built.inputs] == ["jobs", "pairs"]
    pairs.write_text(f"{head}\nv100,consolidated,other,16,1,net,32,1,8.0,6.0\n")
    with pytest.raises(TwinbedError, match="no pair of models that are in the table"):
        build(asked(speeds, pairs=str(pairs)), np.random.SeedSequence(0))


def test_the_same_seed_draws_the_same_jobs(speeds):
    one, two, other = (build(asked(speeds), np.random.SeedSequence(seed)).workload for seed in (1, 1, 2))
    assert np.array_equal(one.steps, two.steps)
    assert not np.array_equal(one.steps, other.steps)


def test_a_type_that_was_not_measured_is_refused(speeds):
    with pytest.raises(TwinbedError, match="has no type 'a100'"):
        build(asked(speeds, reference="a100"), np.random.SeedSequence(0))


def test_nearest_rank():
    values = np.arange(1.0, 101.0)
    assert [nearest_rank(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert np.isnan(nearest_rank(values[:0], 0.5))


TRACE = (
    "node,event_time_days,event,level,fault_class,desc\n"
    "n1,1.0,fault_start,Hardware Failure,GPU,Lost\n"
    "n2,2.0,fault_start,Hardware Failure,NIC,Error\n"
    "n3,2.5,fault_start,Other Failure,Stress Test Failure,Unknown\n"
    "n1,3.0,fault_end,Hardware Failure,GPU,Lost\n"
    "n3,3.5,fault_end,Other Failure,Stress Test Failure,Unknown\n"
    "n2,4.0,fault_end,Hardware Failure,NIC,Error\n"
    "n1,6.0,fault_start,Hardware Failure,GPU,Lost\n"
)


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "fault_events.csv"
    path.write_text(TRACE)
    return str(path)


def test_a_stretch_of_the_trace_becomes_times_in_which_servers_are_down(trace):
    given = FaultsInput(trace=trace, from_day=1.5, begin_s=100.0, end_s=100.0 + 3 * DAY_S)
    down = traced_downtime(given, 400, 0)
    # The days are 1.5 to 4.5. One server is out of order from the begin to day 3, the other from 2 to 4.
    # People's stress test does not count, and the fault of day 6 comes later.
    begins = [(at - 100) / DAY_S for at in down.begin_s]
    assert begins == pytest.approx([0.0, 0.5])
    assert [(at - 100) / DAY_S for at in down.end_s] == pytest.approx([1.5, 2.5])
    assert len(set(down.server.tolist())) == 2


def test_a_fault_without_an_end_lasts_to_the_end_of_the_trace(trace):
    down = traced_downtime(FaultsInput(trace=trace, from_day=5.0), 400, 0)
    assert down.end_s.tolist() == pytest.approx([(348 - 5) * DAY_S])


def test_what_the_trace_cannot_tell_is_refused(trace):
    with pytest.raises(ScenarioError, match="the trace has 400 servers and the cluster has 401"):
        traced_downtime(FaultsInput(trace=trace), 401, 0)
    with pytest.raises(ScenarioError, match="the trace ends on day 348"):
        traced_downtime(FaultsInput(trace=trace, from_day=348.0), 1, 0)
    with pytest.raises(ScenarioError, match=r"ends on day 348, and end_s is its day 348\.5"):
        traced_downtime(FaultsInput(trace=trace, from_day=341.5), 1, 0)
    with pytest.raises(ValidationError, match="give one of per_server_day and trace"):
        FaultsInput(trace=trace, per_server_day=1.0)
    with pytest.raises(ValidationError, match="repair_s: has no effect with a trace; leave it out"):
        FaultsInput(trace=trace, repair_s=60.0)
    with pytest.raises(ValidationError, match="from_day: has no effect without a trace; leave it out"):
        FaultsInput(per_server_day=1.0, from_day=2.0)


def test_a_type_that_slurm_names_restricts_the_job_unless_any_type_is_asked_for(tmp_path):
    path = tmp_path / "jobs.txt"
    start = "2026-01-01T00:00:00|2026-01-01T00:00:00|60|main"
    path.write_text(
        f"Submit|Start|ElapsedRaw|Partition|ReqTRES\n{start}|gres/gpu:a100=2\n{start}|gres/gpu=2\n"
    )

    def speeds(*types: str, **more: object) -> list[list[float]]:
        log = {"path": str(path), "format": "sacct", **more}
        servers = {name: {"count": 1, "gpus": 4} for name in types}
        given = ClusterInput.model_validate({"servers": servers, "log": log})
        return build(given, np.random.SeedSequence(0)).workload.throughput[:, :, 0].tolist()

    assert speeds("v100", "a100") == [[0, 1], [1, 1]]
    assert speeds("v100", any_type=True) == [[1], [1]]
    with pytest.raises(ScenarioError, match=r"job 0 of the log .* may only have type a100; add"):
        speeds("v100")
    with path.open("a") as file:
        file.write(f"{start}|gres/gpu:a100=2\n")
    with pytest.raises(ScenarioError, match="job 2 of the log"):
        speeds("v100", skip=2)


def test_sizes_and_types_that_no_model_was_measured_on_are_refused(speeds):
    with pytest.raises(ScenarioError, match=r"has no model that was measured on 2 GPUs of v100, k80"):
        build(asked(speeds, several_gpus=True), np.random.SeedSequence(0))
    with speeds.open("a") as file:
        file.write("t4,consolidated,other,16,1,5\n")
    # A type that the cluster does not have may lack models.
    assert set(build(asked(speeds), np.random.SeedSequence(0)).models) == {"net batch 16", "net batch 32"}


def drawn(**more: object) -> ClusterInput:
    servers = {
        name: {"count": 1, "gpus": 4, "speed": speed} for name, speed in (("a100", 2.0), ("v100", 1.0))
    }
    models = {"big": {"v100": 1.0}, "small": {"v100": 1.0, "a100": 0.0}}
    synthetic = {"count": 40, "per_hour": 4.0}
    return ClusterInput.model_validate({"servers": servers, "models": models, "synthetic": synthetic, **more})


def test_a_type_that_a_model_leaves_out_has_its_own_speed():
    jobs = build(drawn(), np.random.SeedSequence(0))
    speeds = {
        (model, *row)
        for model, row in zip(jobs.models, jobs.workload.throughput[:, :, 0].tolist(), strict=True)
    }
    assert speeds == {("big", 2.0, 1.0), ("small", 0.0, 1.0)}
    assert not jobs.notes


def test_servers_that_no_job_can_use_are_named():
    jobs = build(drawn(models={"small": {"v100": 1.0, "a100": 0.0}}), np.random.SeedSequence(0))
    assert jobs.notes == ("No job can run on a100",)


def test_a_goodput_of_which_no_job_is_has_a_note_and_huge_gangs_have_none():
    model = {"alpha_c": 0.1, "beta_c": 0.1, "alpha_n": 0.1, "alpha_r": 0.1, "noise": 9.0}
    model |= {"batch": 512, "most_batch": 1024, "most_local": 512}
    given = {"goodput": {"big": model, "bigg": model}}
    jobs = build(drawn(**given), np.random.SeedSequence(0))
    assert jobs.notes == ("No job has the goodput of bigg",)
    assert (jobs.workload.elastic.kind >= 0).tolist() == [name == "big" for name in jobs.models]
    given |= {"servers": {"v100": {"count": 64, "gpus": 8}}, "models": {"big": {}}}
    huge = {"count": 4, "per_hour": 1.0, "gpus": [300]}
    jobs = build(drawn(**given, synthetic=huge), np.random.SeedSequence(0))
    assert jobs.workload.elastic.kind.tolist() == [-1] * 4


def test_jobs_of_some_models_stay_together():
    jobs = build(drawn(together=["big"]), np.random.SeedSequence(0))
    assert jobs.workload.together.tolist() == [model == "big" for model in jobs.models]
    assert 0 < jobs.workload.together.sum() < 40
    with pytest.raises(ScenarioError, match=r"cluster.together: no job has model 'huge'"):
        build(drawn(together=["huge"]), np.random.SeedSequence(0))


def test_only_servers_of_the_types_named_fail():
    servers = {name: {"count": count, "gpus": 4} for name, count in (("own", 3), ("spot", 5))}
    faults = {"per_server_day": 2.0, "types": ["spot"]}
    down = Drawn(drawn(servers=servers, models={}, faults=faults), 0).downtime
    assert set(down.server.tolist()) == {3, 4, 5, 6, 7}
    with pytest.raises(ValidationError, match=r"faults\.types: there are no servers of type tpu"):
        drawn(faults={**faults, "types": ["tpu"]})


def test_a_queue_grows_by_its_mean_over_time():
    # 100 jobs arrive until 1000 s. From 500 s on 8 jobs wait, and no decision falls into 600 to 800 s.
    jobs = SimpleNamespace(workload=SimpleNamespace(submit_s=np.linspace(0, 1000, 100)))
    counts = np.ones(100, np.bool_)

    def grows(*waiting: int) -> bool:
        series = SimpleNamespace(at_s=np.array([0.0, 500.0, 900.0]), waiting=np.array(waiting))
        return grew(jobs, SimpleNamespace(series=series), counts)

    assert not grows(0, 8, 8)
    # 3 jobs wait until 900 s, and then 10: 6.5 in the mean of the last 200 s.
    assert grows(0, 3, 10)
    assert not grows(0, 4, 10)


def test_queues_without_a_quota_share_what_is_left(tmp_path):
    rows = "".join(f"0,60,1,{queue}\n" for queue in ("c", "a", "b"))
    (tmp_path / "log.csv").write_text(f"submit_s,duration_s,gpus,queue\n{rows}")
    log = {"path": str(tmp_path / "log.csv"), "format": "csv"}
    quotas = {"b": {"share": 0.4, "most": 0.5}, "typo": {"share": 0.2}}
    jobs = build(drawn(synthetic=None, log=log, queues=quotas), np.random.SeedSequence(0))
    assert jobs.queues == ("b", "typo", "a", "c")
    assert jobs.workload.queue.tolist() == [3, 2, 0]
    assert jobs.cluster.queue_share == pytest.approx([0.4, 0.2, 0.2, 0.2])
    assert jobs.cluster.queue_most.tolist() == [0.5, 1.0, 1.0, 1.0]
    assert "No job is in queue typo" in jobs.notes
    free = build(drawn(synthetic=None, log=log), np.random.SeedSequence(0))
    assert free.cluster.queue_share == pytest.approx([1 / 3] * 3)


def test_jobs_of_a_log_that_are_too_large_are_left_out_and_named(tmp_path):
    log = tmp_path / "jobs.csv"
    log.write_text("submit_s,duration_s,gpus,queue\n0,9,1,a\n5,9,64,a\n6,9,5,b\n7,9,8,a\n8,9,4,b\n")
    given = {
        "servers": {"gpu": {"count": 2, "gpus": 4}},
        "queues": {"b": {"share": 0.5, "most": 0.5}},
        "log": {"path": str(log), "format": "csv"},
    }
    made = build(ClusterInput.model_validate(given), np.random.SeedSequence(0))
    assert made.workload.gpus.tolist() == [1, 8, 4]
    assert made.workload.submit_s.tolist() == [0, 7, 8]
    assert (len(made.models), made.waited_s.size) == (3, 3)
    assert [note for note in made.notes if "left out" in note] == [
        "Jobs of the log left out because they ask for more GPUs than they can ever have: 2; they are "
        "job 1 (64, can have 8), job 2 (5, can have 4), from 0 in the order of submission"
    ]
    given |= {"log": {**given["log"], "skip": 1}, "deadlines": [2.0]}
    later = build(ClusterInput.model_validate(given), np.random.SeedSequence(0)).workload
    assert later.submit_s.tolist() == [0, 1]
    assert later.deadline_s.tolist() == [18, 19]
    given["log"] |= {"count": 1}
    with pytest.raises(ScenarioError, match=r"too small for every job of the log.* job 1 \(64, can have 8\)"):
        build(ClusterInput.model_validate(given), np.random.SeedSequence(0))
