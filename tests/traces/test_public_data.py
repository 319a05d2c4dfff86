"""Every reader on the public data set it is for.

Data sets under MIT have golden figures. The others publish no licence: their figures stay out of the
repository, and the test compares with the raw columns instead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from traces.load import load
from traces.schema import UsageTrace
from twinbed import TraceError

Data = Callable[[str], Path]


def mean_cores(trace: UsageTrace) -> float:
    return float(trace.cpu_cores[trace.present].mean())


def test_sock_shop_is_one_run_of_percent_of_a_core(public_data: Data) -> None:
    folder = public_data("rcd_sockshop_1s")
    trace = load(folder)
    raw = pd.read_csv(folder / "sockshop_container_metrics_1s.csv.gz")
    run = raw.query("fault_service == 'carts' and fault == 'cpu' and rep == 1 and phase == 'normal'")
    assert trace.shape == (292, 13)
    assert trace.interval_s == 1.0
    assert trace.present.all()
    assert trace.start_s == run["time"].min()
    for name in ("carts", "user-db"):
        column = trace.containers.index(name)
        assert np.allclose(trace.cpu_cores[:, column], run[f"{name}_cpu"] / 100)
        assert np.array_equal(trace.memory_bytes[:, column], run[f"{name}_mem"])
    fault = load(folder, fault_service="orders", fault="mem", rep="5", phase="anomalous")
    assert fault.shape == (287, 13)
    with pytest.raises(TraceError, match="no fault 'disk'; there are cpu, mem"):
        load(folder, fault="disk")


def test_deathstarbench_ends_with_cpu_and_leaves_out_the_nodes(public_data: Data) -> None:
    folder = public_data("deathstarbench_socialnetwork_10s")
    trace = load(folder)
    raw = pd.read_csv(folder / "socialnetwork_pod_metrics_10s.csv.gz")
    raw = raw[raw["pod"].isin(trace.containers) & raw["cpu_usage"].notna()]
    assert trace.shape == (130, 34)
    assert trace.interval_s == 10.0
    assert trace.present.all()
    assert raw["pod"].nunique() == 34
    assert mean_cores(trace) == pytest.approx(raw["cpu_usage"].mean(), rel=0.01)
    assert "35 missing samples" in trace.notes[-1]


@pytest.mark.slow
def test_nezha_is_an_application_and_a_day(public_data: Data) -> None:
    folder = public_data("nezha_pod_metrics_1min")
    trace = load(folder)
    assert (trace.shape, trace.interval_s) == ((919, 30), 60.0)
    assert mean_cores(trace) == pytest.approx(0.00582400, abs=1e-8)
    assert trace.memory_bytes.mean() == pytest.approx(412329808, rel=1e-6)
    shop = load(folder, app="OnlineBoutique")
    assert shop.shape == (1209, 8)
    assert "98 samples shared an interval" in shop.notes[1]
    assert "adservice" in shop.notes[2]
    assert load(folder, app="OnlineBoutique", day="2022-08-23").shape == (721, 9)


def test_google_jobs_are_scaled_by_a_stated_capacity(public_data: Data) -> None:
    folder = public_data("google_cluster_1600_jobs_5min")
    trace = load(folder, day=3, capacity_cores=8.0, capacity_bytes=100.0)
    raw = pd.read_csv(folder / "gcd_job_cpu_mem_5min.csv.gz").query("day == 3")
    assert (trace.shape, trace.interval_s) == ((288, raw["job"].nunique()), 300.0)
    assert mean_cores(trace) == pytest.approx(raw["cpu_pct"].mean() / 100 * 8)
    assert trace.memory_bytes.mean() == pytest.approx(raw["mem_pct"].mean())
    assert "100 % is taken as 8 cores" in trace.notes[0]


def test_bitbrains_rows_are_spread_over_their_durations(public_data: Data) -> None:
    folder = public_data("bitbrains_small_5min")
    trace = load(folder)
    assert (trace.shape, trace.interval_s) == ((8641, 35), 300.0)
    assert mean_cores(trace) == pytest.approx(0.6782348, abs=1e-6)
    assert trace.present.mean() == pytest.approx(0.917913, abs=1e-6)
    raw = pd.read_csv(folder / "bitbrains_50vms.csv.gz")
    work_mhz_s = (raw["cpu_usage_mhz"] * raw["duration_ms"] / 1000).sum()
    assert trace.cpu_cores.sum() * 300 == pytest.approx(work_mhz_s / 2600, rel=0.01)
    one = load(folder / "bitbrains_1vm_full_metrics.csv.gz")
    assert one.shape == (8641, 1)
    assert mean_cores(one) == pytest.approx(0.002799891, abs=1e-8)
    assert one.rx_bytes is not None


@pytest.mark.slow
def test_surf_jobs_keep_their_work_and_come_and_go(public_data: Data) -> None:
    folder = public_data("surf_hpc_week_30s")
    trace = load(folder)
    assert (trace.shape, trace.interval_s) == ((2880, 390), 30.0)
    assert mean_cores(trace) == pytest.approx(10.4275390, abs=1e-6)
    assert trace.cpu_cores.max() == 16.0
    assert load(folder, day=7, max_containers=5).shape == (2880, 5)
    raw = pd.read_parquet(folder / "surf_fragments.parquet")
    job = int(trace.containers[0].removeprefix("job-"))
    within = raw[raw["id"] == job]["cpu_usage_mhz"].to_numpy()[:100] / 2100
    column = trace.cpu_cores[trace.present[:, 0], 0]
    assert np.allclose(column[:100], within)
    with pytest.raises(TraceError, match="no day 8"):
        load(folder, day=8)


def test_surf_without_its_tasks_file_is_named(public_data: Data, tmp_path: Path) -> None:
    (tmp_path / "surf_fragments.parquet").symlink_to(
        public_data("surf_hpc_week_30s") / "surf_fragments.parquet"
    )
    with pytest.raises(TraceError, match=r"surf_tasks\.csv\.gz: no such file"):
        load(tmp_path)
