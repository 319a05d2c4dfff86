from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.ask.scenario import build
from lab.containers.input.ceilings import profile_peaks
from lab.containers.input.workload import content_sha256, input_trace, prepare
from tests.lab.sample_traces import usage_trace
from traces import parquet
from twinbed import ScenarioError, TraceError

SEED = np.random.SeedSequence(3)


def scenario(**keys):
    return build({"name": "w", "trace": {"source": "w.parquet"}} | keys)


def test_a_trace_at_the_period_is_replayed_as_it_is():
    trace = usage_trace()
    replay = prepare(scenario(), trace, SEED)
    workload = replay.workload
    np.testing.assert_array_equal(workload.demand_cores, trace.cpu_cores)
    np.testing.assert_array_equal(workload.memory_bytes, trace.memory_bytes)
    assert workload.memory_bytes.dtype == np.int64
    assert [each.name for each in workload.applications] == ["a", "b"]
    assert workload.app.tolist() == [0, 1, 0]
    assert replay.memory_known.all()


def test_in_a_draw_each_container_s_demand_begins_within_a_period():
    steps = [{"duration_s": 0.5, "cpu_cores": 0.4}, {"duration_s": 0.5, "cpu_cores": 0.1}]
    containers = [{"name": name, "steps": steps} for name in "ab"]
    plain, drawn = (
        prepare(asked, input_trace(asked), SEED).workload
        for asked in (
            build({"name": "w", "workload": {"containers": containers}, "draw": draw}) for draw in (0, 2)
        )
    )
    share = 1 - drawn.demand_cores[0] / 0.4
    assert ((share > 0) & (share < 1)).all()
    assert share[0] != share[1]
    np.testing.assert_allclose(drawn.demand_cores[5], 0.1 + 0.3 * share)
    np.testing.assert_array_equal(plain.demand_cores[:, 0], np.repeat([0.4, 0.1], 5))
    np.testing.assert_array_equal(plain.peak_cores, drawn.peak_cores)


def test_what_has_no_draw_refuses_one():
    with pytest.raises(ScenarioError, match="draw: only for services or a workload"):
        scenario(draw=1)


def test_the_budget_holds_factor_times_every_peak_rounded_up_to_pages():
    workload = prepare(scenario(budget_factor=1.5), usage_trace(count=5), SEED).workload
    for index, application in enumerate(workload.applications):
        of_it = workload.app == index
        assert application.cpu_limit_cores >= 1.5 * workload.peak_cores[of_it].sum()
        assert application.cpu_limit_cores < 1.5 * workload.peak_cores[of_it].sum() * 1.001
        pages = np.ceil(1.5 * workload.peak_bytes[of_it] / 4096) * 4096
        assert pages.sum() <= application.memory_limit_bytes <= pages.sum() + 4096 * of_it.sum()


def test_a_given_budget_is_every_applications_ceiling():
    workload = prepare(scenario(budget={"cpu_cores": 7.0, "memory_bytes": 123}), usage_trace(), SEED).workload
    assert {(a.cpu_limit_cores, a.memory_limit_bytes) for a in workload.applications} == {(7.0, 123)}


def test_peaks_hide_what_is_shorter_than_the_profiling_interval():
    demand = np.zeros((30, 1))
    demand[4] = 2.0
    assert profile_peaks(demand, 0.1, 0.1) == [2.0]
    assert profile_peaks(demand, 0.1, 1.0) == pytest.approx([0.2])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 15), st.integers(0, 5))
def test_a_longer_profile_never_shows_a_higher_peak_than_the_periods_do(periods, width, seed):
    demand = np.random.default_rng(seed).random((periods, 3))
    coarse, fine = profile_peaks(demand, 0.1, width / 10), profile_peaks(demand, 0.1, 0.1)
    assert (coarse <= fine + 1e-12).all()
    assert (coarse >= demand.mean(axis=0) - 1e-12).all() or periods % width


@pytest.mark.parametrize("width", [1, 2, 8, 9, 10, 17, 129, 130])
def test_profiled_peaks_are_numpys_to_the_bit(width) -> None:
    demand = np.random.default_rng(width).lognormal(0.0, 2.0, (301, 3))
    starts = np.arange(0, 301, width)
    means = np.add.reduceat(demand, starts, axis=0) / np.diff(np.append(starts, 301))[:, None]
    assert profile_peaks(demand, 1.0, width).tolist() == means.max(axis=0).tolist()


