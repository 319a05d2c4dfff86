"""Published fault totals, and StepFun's trace as counts and repairs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from traces.fault_rates import LLAMA3, NO_FAULT, PARTS, STEPFUN, per_gpu_s, read_downtimes
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


def test_downtimes_leave_out_what_people_did_and_last_to_the_end_without_one(tmp_path: Path) -> None:
    (tmp_path / "fault_events.csv").write_text(HEADER + ROWS)
    downtimes = read_downtimes(tmp_path, servers=10, days=5.0)
    assert [times.tolist() for times in downtimes[:3]] == [[[1.0, 1.5]], [[2.0, 5.0]], [[3.0, 5.0]]]
    assert [times.shape for times in downtimes[3:]] == [(0, 2)] * 7


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
        read_downtimes(path, servers=10, days=5.0)


def test_stepfun_s_trace_as_published(public_data: Callable[[str], Path]) -> None:
    folder = public_data("stepfun_gpu_fault_trace")
    raw = pd.read_csv(folder / "fault_events.csv")
    starts = raw[(raw["event"] == "fault_start") & ~raw["fault_class"].isin(NO_FAULT)]
    parts = starts["fault_class"].map({"Parameter Plane Cable": "link", "NIC": "nic"}).fillna("other")
    assert parts.value_counts().to_dict() == STEPFUN.counts
    downtimes = read_downtimes(folder)
    assert len(downtimes) * 8 == STEPFUN.gpus
    assert sum(map(len, downtimes)) == len(starts)
    assert all((times[:, 0] <= times[:, 1]).all() for times in downtimes)
