"""Starts the explorer's server, or checks that it starts.

For: `twinbed explore`. Not for: any page. The server listens on this machine only, wherever twinbed is
installed: Streamlit reads a configuration file only from the current folder, so its settings are given here.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NoReturn

from twinbed import BackendError

CONFIG = Path(__file__).with_name("config.toml")
"""Settings of Streamlit, by section and key."""
_APP = Path(__file__).resolve().parents[2] / "app.py"
_START_S = 60.0
"""Longest time to wait until the server answers, s. It takes about 3 s on two idle cores."""


def command(port: int) -> list[str]:
    """Return the command line of the server on a port of this machine."""
    flags = _flags("", tomllib.loads(CONFIG.read_text(encoding="utf-8")))
    return [sys.executable, "-m", "lab.explorer.serving", "run", str(_APP), f"--server.port={port}", *flags]


def require_free(port: int) -> None:
    """Raise BackendError if the port is taken on this machine."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise BackendError(
            f"port {port} cannot be used ({error.strerror}); choose another with --port"
        ) from None


def serve(port: int) -> NoReturn:
    """Becomes the server: this process ends when the server does, and every signal reaches the server itself.

    Raises BackendError if the port is taken.
    """
    require_free(port)
    arguments = command(port)
    os.execv(arguments[0], arguments)


def check(port: int) -> None:
    """Start the server, wait until it reports that it is healthy, and stop it.

    Raises BackendError with the end of the server's output if it ends or stays silent.
    """
    require_free(port)
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command(port), stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + _START_S
            while server.poll() is None and time.monotonic() < deadline:
                if _healthy(port):
                    return
                time.sleep(0.2)
        finally:
            server.terminate()
            server.wait()
        log.seek(0)
        output = log.read().decode(errors="replace").strip() or "it printed nothing"
    raise BackendError(f"the explorer did not start on port {port}: {output[-400:]}")


def _flags(section: str, settings: dict[str, Any]) -> list[str]:
    """Return `--section.key=value` for each setting, sections inside sections included."""
    flags = []
    for key, value in settings.items():
        if isinstance(value, dict):
            flags += _flags(f"{section}{key}.", value)
        else:
            flags.append(f"--{section}{key}={str(value).lower() if isinstance(value, bool) else value}")
    return flags


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2) as answer:
            return bool(answer.read().strip() == b"ok")
    except (urllib.error.URLError, OSError):
        return False