def test_host_cores_come_from_the_request_then_the_trace_then_an_assumption_that_is_noted():
    trace = usage_trace()
    known = replace(trace, metadata={"cpus": "16"})
    assert prepare(scenario(host_cores=3.0), known, SEED).workload.host_cores.tolist() == [3.0] * 3
    assert prepare(scenario(), known, SEED).workload.host_cores.tolist() == [16.0] * 3
    assumed = prepare(scenario(), trace, SEED)
    assert assumed.workload.host_cores.tolist() == [4.0] * 3
    assert any("4 cores each are assumed" in note for note in assumed.notes)


def test_containers_share_the_hosts_that_are_known_or_given():
    trace = usage_trace()
    alone = prepare(scenario(host_cores=3.0), trace, SEED)
    assert alone.workload.host.tolist() == [0, 1, 2]
    assert any("a host of its own" in note for note in alone.notes)
    recorded = prepare(scenario(), replace(trace, metadata={"cpus": "16"}), SEED)
    assert recorded.workload.host.tolist() == [0, 0, 0]
    assert recorded.about["hosts"] == 1
    assert prepare(scenario(hosts=2), trace, SEED).workload.host.tolist() == [0, 1, 0]


def test_containers_written_down_share_a_host_of_known_size():
    def containers(**keys):
        steps = [{"duration_s": 1, "cpu_cores": 1}]
        written = [{"name": name, "steps": steps} for name in ("a", "b")]
        asked = build({"name": "w", "workload": {"containers": written}} | keys)
        return prepare(asked, input_trace(asked), SEED).workload.host.tolist()

    assert containers(host_cores=2) == [0, 0]
    assert containers() == [0, 1]


def test_weights_are_the_kernel_s_unless_given():
    trace = usage_trace()
    assert prepare(scenario(), trace, SEED).workload.weight.tolist() == [100.0] * 3
    assert prepare(scenario(cpu_weight=7), trace, SEED).workload.weight.tolist() == [7.0] * 3
    assert prepare(scenario(cpu_weight={"c1": 1}), trace, SEED).workload.weight.tolist() == [
        100.0,
        1.0,
        100.0,
    ]
    with pytest.raises(ScenarioError, match=r"cpu_weight\.c9: no such container"):
        prepare(scenario(cpu_weight={"c9": 1}), trace, SEED)


@pytest.mark.parametrize("key", ["hosts", "cpu_weight"])
def test_hosts_and_weights_of_a_replay_are_refused_with_services(key):
    services = {"app": "teastore", "arrivals": "burst"}
    with pytest.raises(ScenarioError, match=f"{key}: only for a trace"):
        build({"name": "w", "services": services, key: 2})


def test_a_policy_that_reads_spans_is_refused_without_requests():
    with pytest.raises(ScenarioError, match="policies: firm decides from the spans of requests, which only"):
        build({"name": "w", "trace": {"source": "bursty_service"}, "policies": ["static", "firm:window_s=1"]})
    services = {"app": "teastore", "arrivals": "burst"}
    assert build({"name": "w", "services": services, "policies": ["firm"]}).policies == ["firm"]


def test_threads_cover_the_peak_unless_given():
    trace = usage_trace()
    trace.cpu_cores[0, 1] = 2.5
    assert prepare(scenario(), trace, SEED).workload.threads.tolist() == [1.0, 3.0, 1.0]
    assert prepare(scenario(threads=2.0), trace, SEED).workload.threads.tolist() == [2.0] * 3
    assert prepare(scenario(threads={"c2": 4.0}), trace, SEED).workload.threads.tolist() == [1.0, 3.0, 4.0]
    with pytest.raises(ScenarioError, match=r"threads\.c22: no such container; did you mean 'c2'"):
        prepare(scenario(threads={"c22": 1.0}), trace, SEED)


