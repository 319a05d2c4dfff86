"""The queries that a server gets, and the errors that a user sees."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

import numpy as np
import pytest

from lab.connect import prometheus
from lab.connect.http import Access, authorization
from lab.connect.prometheus import HistoryQuestion, fetch, parsed, window_of
from tests.lab.connect.made_up import CPU, START_S, answering, container, steady
from tests.lab.connect.servers import certificate, http_server, proxy, say
from twinbed import BackendError, ScenarioError, TwinbedError

QUESTION = HistoryQuestion('namespace="shop"', START_S, START_S + 600, 30.0)


def refused(url: str, question: HistoryQuestion = QUESTION, **access: object) -> str:
    """Return the one line with which a question fails."""
    with pytest.raises(TwinbedError) as error:
        fetch(Access(url, **{"timeout_s": 5.0, **access}), question)  # type: ignore[arg-type]
    text = str(error.value)
    assert "\n" not in text
    return text


@contextmanager
def raw_server(reply: bytes) -> Iterator[str]:
    """A server that sends these bytes and closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(1 << 16)
                connection.sendall(reply)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (
            400,
            b'{"status":"error","error":"parse error: unexpected"}',
            "(parse error: unexpected); is --selector",
        ),
        (401, b"Unauthorized", "the token or password is missing or wrong; give --token-file or --user"),
        (403, b"<html>", "answered 403 Forbidden; the token or user may not read this"),
        (404, b"404 page not found", "no Prometheus API there; does the URL need a path"),
        (
            422,
            b'{"error":"too many samples"}',
            "(too many samples); the server refuses the query; take a longer",
        ),
        (500, b"oh", "answered 500 Internal Server Error; look into the server's log"),
        (503, b"", "the server is overloaded or starting; try again"),
        (302, b"", "leads to elsewhere; give the URL"),
        (
            200,
            b"<html>log in</html>",
            "the answer is not JSON; is it a Prometheus, or a login page before it?",
        ),
        (200, b"[1, 2]", "JSON, but not an answer of Prometheus; is the URL's path right?"),
    ],
)
def test_an_answer_that_is_an_error_is_told_with_its_cure(status, body, words):
    with http_server(lambda handler, _: say(handler, status, body)) as url:
        text = refused(url)
    assert text.startswith(f"{url}/api/v1/series: ")
    assert words in text


def test_a_range_that_is_no_matrix_is_told():
    names = answering({CPU: [(container("web-0"), steady())]})
    for body, words in (
        (b'{"status":"success","data":{"resultType":"vector","result":[]}}', "a result of type 'vector'"),
        (
            b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,',
            "cut short",
        ),
        (b'{"status":"success","data":{"resultType":"matrix","result":[', "cut short"),
        (b"nothing", "not JSON"),
        (b"", "the answer is empty"),
        (
            b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,2,3]]}]}}',
            "are not pairs",
        ),
    ):

        def answer(handler: BaseHTTPRequestHandler, form: bytes, body: bytes = body) -> None:
            if handler.path.endswith("/query_range"):
                say(handler, 200, body)
            else:
                names(handler, form)

        with http_server(answer) as url:
            text = refused(url)
        assert text.startswith(f"{url}/api/v1/query_range: ")
        assert words in text


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"", "closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "the connection was cut in the middle"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{",
            "the connection was cut in the middle",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
    ],
)
def test_a_connection_that_is_cut_is_told(reply, words):
    with raw_server(reply) as url:
        assert words in refused(url)


def test_a_server_that_is_not_there_is_told():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        assert "no server listens there" in refused(f"http://127.0.0.1:{probe.getsockname()[1]}")
    assert "cannot be reached" in refused("http://no-such-host.invalid:9090")


def test_a_server_that_does_not_answer_is_given_up():
    waiting = threading.Event()
    with http_server(lambda handler, body: waiting.wait(10) and None) as url:
        try:
            assert "no answer within 0.2 s" in refused(url, timeout_s=0.2)
        finally:
            waiting.set()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:9090", "expected http://HOST:PORT"),
        ("ftp://localhost", "expected http://HOST:PORT"),
        ("http://", "expected http://HOST:PORT"),
        ("http://localhost:port", "not a URL"),
        ("http://localhost/?query=up", "leave out the part after"),
        ("http://localhost/a b", "has no blanks"),
    ],
)
def test_a_url_that_is_none_is_refused(url, words):
    assert words in refused(url)


