import json
import math
import os

import numpy as np
import pytest

from control.services import RequestStatus as Status
from lab.ask.scenario import build, expand
from lab.containers.input.replay import Replay
from lab.containers.input.sections import Price, machine_of
from lab.containers.input.services.prepare import load_source
from lab.containers.real import backend
from lab.containers.real.outcome import outcome, request_log
from lab.containers.run.figures import figures
from lab.runs.store import RunStore
from testbed.containers.host import loop
from testbed.containers.load.plan import LoadResult
from tests.lab.sample_cells import fitting
from tests.lab.sample_observed import observed
from tests.lab.sample_services import question, write_app
from twinbed import BackendError

MIB = 1 << 20
CORES = float(os.cpu_count() or 1)


SMALL = {"containers": [{"name": "a", "steps": [{"duration_s": 1, "cpu_cores": 0.1}]}]}


def _load(**changes):
    steps = [{"duration_s": 1, "cpu_cores": 0.2}]
    containers = [{"name": name, "threads": 1, "memory_bytes": 48 * MIB, "steps": steps} for name in "ab"]
    raw = {"name": "load", "workload": {"containers": containers}, "policies": ["static:factor=1.5"]}
    return build(raw | changes)


@pytest.fixture
def imitated(monkeypatch):
    """A control loop that runs nothing; the calls that it got."""
    calls = []

    def control(containers, applications, allocator, settings, *, client=None, on_tick=None, **_more):
        calls.append((containers, applications, allocator, settings, client))
        if on_tick is not None:
            for elapsed_s in (0.5, 1.0):
                on_tick(loop.Progress(elapsed_s, 1, 0, 1))
        names = tuple(each.spec.name for each in containers)
        return observed(names, round(settings.duration_s / settings.period_s))

    monkeypatch.setattr(loop, "control", control)
    monkeypatch.setattr(backend, "check", lambda: None)
    monkeypatch.setattr(backend, "probe", fitting)
    return calls


def test_a_run_is_stored_with_the_twins_tables_and_says_who_made_it(tmp_path, imitated):
    run = backend.run(expand(_load())[0], RunStore(tmp_path))
    assert run.manifest["backend"] == "testbed"
    assert run.manifest["repeat"] == 0
    assert run.manifest["testbed"]["machine"]["cgroup_version"] == "1"
    assert run.manifest["testbed"]["machine"]["kernel"].startswith("Linux")
    assert run.manifest["testbed"]["probe"]["fits"]
    loop_times = run.manifest["testbed"]["loop"]
    assert loop_times["on_time_share"] == 0.5
    assert loop_times["grant_p99_s"] is None
    assert run.metrics["cpu_slack_p50_cores"] == pytest.approx(0.2)
    assert run.table("periods").num_rows == 20
    json.dumps(run.manifest, allow_nan=False)


def test_repeats_and_backends_have_ids_of_their_own(tmp_path, imitated):
    from lab.runs.runner import run_scenario

    store = RunStore(tmp_path)
    question = backend.on_this_machine(_load())
    runs = [run for repeat in (0, 1) for run in backend.run_scenario(question, store, repeat)]
    runs += run_scenario(question, store, jobs=1)
    assert len({run.id for run in runs}) == 3
    assert sorted(store.ids()) == sorted(run.id for run in runs)


def test_the_containers_get_the_workloads_demand_peaks_and_limits(tmp_path, imitated):
    backend.run(expand(_load())[0], RunStore(tmp_path))
    ((containers, applications, allocator, settings, client),) = imitated
    assert [each.spec.name for each in containers] == ["a", "b"]
    assert [each.peak_cores for each in containers] == pytest.approx([0.2, 0.2])
    assert [each.peak_bytes for each in containers] == [48 * MIB] * 2
    assert applications[0].cpu_limit_cores == pytest.approx(0.6)
    assert allocator.name == "static"
    assert settings.duration_s == pytest.approx(1.0)
    assert client is not None


def test_a_stored_run_is_opened_and_not_made_again(tmp_path, imitated):
    store, spec = RunStore(tmp_path), expand(_load())[0]
    made = backend.run(spec, store)
    assert backend.run(spec, store, fresh=False).id == made.id
    assert len(imitated) == 1


def test_progress_is_told_as_the_time_line_goes_by(tmp_path, imitated):
    seen = []
    backend.run(expand(_load())[0], RunStore(tmp_path), progress=lambda label, f: seen.append((label, f)))
    assert seen == [("static:factor=1.5", 0.5), ("static:factor=1.5", 1.0)]


def test_a_run_that_is_interrupted_leaves_nothing(tmp_path, imitated):
    def interrupt(label, fraction):
        raise KeyboardInterrupt

    store = RunStore(tmp_path / "runs")
    with pytest.raises(KeyboardInterrupt):
        backend.run(expand(_load())[0], store, progress=interrupt)
    assert store.ids() == []


