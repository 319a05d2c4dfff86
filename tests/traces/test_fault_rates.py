"""Published fault totals, and StepFun's trace as counts and repairs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from traces.fault_rates import LLAMA3, NO_FAULT, PARTS, STEPFUN, per_gpu_s, read_stepfun
from twinbed import TraceError

HEADER = "node,event_time_days,event,level,fault_class,desc\n"
ROWS = (
    "n1,1.0,fault_start,Hardware Failure,NIC,Rnic Gid Error\n"
    "n1,1.5,fault_end,Hardware Failure,NIC,Rnic Gid Error\n"
    "n2,2.0,fault_start,Hardware Failure,Parameter Plane Cable,Link Down\n"
    "n3,2.0,fault_start,Other Failure,Stress Test Failure,Unknown Error\n"
    "n3,3.0,fault_start,Hardware Failure,GPU,GPU Lost\n"
)


def test_llama_3_s_interruptions_add_up_and_are_one_in_three_hours() -> None:
    assert sum(LLAMA3.counts.values()) == 419
    assert LLAMA3.counts["link"] / 419 == pytest.approx(0.084, abs=0.001)
    assert LLAMA3.counts["nic"] / 419 == pytest.approx(0.017, abs=0.001)
    per_s = sum(per_gpu_s(LLAMA3, part) for part in PARTS) * LLAMA3.gpus
    assert 1 / per_s / 3600 == pytest.approx(3.1, abs=0.05)


def test_a_trace_is_counted_by_part_with_the_repairs_that_ended(tmp_path: Path) -> None:
    (tmp_path / "fault_events.csv").write_text(HEADER + ROWS)
    counted = read_stepfun(tmp_path, servers=10, days=5.0)
    assert counted.counts == {"link": 1, "nic": 1, "other": 1}
    assert counted.repair_s["nic"].tolist() == [0.5 * 86_400]
    assert len(counted.repair_s["link"]) == len(counted.repair_s["other"]) == 0
    assert per_gpu_s(counted, "nic") == 1 / (80 * 5 * 86_400)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("n1,1.0,fault,Hardware Failure,NIC,x\n", "line 2, column event: "),
        ("n1,9.0,fault_start,Hardware Failure,NIC,x\n", "line 2, column event_time_days: expected 0 to 5"),
        (ROWS + "n1,2.0,fault_start,a,NIC,x\n", "line 7, column event_time_days: runs backwards"),
        ("".join(f"n{i},1.0,fault_start,a,NIC,x\n" for i in range(11)), "11 servers failed"),
    ],
)
def test_a_trace_that_is_not_one_is_refused(tmp_path: Path, rows: str, says: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + rows)
    with pytest.raises(TraceError, match=says):
        read_stepfun(path, servers=10, days=5.0)


def test_stepfun_s_trace_as_published(public_data: Callable[[str], Path]) -> None:
    folder = public_data("stepfun_gpu_fault_trace")
    counted = read_stepfun(folder)
    raw = pd.read_csv(folder / "fault_events.csv")
    starts = raw[(raw["event"] == "fault_start") & ~raw["fault_class"].isin(NO_FAULT)]
    assert sum(counted.counts.values()) == len(starts)
    assert counted.counts == STEPFUN.counts
    assert (counted.gpus, counted.duration_s) == (STEPFUN.gpus, STEPFUN.duration_s)
    assert {part: len(counted.repair_s[part]) for part in ("link", "nic")} == {"link": 33, "nic": 16}
    assert all(np.all(counted.repair_s[part] >= 0) for part in PARTS)
