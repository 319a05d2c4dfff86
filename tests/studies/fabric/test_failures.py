"""The page about failures: its waits, and what it says of them."""

from __future__ import annotations

import numpy as np

from lab.charts.fabric import by_fault_length
from lab.runs.page import svg
from studies.fabric import failures
from studies.fabric.published import Row


def test_the_library_helps_only_past_the_queue_pair_s_error() -> None:
    waits = failures.waited()
    today = waits[waits["nccl"] == "2.30.7"].set_index(["scheme", "fault_s"])["wait_s"]
    assert today["nccl-failover", 20.0] == today["none", 20.0] > 20
    assert np.isnan(today["none", 65.0])
    assert 59 < today["nccl-failover", 65.0] < 60
    assert today["thorn", 20.0] < 0.5
    before = waits[waits["nccl"] == "2.18.1"].set_index(["scheme", "fault_s"])["wait_s"]
    assert np.isnan(before["nccl-recovery", 65.0])
    assert svg(by_fault_length(waits)).startswith("<svg")
    text = failures.document(waits, [Row("R1", "a figure", "1", 1.2, 0.9, 1.1, "it rains")], [])
    assert "| 2.30.7 | none |" in text
    assert "0 are within" in text
    assert "- R1, a figure: it rains." in text
