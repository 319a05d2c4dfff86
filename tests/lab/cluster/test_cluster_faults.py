from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from lab.cluster.input import FaultsInput
from lab.cluster.run.runner import DAY_S, traced_downtime
from twinbed import ScenarioError

TRACE = (
    "node,event_time_days,event,level,fault_class,desc\n"
    "n1,1.0,fault_start,Hardware Failure,GPU,Lost\n"
    "n2,2.0,fault_start,Hardware Failure,NIC,Error\n"
    "n3,2.5,fault_start,Other Failure,Stress Test Failure,Unknown\n"
    "n1,3.0,fault_end,Hardware Failure,GPU,Lost\n"
    "n3,3.5,fault_end,Other Failure,Stress Test Failure,Unknown\n"
    "n2,4.0,fault_end,Hardware Failure,NIC,Error\n"
    "n1,6.0,fault_start,Hardware Failure,GPU,Lost\n"
)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "fault_events.csv"
    path.write_text(TRACE)
    return str(path)


def test_a_stretch_of_the_trace_becomes_times_in_which_servers_are_down(trace: str) -> None:
    given = FaultsInput(trace=trace, from_day=1.5, begin_s=100.0, end_s=100.0 + 3 * DAY_S)
    down = traced_downtime(given, 400, 0)
    # Of day 1.5 to 4.5: one server is out of order from the begin, to day 3; the other from 2 to 4. People's
    # stress test does not count, and the fault of day 6 comes later.
    begins = [(at - 100) / DAY_S for at in down.begin_s]
    assert begins == pytest.approx([0.0, 0.5])
    assert [(at - 100) / DAY_S for at in down.end_s] == pytest.approx([1.5, 2.5])
    assert len(set(down.server.tolist())) == 2


def test_a_fault_without_an_end_lasts_to_the_end_of_the_trace(trace: str) -> None:
    down = traced_downtime(FaultsInput(trace=trace, from_day=5.0), 400, 0)
    assert down.end_s.tolist() == pytest.approx([(348 - 5) * DAY_S])


def test_what_the_trace_cannot_tell_is_refused(trace: str) -> None:
    with pytest.raises(ScenarioError, match="it has 400 servers, the cluster 401"):
        traced_downtime(FaultsInput(trace=trace), 401, 0)
    with pytest.raises(ScenarioError, match="the trace ends on day 348"):
        traced_downtime(FaultsInput(trace=trace, from_day=348.0), 1, 0)
    with pytest.raises(ValidationError, match="give one of per_server_day and trace"):
        FaultsInput(trace=trace, per_server_day=1.0)
