"""What visitors share is bounded by default and by options, and said to them."""

import os

import pytest

from lab.cli.main import call
from lab.explorer import limits
from twinbed import ScenarioError


def test_one_cpu_stays_free_and_there_is_always_a_worker(monkeypatch):
    for cpus, workers in ((1, 1), (2, 1), (8, 7)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid, cpus=cpus: set(range(cpus)))
        assert limits.of({limits.MEMORY_GB: "16"}).workers == workers


def test_the_workers_share_the_memory():
    shared = limits.of({limits.WORKERS: "4", limits.MEMORY_GB: "8"})
    assert shared == limits.Limits(workers=4, memory_bytes=2_000_000_000)


@pytest.mark.parametrize(("workers", "memory_gb"), [("0", "8"), ("8", "2"), ("1", "0.1")])
def test_limits_that_leave_a_worker_too_little_are_refused(workers, memory_gb):
    with pytest.raises(ScenarioError, match=f"--workers {workers} with --memory-gb {memory_gb}"):
        limits.of({limits.WORKERS: workers, limits.MEMORY_GB: memory_gb})


def test_the_options_reach_the_server_or_are_refused_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr("lab.explorer.server.serve", lambda _port: None)
    for name in (limits.WORKERS, limits.MEMORY_GB):
        monkeypatch.setenv(name, "")
    assert call(["explore", "--workers", "3", "--memory-gb", "6"]) == 0
    assert limits.of(os.environ) == limits.Limits(3, 2_000_000_000)
    capsys.readouterr()
    assert call(["explore", "--workers", "3", "--memory-gb", "0.3"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_visitors_read_the_limits_beside_the_button(open_app):
    said = open_app().button(key="run").help
    assert "one question at a time" in said
    assert f"run {limits.shared().workers} at once" in said
    assert "8 more wait" in said
