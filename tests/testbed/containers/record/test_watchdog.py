"""The watchdog of a recorder, where it cannot be started."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from testbed.containers import ownership
from testbed.containers.record.watchdog import watchdog


def test_a_watchdog_that_cannot_be_started_leaves_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(ownership, "RUN_ROOT", tmp_path / "twinbed")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(OSError, match="Cannot allocate"), watchdog():
        raise AssertionError("it began")
    assert not (tmp_path / "twinbed").exists()
