"""The explorer's server: its settings reach Streamlit, and a taken port is refused."""

import socket

import pytest

from lab.cli.main import call
from lab.explorer import server
from twinbed import BackendError


def test_it_listens_on_this_machine_only_and_bounds_uploads():
    arguments = server.command(8501)
    assert {"--server.address=127.0.0.1", "--server.port=8501", "--server.maxUploadSize=64"} <= set(arguments)
    assert any(argument.startswith("--theme.dark.primaryColor=#") for argument in arguments)


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
