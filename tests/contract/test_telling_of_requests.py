"""What every backend with clients reports to an allocator that asks for spans: where requests spent their
time.

The cases assert facts that hold on any machine, and no times. CANNOT says which backend has no clients, and
why; such a case must fail there.
"""

from __future__ import annotations

import os
from itertools import pairwise

import numpy as np
import pytest

from control.allocator.firm import Firm, FirmSettings
from control.allocator.model import Decision, Reason, ServiceStats, slot
from control.paths import critical_paths
from lab.ask.scenario import build
from tests.contract.contract_backends import Backend, question

pytestmark = pytest.mark.slow

_NO_CLIENTS = "who attaches or drives containers elsewhere sees no requests of theirs"
_CASES = (
    "test_spans_say_who_was_asked_by_whom_and_when",
    "test_firm_gives_cpu_to_whom_requests_wait_for",
)
CANNOT = {
    (f"linux{which}-v{version}", case): _NO_CLIENTS
    for case in _CASES
    for which in ("-remote", "-podman")
    for version in (1, 2)
}
"""(backend, case) → why it cannot."""

MEMORY = {"base_mib": 32, "request_kib": 64}
APP = {
    "name": "two",
    "network_s": 0.0002,
    "services": {
        "front": {
            "memory": MEMORY,
            "handlers": {
                "page": {"cpu_ms": 1, "calls": [[{"call": "back.read"}, {"call": "back.read"}], "back.write"]}
            },
        },
        "back": {
            "memory": MEMORY,
            "handlers": {"read": {"cpu_ms": 4, "cv": 3}, "write": {"cpu_ms": 2, "cv": 1}},
        },
    },
    "requests": {"page": {"handler": "front.page", "weight": 1}},
}
# The sizes of reads differ so much that the times of `back` differ even on a busy machine, where all requests
# queue. Firm finds culprits by such differences.
SERVICES = {"app": "two", "arrivals": {"kind": "exponential", "rate_rps": 20}, "duration_s": 8, "hosts": 1}
FRONT, BACK = 0, 1


class Watched(Firm):
    """Firm, with the data that it received and its decisions."""

    def __init__(self, **settings: float) -> None:
        super().__init__(FirmSettings(window_s=1.5, room_s=30.0, spans_wanted=1000, **settings))
        self.told: list[ServiceStats] = []
        self.decided: list[Decision] = []

    def on_service(self, stats: ServiceStats) -> Decision:
        self.told.append(stats)
        self.decided.append(super().on_service(stats))
        return self.decided[-1]


def served(backend: Backend, allocator: Watched) -> Watched:
    raw = {
        "name": "case",
        "services": SERVICES,
        "host_cores": float(os.cpu_count() or 1),
        # There is room for each raise.
        "budget": {"cpu_cores": 16},
    }
    backend.serve(*question(build(raw | {"policies": ["firm"]}), APP), allocator)
    return allocator


def test_spans_say_who_was_asked_by_whom_and_when(backend: Backend) -> None:
    told = served(backend, Watched()).told

    assert len(told) >= 3
    assert all(stats.rate_rps[0] > 0 and stats.mix[0].tolist() == [1, 0, 0] for stats in told)
    assert all(later.at_s > earlier.at_s for earlier, later in pairwise(told))
    requests = [request for stats in told for request in np.unique(stats.spans.request).tolist()]
    assert len(requests) == len(set(requests)) >= 50
    for spans in (stats.spans for stats in told):
        root, caller = spans.parent < 0, spans.parent[spans.parent >= 0]
        assert (np.bincount(np.unique(spans.request, return_inverse=True)[1]) == 4).all()
        assert slot(spans.owner).tolist() == [FRONT, BACK, BACK, BACK] * root.sum()
        assert (spans.parent < np.arange(len(root))).all()
        assert (spans.start_s[~root] >= spans.start_s[caller]).all()
        assert (spans.end_s[~root] <= spans.end_s[caller]).all()
        assert (spans.end_s > spans.start_s).all()
        # The write is called when both reads have returned.
        start_s, end_s = (times.reshape(-1, 4)[:, 1:] for times in (spans.start_s, spans.end_s))
        assert (start_s.max(axis=1) >= np.sort(end_s, axis=1)[:, 1]).all()
        paths = critical_paths(spans)
        assert paths.on.reshape(-1, 4).sum(axis=1).tolist() == [3] * root.sum()


def test_firm_gives_cpu_to_whom_requests_wait_for(backend: Backend) -> None:
    firm = served(backend, Watched(slo_p99_s=0.001, initial_factor=1.2))

    raised = [
        ident
        for decision in firm.decided
        for ident, why in zip(decision.cpu.ids.tolist(), decision.cpu.reason.tolist(), strict=True)
        if why == Reason.CULPRIT
    ]
    assert BACK in slot(np.array(raised, np.int64)).tolist()
