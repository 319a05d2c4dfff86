"""The explorer's server: its settings reach Streamlit, and a taken port is refused."""

import http.client
import os
import socket

import pytest

from lab.cli.main import call
from lab.explorer import limits, server, uploads
from tests.patience import PATIENCE_S
from twinbed import BackendError, ScenarioError


def test_it_listens_on_this_machine_only_and_bounds_uploads():
    arguments = server.command(8501)
    bound = f"--server.maxUploadSize={uploads.MAX_MIB}"
    assert {"--server.address=127.0.0.1", "--server.port=8501", bound} <= set(arguments)
    assert "--browser.gatherUsageStats=false" in arguments
    assert any(argument.startswith("--theme.dark.primaryColor=#") for argument in arguments)


def test_the_checks_of_other_sites_pages_stay_on_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("STREAMLIT_SERVER_ENABLE_CORS", "false")
    monkeypatch.setenv("STREAMLIT_SERVER_ENABLE_XSRF_PROTECTION", "false")
    arguments = server.command(8501)
    assert {"--server.enableCORS=true", "--server.enableXsrfProtection=true"} <= set(arguments)


@pytest.mark.slow
def test_another_sites_page_can_neither_connect_nor_upload(server):
    address, _ = server
    assert _connect(address, origin=address) == 101
    assert _connect(address, origin="http://evil.example") == 403
    assert _upload(address) == 403


def _connect(address: str, origin: str) -> int:
    headers = {
        "Origin": origin, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    return _status(address, "GET", "/_stcore/stream", headers)


def _upload(address: str) -> int:
    headers = {"Origin": "http://evil.example", "Content-Type": "multipart/form-data; boundary=x"}
    return _status(address, "PUT", "/_stcore/upload_file/session/file", headers)


def _status(address: str, method: str, path: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_taken_port_is_refused_in_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BackendError, match=f"port {port} cannot be used"):
            server.check(port)
        assert call(["explore", "--check", "--port", str(port)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_store_that_no_page_could_open_is_refused(capsys, monkeypatch):
    monkeypatch.setenv("TWINBED_STORE", "s3://runs/x")
    assert call(["explore", "--check"]) == 2
    assert capsys.readouterr().err == "twinbed: TWINBED_STORE=s3://runs/x: expected a folder, not a URL\n"


def test_a_missing_package_names_the_extra(capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert call(["explore"]) == 2
    assert "pip install 'twinbed[explorer]'" in capsys.readouterr().err


def test_one_cpu_stays_free_and_there_is_always_a_worker(monkeypatch):
    for cpus, workers in ((1, 1), (2, 1), (8, 7)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid, cpus=cpus: set(range(cpus)))
        assert limits.of({limits.MEMORY_GB: "16"}).workers == workers


def test_the_workers_share_the_memory():
    shared = limits.of({limits.WORKERS: "4", limits.MEMORY_GB: "8"})
    assert shared == limits.Limits(workers=4, memory_bytes=2_000_000_000)


@pytest.mark.parametrize(("workers", "memory_gb"), [("0", "8"), ("8", "2"), ("1", "0.1")])
def test_limits_that_leave_a_worker_too_little_are_refused(workers, memory_gb):
    with pytest.raises(ScenarioError, match=f"--workers {workers} with --memory-gb {memory_gb}"):
        limits.of({limits.WORKERS: workers, limits.MEMORY_GB: memory_gb})


@pytest.mark.parametrize("text", ["nan", "inf", "much"])
def test_limits_that_are_no_number_are_refused(text):
    with pytest.raises(ScenarioError, match=f"{limits.MEMORY_GB}={text}: not a number"):
        limits.of({limits.MEMORY_GB: text})


def test_the_options_reach_the_server_or_are_refused_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr("lab.explorer.server.serve", lambda _port: None)
    for name in (limits.WORKERS, limits.MEMORY_GB):
        monkeypatch.setenv(name, "")
    assert call(["explore", "--workers", "3", "--memory-gb", "6"]) == 0
    assert limits.of(os.environ) == limits.Limits(3, 2_000_000_000)
    capsys.readouterr()
    assert call(["explore", "--workers", "3", "--memory-gb", "0.3"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_visitors_read_the_limits_beside_the_button(open_app):
    said = open_app().button(key="run").help
    assert "one question at a time" in said
    assert f"run {limits.shared().workers} at once" in said
    assert "8 more wait" in said
