"""The explorer's server: its settings reach Streamlit, and a taken port is refused."""

import http.client
import socket

import pytest

from lab.cli.main import call
from lab.explorer import server
from tests.lab.explorer.journey import serve
from twinbed import BackendError


def test_it_listens_on_this_machine_only_and_bounds_uploads():
    arguments = server.command(8501)
    assert {"--server.address=127.0.0.1", "--server.port=8501", "--server.maxUploadSize=64"} <= set(arguments)
    assert any(argument.startswith("--theme.dark.primaryColor=#") for argument in arguments)


def test_the_checks_of_other_sites_pages_stay_on_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("STREAMLIT_SERVER_ENABLE_CORS", "false")
    monkeypatch.setenv("STREAMLIT_SERVER_ENABLE_XSRF_PROTECTION", "false")
    arguments = server.command(8501)
    assert {"--server.enableCORS=true", "--server.enableXsrfProtection=true"} <= set(arguments)


@pytest.mark.slow
def test_another_sites_page_can_neither_connect_nor_upload(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMLIT_SERVER_ENABLE_CORS", "false")
    monkeypatch.setenv("STREAMLIT_SERVER_ENABLE_XSRF_PROTECTION", "false")
    with serve(tmp_path / "runs", tmp_path) as address:
        assert _connect(address, origin=address) == 101
        assert _connect(address, origin="http://evil.example") == 403
        assert _upload(address) == 403


def _connect(address: str, origin: str) -> int:
    headers = {
        "Origin": origin,
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    return _status(address, "GET", "/_stcore/stream", headers)


def _upload(address: str) -> int:
    headers = {"Origin": "http://evil.example", "Content-Type": "multipart/form-data; boundary=x"}
    return _status(address, "PUT", "/_stcore/upload_file/session/file", headers)


def _status(address: str, method: str, path: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
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


def test_a_missing_package_names_the_extra(capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert call(["explore"]) == 2
    assert "pip install 'twinbed[explorer]'" in capsys.readouterr().err
