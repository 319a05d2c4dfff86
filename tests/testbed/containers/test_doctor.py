"""The doctor's findings, on this machine and on one that lacks everything."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from testbed.containers import doctor
from testbed.containers.cgroup import drivers
from testbed.containers.cgroup.drivers import V1, V2
from testbed.containers.doctor import Finding, can_run, examine
from twinbed import BackendError


def by_feature(findings: tuple[Finding, ...]) -> dict[str, Finding]:
    named = {finding.feature: finding for finding in findings}
    assert len(named) == len(findings)
    return named


@pytest.mark.root
def test_this_machine_can_run_containers_and_nothing_is_left(driver: V1 | V2) -> None:
    findings = examine()
    found = by_feature(findings)
    assert can_run(findings)
    assert found["cgroups"].found.startswith(f"v{driver.version}: cpu, memory at /")
    assert {found[each].status for each in ("CPU quota", "memory limit", "OOM trap", "quota write")} == {"ok"}
    assert " µs" in found["quota write"].found
    assert not [each for each in driver.mounts for _ in each.glob(f"**/run-{os.getpid()}-*/doctor")]


def test_every_finding_that_is_not_ok_has_a_cure_and_says_what_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> V1:
        raise BackendError("/sys/fs/cgroup/cpu: no permission to make a cgroup; run it as root")

    monkeypatch.setattr(drivers, "detect", refuse)
    monkeypatch.setattr(shutil, "which", lambda name, **more: None)
    findings = examine()
    found = by_feature(findings)
    assert not can_run(findings)
    assert found["cgroups"].status == "not allowed"
    assert found["cgroups"].found == "/sys/fs/cgroup/cpu: no permission to make a cgroup"
    assert found["runc"] == Finding(
        "runc", "missing", "not installed", found["runc"].meaning, "sudo apt install runc"
    )
    for finding in findings:
        assert finding.meaning
        assert (finding.status == "ok") == (finding.cure == ""), finding


def test_the_same_features_are_reported_whatever_is_missing(
    monkeypatch: pytest.MonkeyPatch, cgroups: None
) -> None:
    here = set(by_feature(examine()))
    monkeypatch.setattr(
        doctor, "_hierarchy", lambda: (None, Finding("cgroups", "missing", "none", "all", "x"))
    )
    assert set(by_feature(examine())) == here


@pytest.mark.root
def test_a_kernel_without_burst_is_told_apart_from_a_refusal(
    driver: V1 | V2, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: "burst" not in path.name and real(path))
    found = by_feature(examine())["CPU burst"]
    assert (found.status, found.cure) == (
        "missing",
        "boot a newer kernel: sudo apt install linux-image-amd64",
    )
