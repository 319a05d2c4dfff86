"""Spans that the engine writes: by hand, bounded, and without a change of what happens."""

import numpy as np
import pytest

from control.paths import Spans, critical_paths
from control.services import Draw, RequestStatus
from tests.twin.containers.requests.request_world import Call, Handler, Service, chain, run, world
from twin.containers.requests import tracing
from twin.containers.requests.model import Client


def rows(log):
    spans = log.spans
    columns = (spans.request, spans.parent, spans.service)
    times = (spans.start_s, spans.end_s, spans.work_s)
    return [
        (*(int(value) for value in row[:3]), *(round(float(value), 9) for value in row[3:]))
        for row in zip(*columns, *times, strict=True)
    ]


def test_stages_make_spans_with_their_callers():
    # a calls b and c in parallel, then b again, and works 1 ms before, between and after.
    services = [
        Service({"a": Handler(0.003, [[Call("b"), Call("c")], [Call("b")]])}),
        Service({"b": Handler(0.01)}),
        Service({"c": Handler(0.03)}),
    ]
    assert rows(run(world(services, [0.0]))) == [
        (0, -1, 0, 0.0, 0.043, 0.003),
        (0, 0, 1, 0.032, 0.042, 0.01),
        (0, 0, 2, 0.001, 0.031, 0.03),
        (0, 0, 1, 0.001, 0.011, 0.01),
    ]


def test_an_attempt_that_timed_out_has_a_span_and_its_orphan_has_none():
    # Two visits of 15 ms share b's CPU, so the first attempt of a's call is given up at 20 ms. Both are done
    # at 30 ms. The call backs off for 20 ms and is made again at 40 ms, alone.
    call = Call("b", timeout_s=0.02, retries=1, backoff_s=0.02)
    services = [Service({"a": Handler(0.0, [[call]])}), Service({"b": Handler(0.015)})]
    log = run(world(services, [0.0, 0.0], ["a", "b"], np.array([0, 1])))
    assert rows(log) == [
        (0, -1, 0, 0.0, 0.055, 0.0),
        (0, 0, 1, 0.02, 0.055, 0.015),
        (0, 0, 1, 0.0, 0.02, 0.0),
        (1, -1, 1, 0.0, 0.03, 0.015),
    ]


def test_a_request_that_fails_has_no_spans():
    log = run(world(chain([0.0, 0.05]), [0.0, 0.2], client=Client(timeout_s=0.04)))
    assert log.status.tolist() == [RequestStatus.TIMED_OUT] * 2
    assert len(log.spans.request) == 0


def busy(count=3_000):
    at_s = np.arange(count) * 0.01
    return world(chain([0.004, 0.004, 0.003], Draw.EXPONENTIAL), at_s, periods=count // 10 + 10)


def test_the_slowest_and_the_drawn_are_kept_and_no_other(monkeypatch):
    monkeypatch.setattr(tracing, "DRAWN", 20)
    monkeypatch.setattr(tracing, "SLOWEST", 30)
    log = run(busy())
    kept, place = np.unique(log.spans.request, return_index=True)
    drawn = kept[log.spans.drawn[place]]
    order = np.argsort(-log.latency_s, kind="stable")
    slowest = order[~np.isin(order, drawn)][:30]
    assert len(drawn) == 20
    assert set(kept) == set(drawn) | set(slowest)
    # Every kept request has the chain's three visits, and its root ends when the request does.
    assert np.bincount(log.spans.request)[kept].tolist() == [3] * len(kept)
    assert np.array_equal(log.spans.end_s[log.spans.parent < 0], log.end_s[kept])


def test_spans_change_nothing_else_and_no_room_loses_spans_only(monkeypatch):
    with_spans = run(busy())
    monkeypatch.setattr(tracing, "IN_FLIGHT", 4)
    monkeypatch.setattr(tracing, "DRAWN", 1)
    monkeypatch.setattr(tracing, "SLOWEST", 1)
    without = run(busy())
    assert without.spans.lost > 0
    assert with_spans.spans.lost == 0
    assert np.array_equal(with_spans.end_s, without.end_s)


def test_own_times_on_the_paths_add_up_to_what_clients_waited():
    log = run(busy(500))
    spans = log.spans
    paths = critical_paths(
        Spans(spans.request, spans.parent, spans.service, spans.start_s, spans.end_s, spans.work_s)
    )
    own = np.bincount(spans.request, weights=paths.own_s)
    # Clients have connections enough, so a request is sent when it is due.
    assert own == pytest.approx(log.latency_s, abs=1e-9)
    assert (paths.own_s - spans.work_s >= -1e-9).all()
