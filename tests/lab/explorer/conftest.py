"""A page under test, over the sample's runs and with the sample as its only recording."""

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import traces.load

APP = str(Path(__file__).parents[3] / "app.py")


@pytest.fixture(scope="session")
def recordings(trace_path) -> Path:
    """A folder with one recording, `sample`: 3 containers, 30 s."""
    return trace_path.parent


@pytest.fixture
def open_app(monkeypatch, stored, recordings) -> Callable[..., AppTest]:
    """Opens the explorer in this process over the stored runs, at an address (key=value or key=[values])."""
    monkeypatch.setenv("TWINBED_STORE", str(stored[0].root))
    monkeypatch.setattr(traces.load, "RECORDED", recordings)

    def opened(**query: str | list[str]) -> AppTest:
        app = AppTest.from_file(APP, default_timeout=60)
        for key, value in query.items():
            app.query_params[key] = value
        return app.run()

    return opened
