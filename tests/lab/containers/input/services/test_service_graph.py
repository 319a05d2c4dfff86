"""Applications compiled to the twin's arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from control.services import Draw
from lab.containers.input.services.application import build_app
from lab.containers.input.services.graph import compile_graph, mean_cores, visits_per_request
from tests.lab.containers.input.services.app_texts import acyclic_apps, two_services


def csr_is_sound(first: np.ndarray, owners: int, total: int) -> bool:
    ends = bool(first[0] == 0 and first[-1] == total)
    return first.dtype == np.int64 and len(first) == owners + 1 and ends and bool((np.diff(first) >= 0).all())


def inside(index: np.ndarray, count: int, lowest: int = 0) -> bool:
    return index.dtype == np.int64 and bool(((index >= lowest) & (index < count)).all())


@pytest.mark.slow
@settings(max_examples=60)
@given(acyclic_apps())
def test_any_acyclic_application_compiles_to_consistent_arrays(raw):
    app = build_app(raw)
    compiled = compile_graph(app)
    graph = compiled.graph
    services, handlers, calls = len(graph.services), len(graph.handlers), len(graph.call_handler)
    stages = len(graph.first_call) - 1
    assert csr_is_sound(graph.first_container, services, len(compiled.names))
    assert csr_is_sound(graph.first_stage, handlers, stages)
    assert csr_is_sound(graph.first_call, stages, calls)
    assert (np.diff(graph.first_container) >= 1).all()
    assert (np.diff(graph.first_call) >= 1).all()
    assert inside(graph.handler_service, services)
    assert inside(graph.call_handler, handlers)
    assert inside(graph.request_handler, handlers)
    assert inside(graph.pool, len(graph.pool_connections), lowest=-1)
    assert len(set(compiled.names)) == len(compiled.names)
    for each in ("workers", "queue", "base_bytes", "request_bytes", "cache_bytes", "cache_request_bytes"):
        array = getattr(graph, each)
        assert (array.dtype, array.shape) == (np.int64, (len(compiled.names),))
        assert (array >= 0).all()
    for each in ("probability", "timeout_s", "backoff_s", "network_s"):
        array = getattr(graph, each)
        assert (array.dtype, array.shape) == (np.float64, (calls,))
        assert (array >= 0).all()
    assert (graph.draw.dtype, graph.mean_s.dtype, graph.cv.dtype) == (np.uint8, np.float64, np.float64)
    assert len(graph.draw) == len(graph.mean_s) == len(graph.cv) == handlers
    assert len(compiled.threads) == len(compiled.names)
    assert len(compiled.weights) == len(graph.request_names) == len(app.requests)
    # Every CPU second that the mix demands is some container's.
    work_s = float(visits_per_request(compiled) @ graph.mean_s)
    assert mean_cores(compiled, 10.0).sum() == pytest.approx(10.0 * work_s)


def shop() -> dict:
    return two_services(
        network_s=0.001,
        defaults={"timeout_s": 2.0, "retries": 3},
        services={
            "web": {
                "replicas": 2,
                "threads": 4,
                "connections": {"db": 7},
                "handlers": {
                    "page": {
                        "cpu_ms": 3.0,
                        "calls": [
                            {"call": "db.find", "times": 2},
                            ["ads.get", {"call": "db.find", "probability": 0.5, "timeout_s": None}],
                        ],
                    },
                    "home": {"cpu_ms": 1.0, "distribution": "fixed", "calls": ["web.page"]},
                },
            },
            "ads": {
                "retries": 1,
                "memory": {"base_mib": 2, "request_kib": 3, "cache_mib": 1, "cache_request_kib": 0.5},
                "handlers": {"get": {"cpu_ms": 0.5, "distribution": "exponential", "calls": ["db.find"]}},
            },
            "db": {"handlers": {"find": {"cpu_ms": 0.25, "cv": 2.0}}},
        },
        requests={"page": {"handler": "web.page", "weight": 3}, "home": {"handler": "web.home"}},
    )


def test_a_small_shop_becomes_the_arrays_that_it_reads_as():
    compiled = compile_graph(build_app(shop()), cpu_scale=2.0)
    graph = compiled.graph
    assert compiled.names == ("web-1", "web-2", "ads", "db")
    assert graph.handlers == ("web.page", "web.home", "ads.get", "db.find")
    assert graph.handler_service.tolist() == [0, 0, 1, 2]
    assert graph.first_container.tolist() == [0, 2, 3, 4]
    assert graph.draw.tolist() == [Draw.LOGNORMAL, Draw.FIXED, Draw.EXPONENTIAL, Draw.LOGNORMAL]
    assert graph.mean_s.tolist() == [0.006, 0.002, 0.001, 0.0005]
    assert graph.first_stage.tolist() == [0, 3, 4, 5, 5]
    assert graph.first_call.tolist() == [0, 1, 2, 4, 5, 6]
    assert graph.call_handler.tolist() == [3, 3, 2, 3, 0, 3]
    assert graph.probability.tolist() == [1, 1, 1, 0.5, 1, 1]
    assert graph.timeout_s.tolist() == [2, 2, 2, np.inf, 2, 2]
    assert graph.retries.tolist() == [3, 3, 3, 3, 3, 1]
    assert graph.pool.tolist() == [0, 0, -1, 0, -1, -1]
    assert graph.pool_connections.tolist() == [7]
    assert graph.base_bytes.tolist() == [64 * 2**20] * 2 + [2 * 2**20, 64 * 2**20]
    assert graph.cache_request_bytes.tolist() == [0, 0, 512, 0]
    assert graph.request_handler.tolist() == [0, 1]
    assert compiled.threads.tolist() == [4, 4, 8, 8]
    assert compiled.weights.tolist() == [3, 1]
    assert (graph.network_s == 0.001).all()


def test_demand_follows_the_mix_the_calls_and_the_replicas():
    compiled = compile_graph(build_app(shop()))
    # Every request visits web.page once (home by a call); a page finds 2 + 0.5 + 1 (by ads) times.
    assert visits_per_request(compiled).tolist() == [1.0, 0.25, 1.0, 3.5]
    web_s = 0.003 + 0.25 * 0.001
    assert np.allclose(mean_cores(compiled, 100.0), [50 * web_s, 50 * web_s, 0.05, 100 * 3.5 * 0.00025])
