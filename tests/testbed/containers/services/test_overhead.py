"""The program's own cost is measured where it arises."""

from __future__ import annotations

from testbed.containers.services.overhead import measure


def test_a_visit_and_a_call_cost_some_cpu() -> None:
    overhead = measure(requests=20, rounds=1, concurrency=2)
    for cost_s in (overhead.visit_s, overhead.call_s, overhead.parallel_call_s, overhead.wait_s):
        assert 0 < cost_s < 1
