"""The page about failures: its waits, and what it says of them."""

from __future__ import annotations

import numpy as np

from lab.charts.fabric import by_fault_length
from lab.fabric.input import PlanInput
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
    assert "Finding failures" not in text


def test_what_is_not_missed_needs_no_reason() -> None:
    assert list(failures._missed([Row("R1", "a figure", "1", 1.0, 0.9, 1.1)])) == []
    assert "a figure: not known." in list(failures._missed([Row("R1", "a figure", "1", 2.0, 0.9, 1.1)]))[1]


class _Fleet:
    """A stored run of a fleet, as far as the page reads it."""

    def __init__(self, policy: str, queue_gpu_h: float, **plan: object) -> None:
        whole = {"inspection": True, "cold": 1, "warm": 1, "switch_share": PlanInput().switch_share}
        spec = {**whole, "replica_groups": 0, "tiers": [1, 2], **plan}
        self.policy, self.manifest = policy, {"spec": {"fabric": {"fleet": {"plan": spec}}}}
        self.metrics = {
            "detect_gpu_h": 200e3, "replace_gpu_h": 100e3, "rework_gpu_h": 50e3, "queue_gpu_h": queue_gpu_h,
        }  # fmt: skip


def test_what_the_edge_costs_stands_beside_what_finding_failures_costs() -> None:
    runs = [_Fleet("none", 500e3), _Fleet("thorn", 0.0), _Fleet("none", 9e9, inspection=False)]
    (text,) = failures._edge(runs)
    assert "loses 500,000 GPU-hours" in text
    assert "300,000 to finding failures" in text
    assert list(failures._edge(runs[:1])) == []
