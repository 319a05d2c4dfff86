"""Calibration on this machine's kernel: that it measures, not what."""

import time
from pathlib import Path

import pytest

from lab.containers.calibrate import limits, loop, measure, program
from lab.containers.calibrate.values import load_calibration, write
from testbed.containers.cgroup.drivers import detect
from tests.patience import PATIENCE_S

EXTENT = limits.Extent(writes=20, grants=10, burn_s=0.3, quotas_ms=(20,))


@pytest.mark.slow
@pytest.mark.root
def test_single_cgroups_give_distributions_and_shares(cgroups):
    driver = detect()
    writes = limits.quota_writes(driver, EXTENT)
    assert writes.n == 20
    assert 0 < writes.p50 <= writes.p99
    grants = limits.oom_grants(driver, EXTENT)
    assert grants.grants.n >= 5
    assert grants.kills == 0
    found = limits.throttling(driver, EXTENT, 1)
    assert set(found) == {"used_20ms_1t", "throttled_20ms_1t"}
    assert limits.burst(driver).value >= 0
    assert driver.sweep() == []


@pytest.mark.root
def test_programs_in_single_cgroups_have_neither_capabilities_nor_secrets(cgroups, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    show = (
        "import os, sys, time\n"
        "with open(sys.argv[1], 'w') as out: out.write(open('/proc/self/status').read() + str(os.environ))\n"
        "os.rename(sys.argv[1], sys.argv[1] + '.all'); time.sleep(300)"
    )
    driver, shown = detect(), tmp_path / "shown.all"
    with limits._group(driver, "shown") as group, limits._running(group, show, str(tmp_path / "shown")):
        deadline = time.monotonic() + PATIENCE_S
        while not shown.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    text = shown.read_text()
    assert "CapEff:\t0000000000000000" in text
    assert "CapBnd:\t0000000000000000" in text
    assert "NoNewPrivs:\t1" in text
    assert "AWS_SECRET_ACCESS_KEY" not in text


@pytest.mark.parametrize("run", [lambda: loop.run(2, 1.0), lambda: program.measure(1.0, print)])
def test_the_control_loops_commands_are_run_without_rights(run, monkeypatch):
    class Seen(Exception):  # noqa: N818 - it is no error
        pass

    def control(_containers, _applications, _allocator, settings, **_more):
        assert settings.identity is not None
        raise Seen

    monkeypatch.setattr("testbed.containers.host.loop.control", control)
    with pytest.raises(Seen):
        run()


@pytest.mark.root
@pytest.mark.slow
def test_a_whole_calibration_is_a_file_that_can_be_read(cgroups, tmp_path, monkeypatch):
    monkeypatch.setattr(measure.program.subject, "RATES_RPS", (4.0, 12.0))
    monkeypatch.setattr(measure.program, "LEAST_ANSWERED", 0.0)
    seen = []
    effort = measure.Effort(EXTENT, starts=2, loop_s=2.0, program_s=5.0)
    made = measure.calibrate("mine", effort, lambda step, fraction: seen.append(step))
    path = tmp_path / "mine.toml"
    path.write_text(write(made, measure.HEAD), encoding="utf-8")
    read = load_calibration(path)
    assert read.name == "mine"
    assert read.machine().restart_s > 0
    assert read.costs().base_bytes > 1 << 20
    assert bool(read.program["moves"].n) == Path("/proc/self/sched").exists()
    assert list(dict.fromkeys(seen)) == list(measure.STEPS)
