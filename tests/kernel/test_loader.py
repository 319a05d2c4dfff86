"""The hooks' reports, compared with the kernel's own counters."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from ctypes.util import find_library
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kernel import bcc_loader
from kernel.loader import Hooks, by_libbpf
from kernel.records import KILL, UNDER_OOM
from testbed.containers.cgroup.drivers import V1, V2, Group, detect
from testbed.containers.ownership import new_run
from tests.patience import PATIENCE_S
from twinbed import BackendError

MIB = 1 << 20
BUSY = "while :; do :; done"
BURSTS = "while :; do i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; sleep 0.02; done"


@pytest.fixture
def hooks(tracing: None) -> Iterator[Hooks]:
    with Hooks(measure=True) as loaded:
        yield loaded


@pytest.fixture
def make(cgroups: None) -> Iterator[Callable[[str, float], Group]]:
    driver: V1 | V2 = detect()
    run, made = new_run(), list[Group]()

    def make(name: str, quota_cores: float) -> Group:
        made.append(driver.create(run, name))
        made[-1].set_cpu_quota(quota_cores)
        return made[-1]

    yield make
    for group in made:
        group.remove()
    driver.finish(run)


def start(group: Group, script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sh", "-c", script], preexec_fn=group.enter)


def end(programs: Iterable[subprocess.Popen[bytes]]) -> None:
    for program in programs:
        program.kill()
        program.wait()


def collect(hooks: Hooks, seconds: float) -> NDArray[np.void]:
    """Return all period records of the next `seconds`, read as a control loop would read them."""
    parts, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        parts.append(hooks.read().periods)
        time.sleep(0.02)
    return np.concatenate(parts)


def cgroup_id(group: Group, file: str = "cpu.stat") -> int:
    return next(folder for folder in group.directories if (folder / file).exists()).stat().st_ino


def settled(hooks: Hooks, groups: list[Group]) -> NDArray[np.void]:
    """Return the records that still come until the groups' timers have stopped."""
    parts, before = [], None
    while before != (before := [group.read().nr_periods for group in groups]):
        parts.append(collect(hooks, 0.4))
    return np.concatenate(parts)


def check_against_cpu_stat(records: NDArray[np.void], groups: list[Group]) -> None:
    for group in groups:
        mine, now = records[records["id"] == cgroup_id(group)], group.read()
        # Each record continues where the one before it ended, so none is missing.
        np.testing.assert_array_equal((mine["nr_periods"] + mine["elapsed"])[:-1], mine["nr_periods"][1:])
        assert mine["nr_periods"][0] + mine["elapsed"].sum() == now.nr_periods
        throttled = int((mine["throttled"] * mine["elapsed"]).sum())
        # A run queue may be throttled between our look and the kernel's own.
        assert throttled == pytest.approx(now.nr_throttled - mine["nr_throttled"][0], rel=0.02, abs=1)


@pytest.mark.root
def test_records_equal_cpu_stat(hooks: Hooks, make: Callable[[str, float], Group]) -> None:
    groups = [make("small", 0.2), make("large", 0.6), make("bursty", 0.5)]
    before = [group.read() for group in groups]
    hooks.watch(map(cgroup_id, groups))
    busy = [start(group, script) for group, script in zip(groups, (BUSY, BUSY, BURSTS), strict=True)]
    records = collect(hooks, 6.0)
    end(busy)
    records = np.concatenate([records, settled(hooks, groups)])

    check_against_cpu_stat(records, groups)
    for group, earlier in zip(groups, before, strict=True):
        mine = records[records["id"] == cgroup_id(group)]
        used_s = mine["used_ns"].sum() / 1e9
        # Up to a slice of 5 ms per CPU is taken from the pool and not used up.
        actual_s = (group.read().cpu_ns - earlier.cpu_ns) / 1e9
        assert used_s == pytest.approx(actual_s, rel=0.02, abs=0.015)
        assert (mine["unused_ns"] <= mine["quota_ns"]).all()
    assert hooks.lost() == 0


@pytest.mark.root
def test_bcc_and_libbpf_report_equal_records_of_the_same_periods(
    hooks: Hooks, make: Callable[[str, float], Group]
) -> None:
    """Both loaders watch the same groups at the same time. bcc's import and compilation take half a minute
    here."""
    installed, reason = bcc_loader.available()
    if not installed:
        pytest.skip(reason)
    groups = [make("small", 0.2), make("bursty", 0.5)]
    with Hooks(bcc_loader.by_bcc) as other:
        for loaded in (hooks, other):
            loaded.watch(map(cgroup_id, groups))
        busy = [start(group, script) for group, script in zip(groups, (BUSY, BURSTS), strict=True)]
        time.sleep(5.0)
        end(busy)
        mine, theirs = (
            {(int(record["id"]), int(record["nr_periods"])): record for record in loaded.read().periods}
            for loaded in (hooks, other)
        )
        # A period may end between the two readings.
        both = mine.keys() & theirs.keys()
        assert len(both) >= max(50, len(mine) - 4, len(theirs) - 4)
        for field in ("quota_ns", "nr_throttled", "throttled", "unused_ns", "used_ns", "elapsed"):
            equal = np.mean([mine[period][field] == theirs[period][field] for period in both])
            # Between the two programs another CPU may take its slice from the pool.
            assert equal == 1 if field in ("quota_ns", "nr_throttled") else equal > 0.97, field
        assert other.overhead().keys() == hooks.overhead().keys()
        assert other.lost() == hooks.lost() == 0


