"""Spans come from datagrams that anybody on this machine may send, in any order."""

from __future__ import annotations

import json

import numpy as np

from testbed.containers.load.plan import LoadPlan
from testbed.containers.load.tracing import Tracing


def tracing(spans_wanted: int) -> Tracing:
    at_s = np.arange(100) * 0.1
    plan = LoadPlan(at_s, np.zeros(100, np.int64), (("http://h:1/x",),), 10.0, 0, 0, 1.0, 5.0, spans_wanted)
    return Tracing(plan)


def test_as_many_requests_are_traced_as_are_wanted_of_an_interval() -> None:
    assert sum(map(tracing(10).begin, range(100))) == 20
    assert not any(map(tracing(0).begin, range(100)))


def test_callers_come_first_and_calls_for_nobody_are_left_out() -> None:
    told = tracing(1000)
    told.begin(7)
    told.begin(8)
    for calls in ([["7.1.0", 12, 30, 40]], [["7.0", 11, 5, 9], ["7.1", 11, 20, 50]], [["7.2.0", 12, 1, 2]]):
        told.datagram_received(json.dumps(calls).encode(), None)
    told.answered(7, 10, 0, 60)
    told.forget(8)
    spans = told.window(0, 10)
    assert spans.request.tolist() == [7] * 4
    assert spans.parent.tolist() == [-1, 0, 0, 2]
    assert spans.owner.tolist() == [0, 1, 1, 2]
    assert np.allclose(spans.end_s, np.array([60, 9, 50, 40]) * 1e-9)
    assert len(told.window(0, 10).request) == 0


def test_what_is_no_span_is_ignored() -> None:
    told = tracing(1000)
    told.begin(0)
    for data in (
        b"\xff",
        b"{}",
        b"7",
        b'[["0.x", 1, 2, 3]]',
        b"[[1]]",
        b'[["", 1, 2, 3]]',
        b'[["9.0", 1, 2, 3]]',
        b'[["0.0", 1, Infinity, 3]]',
        b'[["0.0", 100000000000000000000, 2, 3]]',
        b'[["0.0", 1, -2, 3]]',
        b"[" * 60_000,
    ):
        told.datagram_received(data, None)
    told.answered(0, 10, 0, 1)
    assert told.window(0, 10).request.tolist() == [0]
