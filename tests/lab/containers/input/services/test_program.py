"""The two graphs made of an application, the twin's and the real one, say the same."""

from __future__ import annotations

import json

import numpy as np
import pytest

from control.services import ServiceApp
from lab.ask import shipped
from lab.containers.input.services.application import AppSpec, build_app, load_app
from lab.containers.input.services.graph import compile_graph, service_app
from testbed.containers.services.app_json import from_plain, to_plain

EVERYTHING = build_app(
    {
        "name": "everything",
        "defaults": {"timeout_s": 2, "retries": 1, "backoff_s": 0.1, "memory": {"base_mib": 10}},
        "services": {
            "a": {
                "replicas": 2,
                "threads": 1.5,
                "connections": {"b": 3},
                "memory": {"cache_mib": 1, "cache_request_kib": 2},
                "handlers": {
                    "x": {
                        "cpu_ms": 1,
                        "distribution": "exponential",
                        "calls": [
                            {"call": "b.y", "times": 2, "timeout_s": None},
                            [{"call": "b.y", "times": 2, "probability": 0.5}, {"call": "b.z", "retries": 0}],
                        ],
                    }
                },
            },
            "b": {"workers": 3, "queue": 4, "handlers": {"y": {"cpu_ms": 2}, "z": {"cpu_ms": 3}}},
        },
        "requests": {"ask": {"handler": "a.x"}, "look": {"handler": "b.z"}},
    }
)

APPS = [*map(load_app, shipped.names("application")), EVERYTHING]


@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)
@pytest.mark.parametrize("cpu_scale", [1.0, 0.25])
def test_the_twins_graph_and_the_real_one_say_the_same(app, cpu_scale):
    compiled, real = compile_graph(app, cpu_scale), service_app(app, cpu_scale)
    graph = compiled.graph
    assert tuple(real.services) == graph.services
    assert tuple(real.containers()) == compiled.names
    for index, (name, _) in enumerate(real.containers().values()):
        service = real.services[name]
        memory = service.memory
        assert service.threads == compiled.threads[index]
        assert (service.workers, service.queue) == (graph.workers[index], graph.queue[index])
        assert (memory.base_bytes, memory.request_bytes, memory.cache_bytes, memory.cache_request_bytes) == (
            graph.base_bytes[index],
            graph.request_bytes[index],
            graph.cache_bytes[index],
            graph.cache_request_bytes[index],
        )
    handlers = real.handlers()
    assert tuple(handlers) == graph.handlers
    np.testing.assert_allclose([each.mean_s for each in handlers.values()], graph.mean_s, rtol=1e-12)
    assert [each.cv for each in handlers.values()] == graph.cv.tolist()
    assert [each.draw for each in handlers.values()] == graph.draw.tolist()
    assert tuple(real.requests) == graph.request_names
    assert list(real.requests.values()) == [graph.handlers[each] for each in graph.request_handler]
    _check_calls(app, cpu_scale, real)


def _check_calls(app: AppSpec, cpu_scale: float, real: ServiceApp) -> None:
    """Stages, calls, their rules and their pools, in the twin's numbering."""
    graph = compile_graph(app, cpu_scale).graph
    stages, calls, pools = [0], [0], []
    rows = []
    for name, service in real.services.items():
        for handler in service.handlers.values():
            for stage in handler.stages:
                for call in stage:
                    timeout_s = float("inf") if call.timeout_s is None else call.timeout_s
                    number = graph.handlers.index(call.handler)
                    rows.append((number, call.probability, timeout_s, call.retries, call.backoff_s))
                    pools.append(service.connections.get(call.handler.partition(".")[0], 0))
                calls.append(len(rows))
            stages.append(len(calls) - 1)
        assert name in graph.services
    assert stages == graph.first_stage.tolist()
    assert calls == graph.first_call.tolist()
    of_the_twin = (graph.call_handler, graph.probability, graph.timeout_s, graph.retries, graph.backoff_s)
    assert rows == list(zip(*(each.tolist() for each in of_the_twin), strict=True))
    assert pools == [0 if pool < 0 else graph.pool_connections[pool] for pool in graph.pool]


@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)
def test_the_real_graph_comes_back_from_its_json(app):
    real = service_app(app)
    assert from_plain(json.loads(json.dumps(to_plain(real)))) == real