@pytest.mark.root
def test_quota_writes_do_not_hide_what_was_used(hooks: Hooks, make: Callable[[str, float], Group]) -> None:
    group = make("written", 0.3)
    before = group.read()
    hooks.watch([cgroup_id(group)])
    busy = start(group, BUSY)
    parts = []
    for step in range(30):
        parts.append(collect(hooks, 0.13))
        group.set_cpu_quota(0.2 + 0.1 * (step % 3))
    end([busy])
    records = np.concatenate([*parts, settled(hooks, [group])])

    actual_s = (group.read().cpu_ns - before.cpu_ns) / 1e9
    used_s = records["used_ns"].sum() / 1e9
    plain_s = (records["quota_ns"] - records["unused_ns"]).sum() / 1e9
    # A write in mid-period refills the pool: without counting that, the use looks smaller. Not exact, because
    # the write also forgets what CPUs had taken or overdrawn (tg_set_cfs_bandwidth: runtime_remaining = 0);
    # and a CPU that was away for a while, as those of a VM on a busy machine are, has overdrawn much.
    print(f"\nused {actual_s:.3f} s; by the hooks {used_s:.3f} s, quota less unused {plain_s:.3f} s")
    assert abs(used_s - actual_s) < abs(plain_s - actual_s)


@pytest.mark.root
@pytest.mark.slow
def test_none_of_a_hundred_containers_is_lost(hooks: Hooks, make: Callable[[str, float], Group]) -> None:
    groups = [make(f"c{number}", 0.01) for number in range(100)]
    hooks.watch(map(cgroup_id, groups))
    # One shell that forks: a hundred forks of this process would take minutes under emulation.
    script = f"for d; do (for f in $d; do echo 0 >$f/cgroup.procs; done; {BUSY}) & done; wait"
    folders = [" ".join(map(str, group.directories)) for group in groups]
    busy = subprocess.Popen(["/bin/sh", "-c", script, "sh", *folders], start_new_session=True)
    records = collect(hooks, 10.0)
    os.killpg(busy.pid, signal.SIGKILL)
    busy.wait()
    records = np.concatenate([records, settled(hooks, groups)])

    check_against_cpu_stat(records, groups)
    assert hooks.lost() == 0
    print(f"\n{len(records)} records of {len(groups)} containers, {records['elapsed'].sum()} periods, 0 lost")
    for name, cost in hooks.overhead().items():
        if cost.runs:
            print(f"overhead {name}: {cost.time_ns / cost.runs:.0f} ns each, {cost.runs} runs")
    assert hooks.overhead()["sched_cfs_period_timer"].runs >= len(records)


@pytest.mark.root
def test_memory_pressure_is_reported_before_the_kill(
    hooks: Hooks, make: Callable[[str, float], Group]
) -> None:
    group = make("eater", 1.0)
    group.set_memory_limit(20 * MIB)
    memory = cgroup_id(group, "memory.stat")
    hooks.watch([memory])
    # Anonymous memory, a megabyte at a time, in a program that needs little else.
    eater = start(group, "x=; while :; do x=$x$(head -c 1000000 /dev/zero | tr '\\0' x); done")
    assert eater.wait(timeout=PATIENCE_S) != 0

    seen = hooks.read().pressures
    assert set(seen["id"]) == {memory}
    first, kill = seen[0], seen[seen["kind"] == KILL][0]
    assert first["kind"] == UNDER_OOM
    assert first["at_ns"] < kill["at_ns"]
    assert first["limit_pages"] * os.sysconf("SC_PAGE_SIZE") == 20 * MIB
    assert kill["pid"] in {eater.pid, *seen["pid"]}
    print(f"\nfrom limit hit to kill: {(int(kill['at_ns']) - int(first['at_ns'])) / 1e6:.2f} ms")


@pytest.mark.root
def test_only_what_is_watched_is_reported(hooks: Hooks, make: Callable[[str, float], Group]) -> None:
    watched, other = make("watched", 0.2), make("other", 0.2)
    hooks.watch([cgroup_id(watched)])
    busy = [start(group, BUSY) for group in (watched, other)]
    records = collect(hooks, 0.5)
    hooks.unwatch([cgroup_id(watched), 12345])
    hooks.read()
    assert len(collect(hooks, 0.3)) == 0
    end(busy)
    assert set(records["id"]) == {cgroup_id(watched)}


@pytest.mark.skipif(find_library("bpf") is None, reason="libbpf is not installed (make system-vm)")
def test_a_missing_object_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"opening .*missing\.o was refused"):
        Hooks(lambda: by_libbpf(tmp_path / "missing.o"))
