"""What the doctor says of a machine that lacks a fabric's programs or refuses them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from testbed.fabric import doctor, leftovers


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the doctor try, whoever runs the test."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(leftovers, "remove", lambda _: None)


def test_without_iproute2_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = doctor._try(doctor._NETEM)
    assert (found.status, found.found) == ("missing", "ip: not installed")
    assert "make system" in found.cure


def test_a_refused_namespace_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = subprocess.CompletedProcess([], 1, "", "Operation not permitted\n")
    monkeypatch.setattr(subprocess, "run", lambda *_given, **_more: refused)
    found = doctor._try(doctor._NETEM)
    assert found.status == "not allowed"
    assert found.found.endswith("refused (Operation not permitted)")
    assert found.cure == "run it as root: sudo twinbed testbed doctor"