def test_a_password_in_a_url_is_refused_and_not_repeated():
    text = refused("http://me:secret@localhost:9090")
    assert "secret" not in text
    assert "--password-file" in text


@pytest.mark.parametrize(
    ("selector", "wrong"),
    [
        ("namespace=shop", "'namespace=shop'"),
        ('namespace="shop" pod="a"', "'namespace"),
        ('namespace=="shop"', "'namespace=="),
        ('namespace="shop"} or vector(1', "'namespace"),
    ],
)
def test_a_selector_that_is_none_is_shown(selector, wrong):
    with pytest.raises(ScenarioError, match="is no matcher; expected label=") as error:
        parsed(selector)
    assert wrong in str(error.value)


def test_a_selector_may_stand_in_braces_and_have_any_text():
    assert parsed(r'{a="x,y}",b!~"\"z\"" , c=~"d"}') == [
        ("a", 'a="x,y}"'),
        ("b", r'b!~"\"z\""'),
        ("c", 'c=~"d"'),
    ]


def test_a_wrong_label_and_a_wrong_value_are_told_with_what_is_there():
    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        there = {"labels": '["namespace","pod"]', "label/namespace/values": '["shop","cart"]'}
        data = there.get(handler.path.partition("?")[0].removeprefix("/api/v1/"), "[]")
        say(handler, 200, f'{{"status":"success","data":{data}}}'.encode())

    with http_server(answer) as url:
        wrong_label = refused(url, HistoryQuestion('namespac="shop"', START_S, START_S + 600, 30.0))
        wrong_value = refused(url, HistoryQuestion('namespace="chop"', START_S, START_S + 600, 30.0))
    assert "no series has a label namespac; did you mean namespace?" in wrong_label
    assert "its label namespace has the values cart, shop; change --selector or --since" in wrong_value


def test_a_server_without_containers_is_told():
    with http_server(answering({})) as url:
        assert "does this server scrape the kubelets' cAdvisor" in refused(url)


def test_too_many_cells_are_refused_before_they_are_read():
    series = {CPU: [(container(f"web-{number}"), steady()) for number in range(40)]}
    with http_server(answering(series)) as url:
        assert "more than 12000000 cells; take a longer step" in refused(
            url, HistoryQuestion("", START_S, START_S + 400 * 86_400, 60.0)
        )


def test_a_partial_answer_is_refused_and_a_warning_becomes_a_note():
    series = {CPU: [(container("web-0"), steady())]}
    with http_server(answering(series, isPartial=True)) as url:
        assert "the answer is partial" in refused(url)
    with http_server(answering(series, warnings=["a store is slow"])) as url:
        history = fetch(Access(url), QUESTION)
    assert "The server warns: a store is slow" in history.trace.notes


def test_batches_and_chunks_give_what_one_question_gives(monkeypatch):
    series = {CPU: [(container(f"web-{number}"), steady(0.1 * number)) for number in range(7)]}
    done: list[float] = []
    with http_server(answering(series)) as url:
        whole = fetch(Access(url), QUESTION)
        monkeypatch.setattr(prometheus, "MOST_POINTS", 7)
        parts = fetch(Access(url), QUESTION, done.append)
    np.testing.assert_array_equal(whole.trace.cpu_cores, parts.trace.cpu_cores)
    assert whole.trace.cpu_cores[0] == pytest.approx(0.1 * np.arange(7), abs=1e-9)
    assert done == sorted(done)
    assert done[-1] == 1


def test_pods_are_asked_in_batches(monkeypatch):
    containers = [("shop", f"web.{number}", "app") for number in range(5)]
    monkeypatch.setattr(prometheus, "BATCH_CELLS", 40)
    assert list(prometheus._batches(containers, 20)) == [["web.0", "web.1"], ["web.2", "web.3"], ["web.4"]]
    assert prometheus._escaped("web.0") == r"web\\.0"


def test_the_window_lies_on_multiples_of_the_step():
    window = window_of(HistoryQuestion("", START_S + 7, START_S + 127, 30.0))
    assert (window.start_s, window.intervals) == (START_S, 4)
    for start_s, step_s in ((START_S, 0.00001), (START_S, 0.0), (START_S + 600, 30.0), (START_S - 1e9, 30.0)):
        with pytest.raises(ScenarioError):
            window_of(HistoryQuestion("", start_s, START_S + 600, step_s))


