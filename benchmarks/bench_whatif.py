"""`twinbed whatif` end to end: an hour of 70 containers at 100 ms, two hours and a day of 40 at a minute; and
writing one run's largest table.

Each `whatif` runs in a process of its own, so wall time and peak memory include imports. Baselines, in the
same run: the four policies, each in a process of its own; the coarse trace with every period simulated and
stored; for the day, the two hours' cost scaled up by container-periods; the table written through pandas.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.figure import figure
from lab.containers.run import tables
from lab.runs.publishing import write_table
from traces import parquet
from traces.schema import UsageTrace
from twin.containers.model import Series

PERIODS, CONTAINERS = 36_000, 70
POLICIES = ("escra", "autopilot", "vpa", "static")
MINUTES, PODS = 120, 40
DAY = 1440
REPEATS = 3
_USUAL = ("-m", "lab.cli.main")
_PLAIN = (
    "-c",
    "from twin.containers import simulation; simulation.new_leaps = lambda *_: None; "
    "from lab.cli.main import main; main()",
)
"""Arguments of a Python that simulates every period by itself."""


def figures() -> Iterator[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "hour.parquet"
        parquet.write(_trace(), trace)
        rounds = [_round(trace, folder) for _ in range(REPEATS)]
        wall, rss, apart_wall, apart_rss = (median(column) for column in zip(*rounds, strict=True))
        apart = "one process per policy"
        yield _figure("whatif_hour_70_containers_4_policies_wall", wall, "s", apart, apart_wall, 10)
        yield _figure("whatif_hour_70_containers_4_policies_peak_rss", rss, "MB", apart, apart_rss, 1000)
        yield from _coarse(Path(folder))
        ours, theirs = _write(Path(folder))
        yield _figure("store_write_2.5M_period_rows", ours, "s", "through a pandas DataFrame", theirs, 0.6)


def _round(trace: Path, folder: str) -> tuple[float, float, float, float]:
    """Return wall time, s, and peak MB of one `whatif` with all policies, then of a process per policy."""
    ours = _ask(trace, POLICIES, folder)
    apart = [_ask(trace, (policy,), folder) for policy in POLICIES]
    return (
        ours.wall_s,
        ours.rss_mb,
        sum(child.wall_s for child in apart),
        max(child.rss_mb for child in apart),
    )


def _coarse(folder: Path) -> Iterator[dict[str, object]]:
    """Yield seconds and stored bytes of a coarse trace, and of the same trace with every period simulated."""
    ours, theirs = _ask(_minutes(folder), POLICIES, str(folder)), plain(folder)
    apart = "every period by itself, and stored"
    name = f"whatif_{MINUTES // 60}_hours_of_minutes_{PODS}_containers_4_policies"
    yield _figure(f"{name}_wall", ours.wall_s, "s", apart, theirs.wall_s, 5)
    yield _figure(f"{name}_store", ours.stored_mb, "MB", apart, theirs.stored_mb, 25)
    yield from day(folder, PODS, theirs.cpu_s, 40)


def day(folder: Path, pods: int, plain_cpu_s: float, target_s: float) -> Iterator[dict[str, object]]:
    """Yield CPU seconds of a day of minutes, with other costs. plain_cpu_s: CPU seconds of `plain`."""
    trace = folder / "day.parquet"
    parquet.write(replace(_trace(DAY, pods), interval_s=60.0), trace)
    ours = _ask(trace, POLICIES, str(folder))
    apart = f"every period of {MINUTES // 60} hours of {PODS} containers by itself, for as many periods"
    plain_s = plain_cpu_s * DAY * pods / (MINUTES * PODS)
    name = f"whatif_day_of_minutes_{pods}_containers_4_policies_cpu"
    yield _figure(name, ours.cpu_s, "s", apart, plain_s, target_s) | {
        "wall_s": round(ours.wall_s, 1),
        "peak_rss_mb": round(ours.rss_mb),
        "store_mb": round(ours.stored_mb, 1),
    }


def plain(folder: Path) -> _Cost:
    """Return the cost if every period of the coarse trace is simulated and stored."""
    return _ask(_minutes(folder), POLICIES, str(folder), _PLAIN, "--set", "series_interval_s=0.1")


def _minutes(folder: Path) -> Path:
    trace = folder / "minutes.parquet"
    parquet.write(replace(_trace(MINUTES, PODS), interval_s=60.0), trace)
    return trace


def _figure(
    name: str, value: float, unit: str, baseline: str, baseline_value: float, target: float
) -> dict[str, object]:
    ratio = baseline_value / value
    aim = f"≤ {target:g} {unit}"
    return figure(
        name, value, unit, baseline=baseline, baseline_value=baseline_value, ratio=ratio, target=aim
    )


class _Cost(NamedTuple):
    """The cost of one process of `twinbed whatif`: wall and CPU time, s, peak resident MB, MB in store."""

    wall_s: float
    cpu_s: float
    rss_mb: float
    stored_mb: float


def _ask(
    trace: Path, policies: tuple[str, ...], folder: str, how: Sequence[str] = _USUAL, *more: str
) -> _Cost:
    """Return the cost of one `twinbed whatif` process."""
    with tempfile.TemporaryDirectory(dir=folder) as store:
        began = time.perf_counter()
        words = ["whatif", str(trace), "--policy", ",".join(policies), "--store", store, "--format", "json"]
        process = subprocess.Popen([sys.executable, *how, *words, *more], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"whatif {policies} exited with {process.returncode}")
        wall_s = time.perf_counter() - began
        stored = sum(file.stat().st_size for file in Path(store).rglob("*") if file.is_file())
        cpu_s = usage.ru_utime + usage.ru_stime
        return _Cost(wall_s, cpu_s, usage.ru_maxrss * 1024 / 1e6, stored / 1e6)


def _trace(periods: int = PERIODS, count: int = CONTAINERS) -> UsageTrace:
    """Bursty use with different levels and slowly growing memory, like the recorded services."""
    random = np.random.default_rng(0)
    shape = (periods, count)
    level = random.choice([0.1, 0.3, 1.0], count)
    bursts = random.lognormal(-0.2, 0.6, shape)
    memory = random.uniform(5e7, 5e8, count) + np.cumsum(random.integers(0, 2, shape) * 4096, axis=0)
    return UsageTrace(
        containers=tuple(f"service-{i}" for i in range(count)),
        apps=("shop",) * count,
        start_s=0.0,
        interval_s=0.1,
        cpu_cores=np.minimum(level * bursts, 4.0),
        memory_bytes=np.floor(memory),
        present=np.ones(shape, np.bool_),
    )


def _write(folder: Path) -> tuple[float, float]:
    """Return the time to build and write one run's `periods`, s: ours, and through one long DataFrame."""
    trace = _trace()
    cpu = trace.cpu_cores.astype(np.float32)
    zeros = np.zeros(cpu.shape, np.float32)
    memory = trace.memory_bytes.astype(np.int64)
    series = Series(
        demand_cores=cpu,
        usage_cores=cpu,
        quota_cores=np.broadcast_to(cpu.max(axis=0), cpu.shape),
        backlog_s=zeros,
        throttled=zeros > 0,
        throttled_s=zeros,
        memory_bytes=memory,
        limit_bytes=memory + (50 << 20),
        cpu_reason=np.zeros(cpu.shape, np.uint8),
        up=trace.present,
    )

    def arrow() -> None:
        write_table(folder / "ours.parquet", tables.periods(series, trace.containers))

    def pandas() -> None:
        values = {name: np.ravel(getattr(series, name)) for name in Series.__slots__}
        columns = {name: own for name, own in values.items() if own.size == cpu.size}
        columns["period"] = np.repeat(np.arange(PERIODS, dtype=np.int32), CONTAINERS)
        columns["container"] = np.tile(np.array(trace.containers, dtype=object), PERIODS)
        pd.DataFrame(columns).to_parquet(folder / "theirs.parquet", index=False)

    times: dict[str, list[float]] = {"arrow": [], "pandas": []}
    for _ in range(REPEATS):
        for reader in (arrow, pandas):
            began = time.perf_counter()
            reader()
            times[reader.__name__].append(time.perf_counter() - began)
    return median(times["arrow"]), median(times["pandas"])
