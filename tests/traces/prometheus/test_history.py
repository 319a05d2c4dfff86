"""Counters, replicas, lives of pods, settings and events, as cAdvisor and kube-state-metrics tell them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.prometheus import kept, names
from traces.prometheus.combine import by_workload
from traces.prometheus.history import ClusterHistory, assembled, part
from traces.prometheus.series import Series, Window, series_of
from traces.prometheus.workloads import by_name, by_state
from twinbed import TraceError

STEP_S, ROWS = 30.0, 20
WINDOW = Window(3000.0, STEP_S, ROWS)
EDGES = WINDOW.edges
POD = {"namespace": "shop", "pod": "web-7d4b9c6f5-x2k4z", "container": "app"}


def one(metric: str, values, times_s=EDGES, **labels: str) -> Series:
    return series_of(
        "here", {"__name__": metric, **POD, **labels}, np.asarray(times_s), np.asarray(values, float)
    )


def history(*series: Series, **options) -> ClusterHistory:
    return assembled([part(series, WINDOW, "here", **options)], WINDOW, "here")


def cores(*series: Series, **options) -> list[float]:
    return history(*series, **options).trace.cpu_cores[:, 0].round(9).tolist()


USED = one(names.CPU, 100 + 0.5 * (EDGES - EDGES[0]))


def test_a_counter_becomes_the_cores_of_each_interval() -> None:
    assert cores(USED) == [0.5] * ROWS


def test_after_a_reset_the_whole_new_value_was_used() -> None:
    values = USED.values.copy()
    values[10:] = 6 + 15 * np.arange(ROWS + 1 - 10)
    # Between edges 9 and 10 the container restarted and used at least 6 s of CPU: 6 / 30 = 0.2 cores.
    assert cores(one(names.CPU, values)) == [0.5] * 9 + [0.2] + [0.5] * 10


def test_a_restarted_container_with_a_new_cgroup_goes_on_in_its_column() -> None:
    before = one(names.CPU, USED.values[:12], EDGES[:12], id="/old")
    after = one(names.CPU, 3 + 15 * np.arange(11), EDGES[10:], id="/new")
    found = history(before, after)
    assert found.trace.containers == ("shop/web-7d4b9c6f5-x2k4z/app",)
    assert found.trace.cpu_cores[:, 0].round(9).tolist() == [0.5] * 9 + [0.1] + [0.5] * 10


def test_of_two_lives_that_the_window_cuts_the_one_that_goes_on_counts() -> None:
    over = one(names.CPU, USED.values[:4], EDGES[:4], id="/old")
    on = one(names.CPU, 3 + 15 * np.arange(21), id="/new")
    assert cores(on, over) == cores(over, on) == [0.5] * ROWS


def test_a_new_cgroup_begins_at_zero_even_where_its_counter_is_ahead_of_the_old_one() -> None:
    before = one(names.CPU, [0.0, 3.0], EDGES[:2], id="/old")
    after = one(names.CPU, [12.0, 27.0], EDGES[2:4], id="/new")
    assert cores(before, after)[:3] == [0.1, 0.4, 0.5]
    # The same cgroup under another label continues its counter.
    renamed = one(names.CPU, [12.0, 27.0], EDGES[2:4], id="/old", node="b")
    assert cores(before, renamed)[:3] == [0.1, 0.3, 0.5]


def test_an_oom_event_of_a_new_cgroup_counts_beside_that_of_the_old_one() -> None:
    before = one(names.OOM_EVENTS, [0.0, 1.0], EDGES[:2], id="/old")
    after = one(names.OOM_EVENTS, [1.0, 1.0], EDGES[2:4], id="/new")
    assert history(USED, before, after).total("oom_events").tolist() == [2]


def test_a_short_hole_is_filled_evenly_and_a_long_one_is_absence() -> None:
    short, long = np.r_[0:5, 9:21], np.r_[0:5, 17:21]
    assert cores(one(names.CPU, USED.values[short], EDGES[short])) == [0.5] * ROWS
    trace = history(one(names.CPU, USED.values[long], EDGES[long])).trace
    assert np.flatnonzero(trace.present[:, 0]).tolist() == [0, 1, 2, 3, 17, 18, 19]
    assert trace.cpu_cores[:, 0].round(9).tolist() == [0.5] * 4 + [0.0] * 13 + [0.5] * 3
    assert any("13 intervals" in note and "absent" in note for note in trace.notes)


def test_a_container_whose_counter_went_on_ran_in_the_hole() -> None:
    long = np.r_[0:5, 17:21]
    seen = history(one(names.CPU, USED.values[long], EDGES[long]))
    assert seen.facts["unseen"].interval.tolist() == list(range(4, 17))
    fell = np.where(np.arange(9) < 5, USED.values[long], USED.values[long] - 300)
    assert not history(one(names.CPU, fell, EDGES[long])).total("unseen").any()


def test_readings_of_a_long_step_that_come_late_are_no_holes() -> None:
    window = Window(3000.0, 300.0, 10)
    values = 0.5 * (window.edges - 3000.0)
    late_s = window.edges + np.where(np.arange(11) % 2, 0.002, 0.0)
    series = [one(names.CPU, values, window.edges), one(names.CPU_SEEN, late_s - 5, window.edges)]
    assert assembled([part(series, window, "here")], window, "here").trace.present.all()


def test_pods_that_come_and_go_are_absent_outside_their_lives() -> None:
    early = one(names.CPU, USED.values[:8], EDGES[:8], pod="web-7d4b9c6f5-aaaaa")
    late = one(names.CPU, USED.values[12:], EDGES[12:], pod="web-7d4b9c6f5-bbbbb")
    present = history(early, late).trace.present
    assert [np.flatnonzero(column)[[0, -1]].tolist() for column in present.T] == [[0, 6], [12, 19]]


def test_a_start_time_tells_what_was_used_before_the_first_scrape() -> None:
    values = 24 + 15 * np.arange(11)
    started = one(names.STARTED, np.full(11, EDGES[10] - 20), EDGES[10:])
    first = cores(one(names.CPU, values, EDGES[10:]), started)[9]
    # 24 s of CPU in the 20 s from the start to the first scrape.
    assert first == pytest.approx(1.2)
    assert cores(one(names.CPU, values, EDGES[10:]))[9] == 0


def test_of_two_replicas_one_counts_and_the_other_fills_its_holes() -> None:
    hole = np.r_[0:6, 10:21]
    first = one(names.CPU, USED.values[hole], EDGES[hole], prometheus_replica="a")
    # The second replica looks a second earlier, so its counter is 0.5 s behind.
    second = one(names.CPU, USED.values[:15] - 0.5, EDGES[:15], prometheus_replica="b")
    found = cores(first, second)
    assert sum(found) == pytest.approx(0.5 * ROWS)
    assert max(found) == pytest.approx(0.5 + 0.5 / STEP_S)
    assert min(found) == pytest.approx(0.5 - 0.5 / STEP_S)
    labelled = [one(names.CPU, USED.values, cluster_replica=name) for name in "ab"]
    assert cores(*labelled, replica_labels=("cluster_replica",)) == [0.5] * ROWS


def test_replicas_that_look_at_the_same_time_do_not_count_twice() -> None:
    assert cores(*(one(names.CPU, USED.values, replica=name) for name in "ab")) == [0.5] * ROWS


def test_containers_that_only_another_label_tells_apart_are_not_mixed() -> None:
    window = Window(3000.0, STEP_S, 60)
    values = np.arange(61.0)
    both = [one(names.CPU, values, window.edges, cluster=name, id=f"/{name}") for name in ("eu", "us")]
    with pytest.raises(TraceError, match=r"here: two series of container .* differ in label cluster"):
        part(both, window, "here")
    assert part(both, window, "here", ("cluster",)).keys


def test_pause_containers_sums_of_pods_and_single_cpus_are_left_out() -> None:
    others = [
        one(names.CPU, USED.values, container="POD"),
        one(names.CPU, USED.values, container=""),
        one(names.CPU, USED.values, pod=""),
        one(names.CPU, USED.values, cpu="cpu00"),
    ]
    assert cores(USED, *others) == [0.5] * ROWS
    with pytest.raises(TraceError, match="no container has two samples"):
        history(*others)


def test_a_sample_that_is_given_again_is_no_new_one() -> None:
    read_s = EDGES - 7.0
    read_s[15:] = read_s[14]
    values = np.where(np.arange(21) < 15, USED.values, USED.values[14])
    trace = history(one(names.CPU, values), one(names.CPU_SEEN, read_s)).trace
    assert np.flatnonzero(trace.present[:, 0])[-1] == 13
    assert trace.cpu_cores[:14, 0].round(9).tolist() == [0.5] * 14


def test_growth_is_divided_by_the_time_between_the_readings() -> None:
    read_s = EDGES - np.where(np.arange(21) % 2, 10.0, 0.0)
    assert cores(one(names.CPU, 0.5 * read_s), one(names.CPU_SEEN, read_s)) == [0.5] * ROWS


def test_memory_is_the_last_working_set_of_an_interval() -> None:
    memory = one(names.MEMORY, 1000 + np.arange(21))
    trace = history(USED, memory).trace
    assert trace.memory_bytes[:, 0].tolist() == (1001.0 + np.arange(20)).tolist()
    assert any("memory is 0 throughout" in note for note in history(USED).trace.notes)


def test_memory_of_a_sample_that_is_far_away_is_told() -> None:
    short = one(names.MEMORY, [1000.0] * 4, EDGES[:4])
    # The sample at 90 s holds for 300 s, so for 13 intervals, which end by 390 s.
    notes = history(USED, short).trace.notes
    assert "The memory of 7 intervals is that of a sample more than 300 s away." in notes


def test_settings_hold_from_where_they_were_seen() -> None:
    quota = one(names.QUOTA, np.where(np.arange(21) < 10, 50_000, 75_000))
    found = history(
        USED,
        quota,
        one(names.PERIOD, np.full(21, 100_000)),
        one(names.SHARES, np.full(21, 256)),
        one(names.MEMORY_LIMIT, np.full(21, 2**28)),
    )
    limit = found.facts["cpu_limit_cores"]
    assert (limit.interval.tolist(), limit.value.tolist()) == ([0, 10], [0.5, 0.75])
    assert found.in_force("cpu_limit_cores").tolist() == [0.75]
    assert found.in_force("cpu_request_cores").tolist() == [0.25]
    assert found.in_force("memory_limit_bytes").tolist() == [2**28]
    assert np.isnan(found.in_force("memory_request_bytes")).all()


def test_a_period_without_a_quota_is_no_limit_and_kube_state_counts_first() -> None:
    period = one(names.PERIOD, np.full(21, 100_000))
    assert history(USED, period).in_force("cpu_limit_cores").tolist() == [0]
    told = one(names.LIMITS, np.full(21, 2.0), resource="cpu", unit="core")
    other = one(names.LIMITS, np.full(21, 9.0), resource="nvidia_com_gpu", unit="integer")
    assert history(USED, period, told, other).in_force("cpu_limit_cores").tolist() == [2]


def test_what_kube_state_does_not_list_for_a_container_that_it_knows_is_not_set() -> None:
    other = {"pod": "old-7d4b9c6f5-x2k4z"}
    used = one(names.CPU, 100 + 0.5 * (EDGES - EDGES[0]), **other)
    limit = one(names.LIMITS, np.full(21, 2.0), resource="cpu", **other)
    known = one(names.REQUESTS, np.full(21, 1.0), resource="cpu")
    found = history(used, USED, limit, known)
    assert found.in_force("cpu_limit_cores").tolist() == [2, 0]
    assert found.facts["cpu_limit_cores"].interval.tolist() == [0, 0]
    assert np.isnan(found.in_force("memory_limit_bytes")).all()
    # Without the metric, or without the container in kube-state, nothing is known.
    assert np.isnan(history(USED, known).in_force("cpu_limit_cores")).all()
    assert np.isnan(history(used, USED, limit).in_force("cpu_limit_cores")).tolist() == [False, True]


def test_restarts_and_oom_events_are_counted_where_they_happened() -> None:
    restarts = one(names.RESTARTS, np.repeat([3, 4, 6], 7))
    found = history(USED, restarts, one(names.OOM_EVENTS, np.repeat([0, 1, 1], 7)))
    events = found.facts["restarts"]
    assert (events.interval.tolist(), events.value.tolist()) == ([6, 13], [1, 2])
    assert found.total("restarts").tolist() == [3]
    assert found.total("oom_events").tolist() == [1]


def test_without_oom_events_the_last_reason_tells() -> None:
    restarts = one(names.RESTARTS, np.repeat([0, 1, 2], 7))
    reason = one(names.LAST_REASON, np.ones(7), EDGES[7:14], reason="OOMKilled")
    later = one(names.LAST_REASON, np.ones(7), EDGES[14:], reason="Completed")
    found = history(USED, restarts, reason, later)
    assert found.facts["oom_events"].interval.tolist() == [6]
    assert found.total("oom_events").tolist() == [1]
    # A container that dies of its kill takes the counter of cAdvisor along, which is then 0 for ever.
    silent = one(names.OOM_EVENTS, np.zeros(21))
    assert history(USED, restarts, reason, later, silent).total("oom_events").tolist() == [1]


def test_the_throttled_share_is_of_the_periods_of_an_interval() -> None:
    periods = one(names.PERIODS, 300 * np.arange(21))
    throttled = one(names.THROTTLED_PERIODS, np.where(np.arange(21) < 5, 0, 60 * (np.arange(21) - 4)))
    share = history(USED, periods, throttled).facts["throttled_share"]
    assert share.interval.tolist() == list(range(4, 20))
    assert share.value.tolist() == pytest.approx([0.2] * 16)


@pytest.mark.parametrize(
    ("pod", "kind", "workload"),
    [
        ("web-7d4b9c6f5-x2k4z", "Deployment", "web"),
        ("shop-front-5c9f8d7b46-q9wzt", "Deployment", "shop-front"),
        ("node-exporter-x2k4z", "DaemonSet or Job", "node-exporter"),
        ("db-0", "StatefulSet", "db"),
        ("backup-28312345-x2k4z", "CronJob", "backup"),
        ("etcd-master", "Pod", "etcd-master"),
        ("web", "Pod", "web"),
    ],
)
def test_a_pods_name_tells_its_workload(pod: str, kind: str, workload: str) -> None:
    assert by_name(pod) == (kind, workload)


def test_kube_state_tells_owners_better_than_names() -> None:
    told = by_state(
        [
            (
                "kube_pod_owner",
                {"namespace": "a", "pod": "p", "owner_kind": "ReplicaSet", "owner_name": "web-5f7"},
            ),
            (
                "kube_pod_owner",
                {"namespace": "a", "pod": "q", "owner_kind": "<none>", "owner_name": "<none>"},
            ),
            (
                "kube_pod_owner",
                {
                    "namespace": "monitoring",
                    "exported_namespace": "a",
                    "pod": "kube-state-metrics-0",
                    "exported_pod": "r-0",
                    "owner_kind": "StatefulSet",
                    "owner_name": "r",
                },
            ),
            (
                "kube_replicaset_owner",
                {"namespace": "a", "replicaset": "web-5f7", "owner_kind": "Rollout", "owner_name": "web"},
            ),
        ]
    )
    assert told == {
        ("a", "p"): ("Rollout", "web"),
        ("a", "q"): ("Pod", "q"),
        ("a", "r-0"): ("StatefulSet", "r"),
    }


@pytest.mark.parametrize(
    ("job", "above", "expected"),
    [
        ("report-29580030", {}, ("CronJob", "report")),
        ("report-29580030", {"owner_kind": "CronJob", "owner_name": "r"}, ("CronJob", "r")),
        ("report-29580030", {"owner_kind": "<none>", "owner_name": "<none>"}, ("Job", "report-29580030")),
        ("migrate", {}, ("Job", "migrate")),
    ],
)
def test_runs_of_a_cron_job_are_one_workload(job, above, expected) -> None:
    pod = {"namespace": "a", "pod": f"{job}-x2k4z", "owner_kind": "Job", "owner_name": job}
    told = [("kube_pod_owner", pod)]
    told += [("kube_job_owner", {"namespace": "a", "job_name": job, **above})] if above else []
    assert by_state(told) == {("a", f"{job}-x2k4z"): expected}


def replicas() -> ClusterHistory:
    first = one(names.CPU, USED.values[:11], EDGES[:11], pod="web-7d4b9c6f5-bbbbb")
    second = one(names.CPU, 3 * USED.values, pod="web-7d4b9c6f5-ccccc")
    return history(first, second, one(names.RESTARTS, np.repeat([0, 1], [5, 16]), pod="web-7d4b9c6f5-ccccc"))


def test_replicas_are_combined_as_asked() -> None:
    for how, before, after in (("sum", 2.0, 1.5), ("mean", 1.0, 1.5), ("largest", 1.5, 1.5)):
        trace = by_workload(replicas(), how)  # type: ignore[arg-type]
        assert trace.containers == ("shop/web/app",)
        assert trace.cpu_cores[:, 0].round(9).tolist() == [before] * 10 + [after] * 10
        assert "at most 2 replicas" in trace.notes[-1]


def test_kube_state_tells_which_containers_are_init_containers(tmp_path) -> None:
    used = [one(names.CPU, USED.values, container=container) for container in ("app", "proxy")]
    told = [("kube_pod_init_container_info", POD | {"container": "proxy", "restart_policy": "Always"})]
    found = assembled([part(used, WINDOW, "here")], WINDOW, "here", told)
    kept.write(found, tmp_path / "shop.parquet")
    for own in (found, kept.read(tmp_path / "shop.parquet")):
        assert [(owner.container, owner.is_init) for owner in own.owners] == [("app", False), ("proxy", True)]


def test_what_is_kept_comes_back(tmp_path) -> None:
    before = replicas()
    kept.write(before, tmp_path / "shop.parquet")
    after = kept.read(tmp_path / "shop.parquet")
    assert after.owners == before.owners
    assert after.trace.notes == before.trace.notes
    np.testing.assert_array_equal(after.trace.cpu_cores, before.trace.cpu_cores)
    assert after.facts.keys() == before.facts.keys()
    for name, entries in before.facts.items():
        for old, new in zip(entries.columns(), after.facts[name].columns(), strict=True):
            np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("at", [0, 1])
def test_an_interrupted_write_leaves_what_there_was(tmp_path, monkeypatch, at) -> None:
    path, encode, left = tmp_path / "shop.parquet", kept.parquet.encode, [at]

    def interrupted(*arguments: object) -> None:
        encode(*arguments)  # type: ignore[arg-type]
        left[0] -= 1
        if left[0] < 0:
            left[0] = at
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kept.parquet, "encode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kept.write(replicas(), path)
    assert list(tmp_path.iterdir()) == []
    kept.write(replicas(), path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    monkeypatch.setattr(kept.parquet, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept.write(history(USED), path)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_crash_between_the_two_files_is_noticed(tmp_path, monkeypatch) -> None:
    path, short, took_place = tmp_path / "shop.parquet", replace(WINDOW, intervals=10), list[Path]()
    kept.write(assembled([part([USED], short, "here")], short, "here"), path)
    older = path.read_bytes()

    def noted(hidden: Path, target: Path) -> None:
        took_place.append(target)
        hidden.rename(target)

    monkeypatch.setattr(Path, "replace", noted)
    kept.write(history(USED), path)
    assert took_place == [kept.beside(path), path]
    path.write_bytes(older)
    with pytest.raises(TraceError, match="import the history again"):
        kept.read(path)


def test_a_file_beside_another_trace_is_refused(tmp_path) -> None:
    kept.write(replicas(), tmp_path / "shop.parquet")
    kept.parquet.write(history(USED).trace, tmp_path / "shop.parquet")
    with pytest.raises(TraceError, match="its containers or intervals are not those of the trace"):
        kept.read(tmp_path / "shop.parquet")


def test_a_head_that_is_cut_off_says_so(tmp_path) -> None:
    kept.write(replicas(), tmp_path / "shop.parquet")
    path = kept.beside(tmp_path / "shop.parquet")
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"twinbed": b"{"}), path)
    with pytest.raises(TraceError, match=r"invalid JSON: EOF .*; import the history again"):
        kept.read(tmp_path / "shop.parquet")


@pytest.mark.parametrize(
    ("values", "times_s", "words"),
    [
        ([1, -1], EDGES[:2], "negative or infinite; save the bare metric"),
        ([1, np.inf], EDGES[:2], "negative or infinite; save the bare metric"),
        ([1, 2], EDGES[1::-1], "times that do not increase; save the series once more"),
    ],
)
def test_values_that_cannot_be_are_refused_with_the_cure(values, times_s, words) -> None:
    with pytest.raises(TraceError, match=words):
        one(names.CPU, values, times_s)


@given(
    rates=st.lists(st.floats(0, 8), min_size=ROWS, max_size=ROWS),
    resets=st.sets(st.integers(1, ROWS - 1)),
    seen=st.sets(st.integers(0, ROWS), min_size=2),
)
def test_what_was_used_is_neither_lost_nor_invented(rates, resets, seen) -> None:
    """Without resets the sum over seen intervals is the counter's growth; with them it is never more."""
    counter, value = [0.0], 0.0
    for row, rate in enumerate(rates):
        value = rate * STEP_S + (0.0 if row in resets else value)
        counter.append(value)
    rows = sorted(seen)
    if max(np.diff(rows)) * STEP_S > 300 or len(rows) < 2:
        return
    found = sum(cores(one(names.CPU, np.array(counter)[rows], EDGES[rows]))) * STEP_S
    truth = sum(rates[rows[0] : rows[-1]]) * STEP_S
    assert found <= truth + 1e-6
    if not resets:
        assert found == pytest.approx(truth, abs=1e-6)