def test_without_cgroups_nothing_is_begun_and_the_cure_is_named(tmp_path, monkeypatch, imitated):
    def refuse():
        raise BackendError("/sys/fs/cgroup/cpu: no permission to make groups; run as root")

    monkeypatch.setattr(backend, "check", refuse)
    with pytest.raises(BackendError, match="run as root"):
        backend.run(expand(_load())[0], RunStore(tmp_path))
    assert not imitated


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"host_cores": CORES + 1}, "--set host_cores="),
        (
            {"period_s": 0.07},
            "period_s: 0.07, and containers here have CFS periods of 0.1; --set period_s=0.1",
        ),
        ({"draw": 2}, "draw: 2, and nobody chooses it here"),
        ({"machine": {"network_delay_s": 0.2}}, "machine.network_delay_s: 0.2, and this machine has none"),
        ({"machine": {"restart_s": 0.0}}, "machine.restart_s: 0, and this machine takes its own time; leave"),
        ({"machine": {"restart_cpu_s": 2.0}}, "machine.restart_cpu_s: 2, and this machine takes"),
        (
            {"workload": {"containers": [{"name": "a", "steps": [{"duration_s": 1, "cpu_cores": 0.1}]}]}},
            "MiB",
        ),
    ],
)
def test_what_this_machine_cannot_be_is_refused_in_one_line(tmp_path, imitated, changes, said):
    with pytest.raises(BackendError) as caught:
        backend.run(expand(_load(**changes))[0], RunStore(tmp_path))
    assert said in str(caught.value)
    assert str(caught.value).startswith("load: ")
    assert not imitated


def test_several_hosts_and_pods_are_the_twins(tmp_path, imitated):
    services = question(write_app(tmp_path), within={"hosts": 3})
    function = {"function": "image_process", "arrivals": "fixed", "max_pods": 3}
    pods = build({"name": "pods", "serverless": function})
    for scenario, said in ((services, "services.hosts=1"), (pods, "--backend twin")):
        with pytest.raises(BackendError, match=said):
            backend.run(expand(scenario)[0], RunStore(tmp_path / "runs"))


@pytest.mark.slow
@pytest.mark.root
def test_a_load_is_carried_out_by_real_containers(tmp_path, cgroups):
    run = backend.run(expand(_load(policies=["escra"]))[0], RunStore(tmp_path))
    periods = run.frame("periods")
    assert periods["usage_cores"].sum() > 0
    assert np.isfinite(periods["quota_cores"]).all()
    assert (periods["memory_bytes"] > MIB).any()
    assert set(run.frame("events")["kind"]) >= {"join"}


def _replay(periods: int) -> Replay:
    services = {"app": "teastore", "arrivals": {"kind": "fixed", "rate_rps": 20}, "duration_s": periods / 10}
    scenario = build({"name": "tea", "services": services | {"hosts": 1}})
    spec = expand(scenario)[0]
    return load_source(scenario).prepare(scenario, machine_of(spec), np.random.SeedSequence(0))


def test_what_a_kernel_does_not_tell_has_no_figure():
    replay = _replay(20)
    names = replay.workload.names
    load = LoadResult(
        at_s=np.array([0.1, 0.2, 0.3]),
        kind=np.zeros(3, np.int64),
        end_s=np.array([0.15, 0.3, math.nan]),
        status=np.array([Status.OK, Status.OK, Status.PENDING], np.uint8),
        late_s=np.zeros(3),
        cpu_s=0.01,
        complete=True,
    )
    log = request_log(load, len(names))
    found = figures(replay, outcome(observed(names, 20), 20, log), Price()).summary
    for key in ("lateness_p50_s", "undone_core_s", "turned_away", "makespan_s", "cold_starts"):
        assert math.isnan(found[key])
    assert found["throughput_rps"] == pytest.approx(1.0)
    # The request without an answer is later than both answers: 0.05 and 0.1 s.
    assert found["latency_p50_s"] == pytest.approx(0.1)
    assert found["cpu_slack_p50_cores"] == pytest.approx(0.2)
    assert found["memory_slack_p50_mib"] == pytest.approx(24.0)
    assert found["throttled_share"] == pytest.approx(0.25)
    assert found["oom_events"] == 1


def test_a_run_that_ended_early_is_filled_up_and_a_longer_one_is_cut():
    short, long = (outcome(observed(("a", "b"), length), 20) for length in (15, 30))
    assert short.series.up.shape == long.series.up.shape == (20, 2)
    assert short.series.up[:15].all()
    assert not short.series.up[15:].any()
    assert np.isnan(short.series.demand_cores).all()


def test_events_after_the_end_of_the_time_line_are_left_out():
    assert outcome(observed(("a",), 20), 20).events.kind == ["join", "oom"]
