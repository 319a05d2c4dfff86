"""The history that an advice is made from: replicas by workload, and the present settings."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lab.containers.advise.advising import Wanted, advise
from lab.containers.advise.histories import of_cluster, read
from lab.containers.advise.model import Setting
from lab.containers.calibrate.values import load_calibration
from tests.lab.containers.advise.histories import MIB, history, trace
from traces.prometheus import kept
from traces.prometheus.in_force import Entries
from traces.prometheus.workloads import Owner
from twinbed import TraceError

NAN = np.nan
MACHINE = load_calibration().machine()


def test_replicas_of_a_workload_are_one_row_and_the_latest_pod_says_what_is_set():
    own = trace(
        [[1, 1, 0, 0], [0, 2, 2, 2], [3, 3, 3, 3]], present=[[1, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1]]
    )
    owners = [
        Owner("shop", f"p{index}", "app", "Deployment", name)
        for index, name in enumerate(["web", "web", "db"])
    ]
    told = of_cluster(
        "test", history(own, owners, cpu_limit_cores=[1.0, 4.0, 0.0], cpu_request_cores=[NAN, NAN, 0.5])
    )
    assert [named.name for named in told.rows] == ["shop/db/app", "shop/web/app"]
    assert [named.replicas for named in told.rows] == [1, 2]
    assert told.running.tolist() == [1.0, 1.25]
    assert told.usage.row.tolist() == [0, 1, 1]
    assert told.usage.current.cpu_limit.tolist() == [np.inf, 4.0]
    assert told.usage.current.cpu_request[0] == 0.5
    assert np.isnan(told.usage.current.memory_limit).all()


def test_the_limit_under_which_a_pod_was_killed_is_known():
    own = trace(np.ones((2, 4)), np.full((2, 4), 9.0 * MIB))
    told = of_cluster(
        "test", history(own, memory_limit_bytes=[10.0 * MIB, 20.0 * MIB], oom_events=[2.0, 0.0])
    )
    assert told.usage.oom_limit_bytes().tolist() == [10 * MIB]
    assert told.usage.oom_events().tolist() == [2]


@pytest.mark.parametrize(("killed_at", "limit_mib"), [(0, 10), (1, 10), (2, 10), (3, 30)])
def test_the_limit_of_a_kill_is_that_which_was_in_force(killed_at, limit_mib):
    own = history(trace(np.ones((2, 4)), np.full((2, 4), 9.0 * MIB)))
    limits = Entries(*np.array([[1, 3, 0], [1, 1, 0]], np.int32), np.array([10.0, 30.0, 99.0]) * MIB)
    kills = Entries(*np.array([[killed_at], [1]], np.int32), np.array([1.0]))
    told = of_cluster("test", replace(own, facts={"memory_limit_bytes": limits, "oom_events": kills}))
    assert told.usage.oom_limit_bytes().tolist() == [limit_mib * MIB]
    assert told.usage.kills.interval.tolist() == [killed_at]


def test_a_half_has_the_replicas_that_ran_in_it():
    own = trace(np.ones((2, 4)), present=[[1, 1, 1, 1], [0, 0, 1, 1]])
    told = of_cluster("test", history(own))
    assert told.part(0, 2).running.tolist() == [1]
    assert told.part(2, 4).running.tolist() == [2]


def test_what_ran_in_a_hole_is_paid_for_there():
    own = trace(np.ones((2, 4)), present=[[1, 0, 0, 1], [1, 1, 0, 0]])
    told = of_cluster("test", history(own))
    assert told.running.tolist() == [1]
    unseen = Entries(*np.array([[1, 2], [0, 0]], np.int32), np.ones(2))
    told = of_cluster("test", replace(history(own), facts={"unseen": unseen}))
    assert told.running.tolist() == [1.5]
    assert told.part(2, 4).running.tolist() == [1]


def test_an_imported_history_is_read_with_what_lies_beside_it(tmp_path):
    path = tmp_path / "shop.parquet"
    kept.write(history(trace(np.ones((2, 4))), cpu_request_cores=[0.5, 0.5]), path)
    told = read(str(path))
    assert told.usage.current.cpu_request.tolist() == [0.5]
    kept.beside(path).write_bytes(b"not parquet")
    with pytest.raises(TraceError, match="in-force"):
        read(str(path))


def test_a_trace_without_owners_has_a_row_for_each_container():
    told = read("bursty_service")
    assert [named.name for named in told.rows] == ["backend", "cache", "frontend", "load"]
    assert np.isnan(told.usage.current.cpu_request).all()


def test_a_history_in_which_nothing_runs_is_refused():
    with pytest.raises(TraceError, match="no container runs"):
        of_cluster("test", history(trace(np.zeros((1, 4)), present=np.zeros((1, 4)))))


def test_memory_that_no_machine_has_is_refused():
    own = trace([[0.1, 0.1]], [[1e8, 1e30]], names=["a"])
    with pytest.raises(TraceError, match=r"^x: container a holds 1e\+30 bytes; is it in bytes\?$"):
        of_cluster("x", history(own))


def test_two_kinds_of_one_name_are_refused():
    owners = [Owner("shop", f"p{kind}", "app", kind, "web") for kind in ("Deployment", "StatefulSet")]
    with pytest.raises(TraceError, match="two workloads are called 'shop/web/app'"):
        of_cluster("test", history(trace(np.ones((2, 4))), owners))


def test_a_grafana_csv_tells_what_is_set_only_where_it_has_a_column_for_it(tmp_path):
    labels = '{namespace="shop",pod="web-1",container="app"'
    series = [
        "container_cpu_usage_seconds_total" + labels + "}",
        "kube_pod_container_resource_limits" + labels + ',resource="cpu",unit="core"}',
    ]
    times = 1_700_000_000_000 + 30_000 * np.arange(130)
    path = tmp_path / "panel.csv"

    def advised(columns):
        frame = pd.DataFrame({"Time": times, series[0]: 0.2 * 30 * np.arange(130), series[1]: 2.0})
        frame[["Time", *columns]].to_csv(path, index=False)
        (row,) = advise([read(str(path))], Wanted(seeds=(0,)), MACHINE).rows
        return row

    row = advised(series)
    assert row.current.cpu_limit_cores == 2.0
    asked = ["the CPU request now", "the memory request now", "the memory limit now", "memory use"]
    assert row.unknown == asked
    assert row.not_told == f" The history does not show: {', '.join(asked)}."
    bare = advised(series[:1])
    assert bare.current == Setting()
    assert bare.before is None
    assert "the CPU limit now" in bare.unknown


def test_options_of_a_reader_leave_what_is_set_known(tmp_path):
    own = 'namespace="shop",pod="web-1",container="app"'
    lines = [f"container_cpu_usage_seconds_total{{{own}}} {6 * k} {30_000 * k}" for k in range(9)]
    lines.append(f'kube_pod_container_resource_requests{{{own},resource="cpu",unit="core"}} 0.5 0')
    path = tmp_path / "shop.prom"
    path.write_text("\n".join(lines) + "\n")
    told = read(str(path), {"step_s": "60"})
    assert told.usage.interval_s == 60
    assert told.rows[0].name == "shop/web/app"
    assert told.usage.current.cpu_request.tolist() == [0.5]
