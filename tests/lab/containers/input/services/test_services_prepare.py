"""From a section `services` to the twin's requests."""

import numpy as np
import pytest

from lab.ask.scenario import build, expand
from lab.containers.input.ceilings import profile_peaks
from lab.containers.input.sections import machine_of
from lab.containers.input.services.prepare import load_source
from tests.lab.sample_services import question, write_app
from twinbed import ScenarioError


def prepared(scenario, seed=0):
    machine = machine_of(expand(scenario)[0])
    return load_source(scenario).prepare(scenario, machine, np.random.SeedSequence(seed))


@pytest.fixture
def app(tmp_path):
    return write_app(tmp_path)


def test_containers_are_spread_over_the_hosts_in_turn_and_have_their_cores(app):
    workload = prepared(question(app, within={"hosts": 2}, host_cores=6.0)).workload
    assert workload.names == ("web", "db-1", "db-2")
    assert workload.host.tolist() == [0, 1, 0]
    assert workload.cores_of_host.tolist() == [6.0, 6.0]
    assert workload.host_cores.tolist() == [6.0] * 3


def test_hosts_have_twenty_cores_unless_something_else_is_said_and_that_is_noted(app):
    assumed, said = prepared(question(app)), prepared(question(app, host_cores=20.0))
    assert assumed.workload.cores_of_host.tolist() == said.workload.cores_of_host.tolist() == [20.0]
    assert any("20 cores are assumed" in note for note in assumed.notes)
    assert not any("are assumed" in note for note in said.notes)


def test_the_global_limits_are_the_factor_times_the_peaks_of_the_profiling_run(app):
    workload = prepared(question(app, budget_factor=2.0)).workload
    application = workload.applications[0]
    assert application.name == "tiny"
    assert application.cpu_limit_cores == pytest.approx(2 * workload.peak_cores.sum(), rel=1e-6)
    assert application.memory_limit_bytes >= 2 * workload.peak_bytes.sum()


def test_peaks_are_of_the_size_of_the_work_that_arrives(app):
    # 50 requests a second of 4 ms are 0.2 cores on average; the busier of two seconds has somewhat more.
    workload = prepared(question(app)).workload
    assert 0.15 < workload.peak_cores[0] < 0.5
    assert workload.peak_bytes[0] >= 64 << 20


def test_a_longer_profiling_interval_gives_lower_peaks(app):
    fine, coarse = (
        prepared(question(app, profile={"interval_s": interval_s})).workload for interval_s in (0.1, 2.0)
    )
    assert (coarse.peak_cores <= fine.peak_cores + 1e-12).all()
    assert coarse.peak_cores.sum() < fine.peak_cores.sum()
    assert profile_peaks(np.array([[1.0], [3.0]]), 0.1, 0.2).tolist() == [2.0]


def test_the_profiling_run_meets_other_requests_than_the_measured_ones(app):
    scenario = question(app)
    source = load_source(scenario)
    machine = machine_of(expand(scenario)[0])
    one = source.prepare(scenario, machine, np.random.SeedSequence(3)).workload
    load, _, other_load, _ = np.random.SeedSequence(3).spawn(4)
    from lab.containers.input.services.arrivals import generate

    times = [generate(source.asked.arrivals, 2.0, np.ones(1), each).at_s for each in (load, other_load)]
    np.testing.assert_array_equal(one.arrivals.at_s, times[0])
    assert len(times[0]) != len(times[1]) or (times[0] != times[1]).any()


def test_the_same_seed_gives_the_same_workload_and_another_another(app):
    scenario = question(app)
    one, same, other = (prepared(scenario, seed).workload for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.arrivals.at_s, same.arrivals.at_s)
    np.testing.assert_array_equal(one.peak_cores, same.peak_cores)
    assert len(one.arrivals.at_s) != len(other.arrivals.at_s) or (one.peak_cores != other.peak_cores).any()


def test_period_phases_are_drawn_from_that_many_offsets(app):
    drawn = prepared(question(app, within={"phases": 2})).workload.phase_s
    assert set(np.round(drawn, 9)) <= {0.0, 0.05}
    assert prepared(question(app, within={"phases": 1})).workload.phase_s.tolist() == [0.0] * 3


def test_a_draw_changes_the_phases_and_nothing_else(app):
    first, again, other = (prepared(question(app, draw=draw)).workload for draw in (0, 0, 3))
    assert first.phase_s.tolist() == again.phase_s.tolist() != other.phase_s.tolist()
    np.testing.assert_array_equal(first.arrivals.at_s, other.arrivals.at_s)
    np.testing.assert_array_equal(first.peak_cores, other.peak_cores)


