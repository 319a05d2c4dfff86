"""The load that follows arrays: it does the given CPU work and holds the given memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from testbed.containers.load.stress import NS, Demand, Memory, own_bytes
from testbed.containers.load.stress_scripts import StressScripts
from tests.patience import PATIENCE_S
from twinbed import ScenarioError

MIB = 1 << 20


def test_work_arrives_evenly_and_stops_with_the_script() -> None:
    begin_ns = time.monotonic_ns()
    demand = Demand([0.5, 0.0, 1.0], 0.1, begin_ns)
    at = [demand.arrived_s(begin_ns + round(periods * 0.1 * NS)) for periods in (-1, 0.5, 1, 2, 2.5, 3, 9)]

    assert at == pytest.approx([0, 0.025, 0.05, 0.05, 0.1, 0.15, 0.15])
    assert not demand.over(begin_ns + round(0.29 * NS))
    assert demand.over(begin_ns + round(0.31 * NS))


def test_what_was_done_outlives_the_process(tmp_path: Path) -> None:
    begin_ns = time.monotonic_ns() - 10 * NS
    before = Demand([1.0] * 100, 0.1, begin_ns, tmp_path / "done")
    first_s = before.backlog_s()
    after = Demand([1.0] * 100, 0.1, begin_ns, tmp_path / "done")

    # This process stands for its own successor, so its CPU time counts once more.
    assert after.backlog_s() <= first_s
    assert first_s == pytest.approx(10.0, abs=1.0)


def test_memory_grows_and_shrinks_to_what_is_wanted() -> None:
    base = own_bytes()
    memory = Memory(base + 64 * MIB)
    for wanted in (32, 64, 8):
        memory.hold(base + wanted * MIB)
        assert own_bytes() - base == pytest.approx(wanted * MIB, abs=4 * MIB)


@pytest.mark.slow
def test_a_script_by_itself_does_its_work_and_ends(tmp_path: Path) -> None:
    script = {
        "period_s": 0.1,
        "demand_cores": [0.2] * 10,
        "memory_bytes": [16 * MIB] * 10,
        "threads": 2,
        "begin": None,
        "ready": str(tmp_path / "ready"),
        "done": str(tmp_path / "done"),
    }
    (tmp_path / "script.json").write_text(json.dumps(script))
    subprocess.run(
        [sys.executable, "-m", "testbed.containers.load.stress", str(tmp_path / "script.json")],
        check=True,
        timeout=PATIENCE_S,
    )
    done_s = np.fromfile(tmp_path / "done")[0]

    # A busy machine may not have let it do everything.
    assert 0.0 < done_s <= 0.25
    assert (tmp_path / "ready").exists()


def test_containers_of_arrays(tmp_path: Path) -> None:
    present = np.ones((4, 2), np.bool_)
    present[0, 1] = present[3, 1] = False
    scripts = StressScripts(
        tmp_path, ["a", "b"], np.full((4, 2), 0.5), np.full((4, 2), MIB), threads=[1, 2], present=present
    )
    first, second = scripts.containers
    written = json.loads((tmp_path / "b.json").read_text())

    assert (first.begins_s, first.ends_s) == (0.0, None)
    assert (second.begins_s, second.ends_s) == pytest.approx((0.1, 0.3))
    assert written["demand_cores"] == [0.0, 0.5, 0.5, 0.0]
    assert written["threads"] == 2
    assert first.ready is not None
    assert not first.ready()
    assert not scripts.running()
    began_ns = scripts.start()
    assert scripts.running()
    assert int((tmp_path / "begin").read_text()) == began_ns


def test_arrays_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="2 containers"):
        StressScripts(tmp_path, ["a", "b"], np.zeros((4, 3)), np.zeros((4, 3), np.int64))