def test_a_trace_without_memory_says_so():
    replay = prepare(scenario(), usage_trace(memory=False), SEED)
    assert not replay.memory_known.any()
    assert any("no memory" in note for note in replay.notes)
    assert all(each.memory_limit_bytes > 0 for each in replay.workload.applications)


def test_throttling_in_the_recording_is_noted_as_censored_demand():
    trace = usage_trace()
    throttled = np.zeros(trace.shape)
    throttled[3, 1] = 0.02
    replay = prepare(scenario(), replace(trace, throttled_s=throttled), SEED)
    assert any("1 of 3 containers were throttled" in note for note in replay.notes)


def test_a_coarse_trace_is_refined_by_the_seed_and_keeps_its_means():
    coarse = replace(usage_trace(periods=20), interval_s=10.0)
    one, same = (prepare(scenario(), coarse, np.random.SeedSequence(1)) for _ in range(2))
    other = prepare(scenario(), coarse, np.random.SeedSequence(2))
    np.testing.assert_array_equal(one.workload.demand_cores, same.workload.demand_cores)
    assert (one.workload.demand_cores != other.workload.demand_cores).any()
    means = one.workload.demand_cores.reshape(20, 100, 3).mean(axis=1)
    np.testing.assert_allclose(means, coarse.cpu_cores, rtol=1e-9)
    assert one.notes


@pytest.mark.parametrize(
    ("interval_s", "period_s"), [(0.25, 0.05), (15.04, 0.08), (0.15, 0.05), (0.07, 0.07)]
)
def test_an_interval_that_no_period_divides_names_one_that_does(interval_s, period_s):
    trace = replace(usage_trace(), interval_s=interval_s)
    with pytest.raises(ScenarioError, match=rf"w: an interval of .*; --set period_s={period_s} fits$"):
        prepare(scenario(), trace, SEED)
    prepare(scenario(period_s=period_s), trace, SEED)


def test_synthetic_steps_become_demand_and_shorter_containers_leave():
    steps = [{"duration_s": 1.0, "cpu_cores": 1}, {"duration_s": 0.5, "cpu_cores": 3, "memory_bytes": 10}]
    written = {
        "containers": [
            {"name": "a", "memory_bytes": 5, "steps": steps, "threads": 8},
            {"name": "b", "steps": steps[:1]},
        ]
    }
    asked = build({"name": "w", "workload": written})
    workload = prepare(asked, input_trace(asked), SEED).workload
    assert workload.demand_cores[:, 0].tolist() == [1.0] * 10 + [3.0] * 5
    assert workload.memory_bytes[:, 0].tolist() == [5] * 10 + [10] * 5
    assert workload.present[:, 1].tolist() == [True] * 10 + [False] * 5
    assert workload.threads[0] == 8


@pytest.mark.parametrize(
    ("containers", "said"), [([("a", 1.0), ("a", 1.0)], "'a' appears twice"), ([("a", 1e12)], "is over")]
)
def test_a_synthetic_workload_that_cannot_be_is_refused(containers, said):
    written = [{"name": n, "steps": [{"duration_s": d, "cpu_cores": 1}]} for n, d in containers]
    with pytest.raises(ScenarioError, match=said):
        input_trace(build({"name": "w", "workload": {"containers": written}}))


def test_the_content_hash_follows_what_a_trace_says_and_not_its_file(tmp_path):
    trace = usage_trace()
    for name in ("one", "two"):
        parquet.write(trace, tmp_path / f"{name}.parquet")
    one, two = (
        content_sha256(input_trace(scenario(trace={"source": str(tmp_path / f"{name}.parquet")})))
        for name in ("one", "two")
    )
    assert one == two == content_sha256(trace)
    trace.cpu_cores[5, 1] += 1e-9
    assert content_sha256(trace) != one


def test_a_missing_trace_and_a_missing_container_are_named(trace_path):
    with pytest.raises(TraceError, match="nowhere"):
        input_trace(scenario(trace={"source": "nowhere"}))
    with pytest.raises(TraceError, match="c9"):
        input_trace(scenario(trace={"source": str(trace_path), "containers": ["c9"]}))
    with pytest.raises(ScenarioError, match=r"write it as trace\.start_s"):
        input_trace(scenario(trace={"source": str(trace_path), "options": {"start_s": 1}}))
