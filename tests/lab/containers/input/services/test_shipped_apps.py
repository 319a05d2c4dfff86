"""The applications that come with twinbed: their size, their demands' derivation, their sanity."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lab.ask import shipped
from lab.containers.input.services.application import Call, load_app
from lab.containers.input.services.graph import compile_graph, mean_cores, visits_per_request

CONTAINERS = {"media_microservice": 32, "hipster_shop": 11, "train_ticket": 68, "teastore": 7}
WORK = {0.5, 1, 2, 4, 20, 60}
"""Multiples of a class's visit that the files' `assumptions` name."""
CLASSES = re.compile(r"^- (\w+): visit ([\d.]+), call ([\d.]+)\.", re.MULTILINE)


def test_they_are_those_of_the_source_with_as_many_containers():
    assert {
        name: len(load_app(name).container_names()) for name in shipped.names("application")
    } == CONTAINERS


def test_their_assumptions_are_the_same_up_to_what_is_the_applications_own():
    general = {
        load_app(name).assumptions.partition("Of this application:")[0]
        for name in shipped.names("application")
    }
    assert len(general) == 1
    assert len(CLASSES.findall(general.pop())) == 7


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_demand_follows_from_the_table_that_its_file_shows(name):
    app = load_app(name)
    table = {kind: (float(visit), float(call)) for kind, visit, call in CLASSES.findall(app.assumptions)}
    for service, spec in app.services.items():
        visit, each_call = table[spec.component]
        for handler_name, handler in spec.handlers.items():
            flat = [call for _, calls in handler.stages() for call in calls]
            work = (handler.cpu_ms - each_call * sum(call.probability for call in flat)) / visit
            assert any(work == pytest.approx(allowed, abs=1e-6) for allowed in WORK), (service, handler_name)


@pytest.mark.parametrize("name", CONTAINERS)
def test_components_of_one_class_are_alike_in_all_else(name):
    app = load_app(name)
    for service, spec in app.services.items():
        found = app.settings(service)
        assert found.threads == (1 if spec.component in ("node", "python", "cache") else 20), service
        cv = {"cache": 0.3, "database": 1.0}.get(spec.component, 0.5)
        assert {handler.cv for handler in spec.handlers.values()} == {cv}, service


@pytest.mark.slow
def test_classes_have_the_same_memory_and_workers_in_all_applications():
    alike: dict[str, set[str]] = {}
    for name in shipped.names("application"):
        app = load_app(name)
        for service, spec in app.services.items():
            alike.setdefault(spec.component, set()).add(app.settings(service).model_dump_json())
    assert {kind: len(found) for kind, found in alike.items()} == dict.fromkeys(alike, 1)


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_handler_is_reached_by_some_request(name):
    compiled = compile_graph(load_app(name))
    visits = visits_per_request(compiled)
    assert [each for each, count in zip(compiled.graph.handlers, visits, strict=True) if count == 0] == []


@pytest.mark.parametrize("name", CONTAINERS)
def test_no_container_is_saturated_by_the_sources_workloads(name):
    # 650 requests/s is the highest rate of the four: the burst on top of its base. Three hosts of 20 cores.
    compiled = compile_graph(load_app(name))
    cores = mean_cores(compiled, 650.0)
    assert (cores < 0.8 * np.minimum(compiled.threads, 20.0)).all()
    assert cores.sum() < 60.0


def test_parallel_calls_are_kept_where_the_applications_make_them():
    compose = load_app("media_microservice").services["nginx-web-server"].handlers["compose_review"]
    (uploads,) = compose.calls
    assert isinstance(uploads, list)
    assert [call.call.partition(".")[0] for call in uploads[:4]] == [
        "user-service",
        "movie-id-service",
        "text-service",
        "unique-id-service",
    ]
    home = load_app("hipster_shop").services["frontend"].handlers["home"]
    assert all(isinstance(stage, Call) for stage in home.calls)
