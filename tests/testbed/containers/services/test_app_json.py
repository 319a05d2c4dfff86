"""The JSON form of service graphs: everything comes back, and what is wrong is named by its key."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.services import Call, Draw, Handler, Memory, Service, ServiceApp
from testbed.containers.services.app_json import from_plain, to_plain
from twinbed import ScenarioError

_seconds = st.floats(0, 1e3)
_counts = st.integers(0, 10**9)


@st.composite
def apps(draw: st.DrawFn) -> ServiceApp:
    """Services s0, s1, …, each of which calls only later ones."""
    count = draw(st.integers(1, 4))
    services = {}
    for index in range(count):
        later = [f"s{each}" for each in range(index + 1, count)]
        call = st.builds(
            Call,
            handler=st.sampled_from([f"{name}.h" for name in later] or ["none"]),
            probability=st.floats(0.001, 1),
            timeout_s=st.none() | st.floats(0.001, 1e3),
            retries=_counts,
            backoff_s=_seconds,
        )
        stages = st.lists(st.lists(call, max_size=3).map(tuple), max_size=3) if later else st.just([])
        handler = st.builds(
            Handler,
            mean_s=_seconds,
            draw=st.sampled_from(Draw),
            cv=_seconds,
            stages=stages.map(tuple),
        )
        services[f"s{index}"] = Service(
            handlers={"h": draw(handler)},
            replicas=draw(st.integers(1, 3)),
            threads=draw(st.floats(0.1, 64)),
            workers=draw(st.integers(1, 10**6)),
            queue=draw(_counts),
            memory=draw(st.builds(Memory, _counts, _counts, _counts, _counts)),
            connections=draw(st.dictionaries(st.sampled_from(later), st.integers(1, 99))) if later else {},
        )
    return ServiceApp("app", services, {"ask": "s0.h"})


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(apps())
def test_an_application_comes_back_from_its_json(app: ServiceApp) -> None:
    assert from_plain(json.loads(json.dumps(to_plain(app)))) == app


def _plain() -> dict[str, Any]:
    services = {
        "a": Service({"x": Handler(0.001, stages=((Call("b.y"),),))}),
        "b": Service({"y": Handler(0.001)}, replicas=2),
    }
    return to_plain(ServiceApp("shop", services, {"ask": "a.x"}))


def _broken(*path: Any, value: Any = None, remove: bool = False) -> str:
    plain = _plain()
    place = plain
    for key in path[:-1]:
        place = place[key]
    if remove:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(plain)


_CALL = ("services", "a", "handlers", "x", "stages", 0, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "app.json: top: expected keys and values"),
        (_broken("services", "a", "workers", remove=True), "app.json: services.a.workers: missing"),
        (_broken("services", "a", "worker", value=1), "app.json: services.a.worker: no such key"),
        (_broken("services", "a", "queue", value=1.5), "services.a.queue: expected a whole number"),
        (_broken("services", "a", "queue", value=-1), "services.a.queue: -1, expected at least 0"),
        (_broken("services", "a", "workers", value=0), "services.a.workers: 0, expected at least 1"),
        (_broken("services", "a", "threads", value=0), "services.a.threads: 0, expected more than 0"),
        (_broken("services", "a", "memory", value=3), "services.a.memory: expected keys and values"),
        (_broken("services", "a", "connections", value={"b": 0}), "services.a.connections.b: 0, expected"),
        (_broken("services", "a", "connections", value={"c": 1}), "connections.c: no service is called"),
        (_broken("services", "a", "handlers", "x", "draw", value="normal"), "x.draw: 'normal' is not one of"),
        (_broken("services", "a", "handlers", "x", "draw", value=[]), "x.draw: [] is not one of"),
        (_broken(*_CALL, "probability", value=2), "x.stages.0.0.probability: 2, expected at most 1"),
        (_broken(*_CALL, "probability", value=0), "x.stages.0.0.probability: 0, expected more than 0"),
        (_broken(*_CALL, "retries", value=-1), "x.stages.0.0.retries: -1, expected at least 0"),
        (_broken(*_CALL, "timeout_s", value=0), "x.stages.0.0.timeout_s: 0, expected more than 0"),
        (_broken(*_CALL, "timeout_s", value="soon"), "x.stages.0.0.timeout_s: expected a number or null"),
        (_broken(*_CALL, "handler", value="b.z"), "x.stages.0.0.handler: no handler is called 'b.z'"),
        (_broken(*_CALL, "handler", value="a.x"), "calls go round in a cycle: a.x → a.x"),
        (_broken("requests", "ask", value="z"), "requests.ask: no handler is called 'z'"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        from_plain(json.loads(text), "app.json")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_replicas_are_numbered() -> None:
    assert from_plain(json.loads(json.dumps(_plain()))).containers() == {
        "a": ("a", 0),
        "b-1": ("b", 0),
        "b-2": ("b", 1),
    }