def test_what_rarely_changes_is_asked_for_within_the_servers_look_back():
    with http_server(answering({CPU: [(container("web-0"), steady())]})) as url:
        for step_s, rarely_s in ((45.0, 270), (200.0, 200), (30.0, 300)):
            history = fetch(Access(url), HistoryQuestion("", START_S, START_S + 3600, step_s))
            assert f"settings and events every {rarely_s} s." in history.trace.notes[0]


def test_a_token_goes_over_tls_to_a_server_whose_certificate_is_given(tmp_path):
    pem, token = certificate(tmp_path), tmp_path / "token"
    token.write_text("open-sesame\n")
    series = {CPU: [(container("web-0"), steady())]}
    with http_server(answering(series)) as inner, http_server(proxy(inner, "open-sesame"), pem) as url:
        bearer = authorization(token, None, None, None)
        ca_file = tmp_path / "ca.pem"
        found = fetch(Access(url, bearer, ca_file), QUESTION)
        assert found.trace.containers == ("shop/web-0/app",)
        assert "its certificate is not trusted" in refused(url, authorization=bearer)
        assert "give --token-file" in refused(url, ca_file=ca_file)
        assert "open-sesame" not in repr(Access(url, bearer))
        plain = url.replace("https", "http")
        assert refused(plain)
    with http_server(answering(series)) as url:
        assert "does the server speak https" in refused(url.replace("http", "https"))


def test_secrets_come_from_files_or_the_environment_only(tmp_path, monkeypatch):
    password = tmp_path / "password"
    password.write_text("pass\n")
    monkeypatch.setenv("MY_TOKEN", "abc")
    assert authorization(None, "MY_TOKEN", None, None) == "Bearer abc"
    assert authorization(None, None, "me", password) == "Basic bWU6cGFzcw=="
    assert authorization(None, None, None, None) == ""
    password.write_text("two\nlines")
    for given, words in (
        ((None, "NO_SUCH", None, None), "no such environment variable"),
        ((None, None, "me", None), "go together"),
        ((password, "MY_TOKEN", None, None), "give only one of"),
        ((password, None, None, None), "expected one line of ASCII text"),
    ):
        with pytest.raises(ScenarioError, match=words):
            authorization(*given)


def test_a_ca_file_without_certificates_is_refused(tmp_path):
    empty = tmp_path / "ca.pem"
    for text in ("no certificate\n", ""):
        empty.write_text(text)
        assert "no certificates in PEM form" in refused("https://localhost:1", ca_file=empty)
    with pytest.raises(BackendError):
        fetch(Access("http://127.0.0.1:1"), QUESTION)


def test_state_that_is_scraped_without_honor_labels_is_found():
    own = {
        "namespace": "monitoring", "pod": "ksm-0", "container": "ksm", "exported_namespace": "shop",
        "exported_pod": "web-0", "exported_container": "app",
    }  # fmt: skip
    usage = {CPU: [(container("web-0"), steady())]}
    state = {
        "kube_pod_owner": [(own | {"owner_kind": "StatefulSet", "owner_name": "front"}, lambda _: 1.0)],
        "kube_pod_container_resource_requests": [(own | {"resource": "cpu", "unit": "core"}, lambda _: 0.25)],
    }
    plain, renamed = answering(usage), answering(state)

    def answer(handler: BaseHTTPRequestHandler, form: bytes) -> None:
        (renamed if b"exported_namespace" in form else plain)(handler, form)

    with http_server(answer) as url:
        history = fetch(Access(url), QUESTION)
    assert [owner.workload for owner in history.owners] == ["front"]
    assert history.in_force("cpu_request_cores").tolist() == [0.25]


def test_pods_are_asked_for_by_the_label_that_has_their_names(monkeypatch):
    monkeypatch.setattr(prometheus, "MOST_PODS", 1)
    usage = [({**container("cadvisor-0"), "exported_pod": f"web-{number}"}, steady()) for number in range(2)]
    every = answering({CPU: usage})

    def answer(handler: BaseHTTPRequestHandler, form: bytes) -> None:
        asked = parse_qs(form.decode()).get("query", [""])[0]
        named = [entry for entry in usage if f'exported_pod=~"{entry[0]["exported_pod"]}"' in asked]
        (answering({CPU: named}) if "query" in form.decode() else every)(handler, form)

    with http_server(answer) as url:
        history = fetch(Access(url), QUESTION)
    assert history.trace.containers == ("shop/web-0/app", "shop/web-1/app")