def test_clients_are_as_the_scenario_says(app):
    within = {"connections": 7, "client_queue": 3, "client_timeout_s": 1.5}
    client = prepared(question(app, within=within)).workload.client
    assert (client.connections, client.queue, client.timeout_s) == (7, 3, 1.5)
    assert prepared(question(app)).workload.client.timeout_s == float("inf")


def test_threads_may_be_given_by_container_and_a_wrong_name_is_refused(app):
    assert prepared(question(app, threads={"db-1": 2.0})).workload.threads.tolist() == [8.0, 2.0, 8.0]
    with pytest.raises(ScenarioError, match="did you mean 'db-1'"):
        prepared(question(app, threads={"db1": 2.0}))


def test_an_application_counts_by_what_it_does_and_not_by_its_file_or_its_prose(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    one = load_source(question(write_app(tmp_path)))
    moved = load_source(question(write_app(elsewhere, title="The same in other words")))
    changed = load_source(question(write_app(elsewhere, network_s=0.001)))
    assert one.sha256 == moved.sha256 != changed.sha256


def test_arrivals_from_a_file_count_by_its_content(tmp_path, app):
    sums = []
    for name, rate in (("a.csv", 9), ("b.csv", 9), ("c.csv", 8)):
        (tmp_path / name).write_text("t_s,rps\n" + "".join(f"{t},{rate}\n" for t in range(5)))
        arrivals = {"kind": "rates", "file": str(tmp_path / name)}
        sums.append(load_source(question(app, within={"arrivals": arrivals})).sha256)
    assert sums[0] == sums[1] != sums[2]


@pytest.mark.parametrize(
    ("arrivals", "text"),
    [
        ("burst", "burst"),
        ({"kind": "fixed", "rate_rps": 400.0}, "fixed"),
        ({"kind": "fixed", "rate_rps": 40.0, "scale": 2.0}, "fixed rate_rps=40 scale=2"),
    ],
)
def test_arrivals_are_told_as_shortly_as_they_can_be(app, arrivals, text):
    assert prepared(question(app, within={"arrivals": arrivals})).about["arrivals"] == text


def test_a_container_that_can_never_keep_up_is_named_beforehand(app):
    notes = prepared(question(app, within={"cpu_scale": 100.0}, threads=1.0)).notes
    assert any(note.startswith("web is saturated whatever its limits are: it needs ") for note in notes)


def test_nobody_asking_for_anything_is_refused(app):
    with pytest.raises(ScenarioError, match=r"services\.arrivals: no request arrives in 2 s"):
        prepared(question(app, within={"arrivals": {"kind": "fixed", "rate_rps": 0.0}}))


def test_one_profile_serves_all_workloads(app):
    def at(rate_rps, **asked):
        arrivals = {"kind": "fixed", "rate_rps": rate_rps}
        return prepared(question(app, within={"arrivals": arrivals}, **asked)).workload

    profile = {"arrivals": {"kind": "fixed", "rate_rps": 50.0}}
    low, high = at(10.0, profile=profile), at(90.0, profile=profile)
    assert low.peak_cores.tolist() == high.peak_cores.tolist()
    assert at(10.0).peak_cores[0] < at(90.0).peak_cores[0]


def test_a_cold_start_is_in_the_peaks_and_in_the_history(app):
    asked = {"profile": {"cold_start": True}, "machine": {"restart_cpu_s": 2.0}}
    warm, cold = prepared(question(app)), prepared(question(app, **asked))
    most = np.minimum(cold.workload.threads, cold.workload.host_cores)
    # 2 s of CPU on all threads: in the first second as many cores as there are threads, at most 2.
    assert (cold.workload.peak_cores >= np.minimum(most, 2.0) - 1e-9).all()
    assert len(cold.history.usage_cores) > len(warm.history.usage_cores)
    assert cold.history.usage_cores[0] == pytest.approx(np.minimum(most, 20.0))


def test_omega_may_be_the_clusters_cores_and_m_stays_a_factor(app):
    asked = question(app, within={"hosts": 2}, host_cores=6.0, budget={"cpu_cores": "cluster"})
    (application,) = prepared(asked).workload.applications
    (usual,) = prepared(question(app, within={"hosts": 2}, host_cores=6.0)).workload.applications
    assert application.cpu_limit_cores == 12.0
    assert application.memory_limit_bytes == usual.memory_limit_bytes


def test_histories_may_begin_cold(app):
    assert prepared(question(app, profile={"history": False})).history is None
    assert prepared(question(app)).history is not None


def test_a_trace_has_no_profile_run():
    with pytest.raises(ScenarioError, match=r"profile\.arrivals: only a scenario with services"):
        build({"name": "t", "trace": {"source": "x"}, "profile": {"arrivals": "fixed"}}, "t")
