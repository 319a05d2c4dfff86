"""The text of an application: what it may contain, and the errors for what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from lab.ask import shipped
from lab.containers.input.services.application import AppSpec, build_app, load_app
from tests.lab.containers.input.services.app_texts import two_services
from twinbed import ScenarioError


def refused(tmp_path, text: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load_app(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def app_text(
    web: str = "", page: str = "cpu_ms: 1", request: str = "handler: web.page", top: str = ""
) -> str:
    return (
        f"name: mine\nrequests: {{page: {{{request}}}}}\n{top}\nservices:\n"
        f"  db: {{handlers: {{find: {{cpu_ms: 1}}, write: {{cpu_ms: 1, calls: [db.find]}}}}}}\n"
        f"  web:\n    {web}\n    handlers:\n      page: {{{page}}}\n"
    )


PAGE = "services.web.handlers.page"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty file"),
        ("- 1", "expected keys and values"),
        ("name: [a", "line 1: not YAML"),
        ("name: a\nname: b", "line 2: key 'name' is given twice"),
        (app_text("replicas: 1\n    replicas: 2"), "line 8: key 'replicas' is given twice"),
        (app_text("replcas: 2"), "services.web.replcas: unknown key; did you mean 'replicas'?"),
        (app_text("memory: {base: 2}"), "services.web.memory.base: unknown key; did you mean 'base_mib'?"),
        (app_text(page="cpu: 1"), f"{PAGE}.cpu: unknown key; did you mean 'cpu_ms'? (and 1 more)"),
        (app_text(page="cpu_ms: 1, call: []"), f"{PAGE}.call: unknown key; did you mean 'calls'?"),
        (app_text(top="defaults: {thread: 1}"), "defaults.thread: unknown key; did you mean 'threads'?"),
        (app_text("replicas: 0"), "services.web.replicas: Input should be greater than 0, not 0"),
        (app_text("workers: 0"), "services.web.workers: Input should be greater than 0, not 0"),
        (app_text("queue: -1"), "services.web.queue: Input should be greater than or equal to 0, not -1"),
        (app_text("threads: 0"), "services.web.threads: Input should be greater than 0, not 0"),
        (app_text(page="cpu_ms: 0"), f"{PAGE}.cpu_ms: Input should be greater than 0, not 0"),
        (app_text(page="cpu_ms: -1"), f"{PAGE}.cpu_ms: Input should be greater than 0, not -1"),
        (app_text(page="cpu_ms: .nan"), f"{PAGE}.cpu_ms: nan is not a finite number"),
        (app_text(page="cpu_ms: fast"), f"{PAGE}.cpu_ms: Input should be a valid number, not 'fast'"),
        (
            app_text(page="cpu_ms: 1, distribution: normal"),
            f"{PAGE}.distribution: Input should be 'fixed', 'exponential' or 'lognormal', not 'normal'",
        ),
        (
            app_text(page="cpu_ms: 1, calls: [db.find, {call: db.find, probability: 1.5}]"),
            f"{PAGE}.calls.1.probability: Input should be less than or equal to 1, not 1.5",
        ),
        (
            app_text(page="cpu_ms: 1, calls: [[db.find, {call: db.find, probability: 0}]]"),
            f"{PAGE}.calls.0.1.probability: Input should be greater than 0, not 0",
        ),
        (
            app_text(page="cpu_ms: 1, calls: [{call: db.find, retry: 1}]"),
            f"{PAGE}.calls.0.retry: unknown key; did you mean 'retries'?",
        ),
        (app_text(page="cpu_ms: 1, calls: [db]"), f"{PAGE}.calls.0.call: String should match pattern"),
        (app_text(page="cpu_ms: 1, calls: [[]]"), f"{PAGE}.calls.0: List should have at least 1 item"),
        (
            app_text(page="cpu_ms: 1, calls: [bd.find]"),
            f"{PAGE}.calls.0: no service 'bd'; did you mean 'db'?",
        ),
        (
            app_text(page="cpu_ms: 1, calls: [db.find, [db.find, db.wirte]]"),
            f"{PAGE}.calls.1: db has no handler 'wirte'; did you mean 'write'?",
        ),
        (
            app_text(page="cpu_ms: 1, calls: [[" + 33 * "{call: db.find, times: 1000}, " + "]]"),
            f"{PAGE}.calls.0: 33000 calls at once, at most 32767",
        ),
        (
            app_text(request="handler: web.pgae"),
            "requests.page.handler: web has no handler 'pgae'; did you mean 'page'?",
        ),
        (
            app_text(request="handler: shop.page"),
            "requests.page.handler: no service 'shop'; known are db, web",
        ),
        (app_text(request="handler: web.page, weight: 0"), "requests: every weight is 0"),
        (
            app_text(request="handler: web.page, weight: -1"),
            "requests.page.weight: Input should be greater than or equal to 0, not -1",
        ),
        (
            app_text("connections: {bd: 1}"),
            "services.web.connections.bd: no service 'bd'; did you mean 'db'?",
        ),
        (app_text("connections: {db: 1}"), "services.web.connections.db: web never calls db"),
        (
            app_text("connections: {db: 0}", page="cpu_ms: 1, calls: [db.find]"),
            "services.web.connections.db: Input should be greater than 0, not 0",
        ),
        (
            app_text(page="cpu_ms: 1, calls: [web.page]"),
            "services: calls go round in a cycle: web.page → web.page",
        ),
        (app_text(top="network_s: -1"), "network_s: Input should be greater than or equal to 0, not -1"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_with_file_and_key(text, said, tmp_path):
    assert refused(tmp_path, text).startswith(said)


def test_a_cycle_is_named_from_where_it_begins_to_its_end():
    def handler(*calls: str) -> dict[str, Any]:
        return {"cpu_ms": 1.0, "calls": list(calls)}

    services = {
        "web": {"handlers": {"page": handler("a.x", "b.y")}},
        "a": {"handlers": {"x": handler()}},
        "b": {"handlers": {"y": handler("a.x", "c.z")}},
        "c": {"handlers": {"z": handler("a.x", "b.w"), "v": handler()}},
    }
    services["b"]["handlers"]["w"] = handler("c.v", "b.y")
    with pytest.raises(ScenarioError, match=r"in a cycle: b\.y → c\.z → b\.w → b\.y$"):
        build_app(two_services(services=services))


def test_a_graph_as_deep_as_a_file_allows_is_no_problem():
    depth = 5000
    services = {
        f"s{at}": {"handlers": {"h": {"cpu_ms": 1.0, "calls": [f"s{at + 1}.h"] if at < depth else []}}}
        for at in range(depth + 1)
    }
    app = build_app(two_services(services=services, requests={"r": {"handler": "s0.h"}}))
    assert len(app.handlers()) == depth + 1


def test_services_may_call_each_other_both_ways_as_long_as_handlers_do_not():
    services = {
        "a": {"handlers": {"x": {"cpu_ms": 1.0, "calls": ["b.y"]}, "z": {"cpu_ms": 1.0}}},
        "b": {"handlers": {"y": {"cpu_ms": 1.0, "calls": ["a.z"]}}},
    }
    build_app(two_services(services=services, requests={"r": {"handler": "a.x"}}))


def test_two_containers_of_one_name_are_refused():
    find = {"handlers": {"find": {"cpu_ms": 0.5}}}
    page = {"handlers": {"page": {"cpu_ms": 1.0}}}
    services = {"web": page, "db": {**find, "replicas": 2}, "db-2": find}
    with pytest.raises(ScenarioError, match="two containers would be called 'db-2'"):
        build_app(two_services(services=services))


def test_a_service_overrides_the_defaults_key_by_key_and_also_to_null():
    raw = two_services(
        defaults={"threads": 4, "timeout_s": 1.0, "memory": {"base_mib": 10, "request_kib": 20}}
    )
    raw["services"]["web"] |= {"timeout_s": None, "memory": {"base_mib": 500}}
    app = build_app(raw)
    web, db = app.settings("web"), app.settings("db")
    assert (web.threads, web.timeout_s, web.memory.base_mib, web.memory.request_kib) == (4, None, 500, 20)
    assert (db.threads, db.timeout_s, db.memory.base_mib, db.workers) == (4, 1.0, 10, 256)


def test_times_repeats_a_call_in_turn_alone_and_at_once_in_a_list():
    raw = two_services()
    twice = {"call": "db.find", "times": 2}
    raw["services"]["web"]["handlers"]["page"]["calls"] = [twice, [twice, "db.write"]]
    page = build_app(raw).services["web"].handlers["page"]
    stages = [[call.call for call in calls] for _, calls in page.stages()]
    assert stages == [["db.find"], ["db.find"], ["db.find", "db.find", "db.write"]]


def test_what_was_read_can_be_written_and_read_again():
    for name in shipped.names("application"):
        app = load_app(name)
        assert AppSpec.model_validate(app.model_dump(mode="json", exclude_unset=True)) == app


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hipstershop", "no application 'hipstershop'; did you mean 'hipster_shop'?"),
        ("qqq", "no application 'qqq'; shipped are hipster_shop, media_microservice, teastore, train_ticket"),
        ("gone.yaml", "gone.yaml: No such file or directory"),
        ("there/gone", "there/gone: No such file or directory"),
    ],
)
def test_an_application_that_is_not_there_is_named(name, said):
    with pytest.raises(ScenarioError) as caught:
        load_app(name)
    assert str(caught.value).startswith(said)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="not UTF-8 text"):
        load_app(tmp_path / "binary.yaml")
