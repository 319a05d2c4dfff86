"""A store with four small runs, recordings of its own, and a page under test."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sample_traces import usage_trace
from streamlit.testing.v1 import AppTest

import traces.load
from lab.runner import whatif
from lab.store import Run, RunStore
from traces import parquet

APP = str(Path(__file__).parents[3] / "app.py")


@pytest.fixture(scope="session")
def recordings(tmp_path_factory) -> Path:
    """A folder with one recording, `sample`: 3 containers, 30 s."""
    folder = tmp_path_factory.mktemp("recordings")
    parquet.write(usage_trace(), folder / "sample.parquet")
    return folder


@pytest.fixture(scope="session")
def stored(tmp_path_factory, recordings) -> tuple[RunStore, list[Run]]:
    """`sample` under the four policies. Not to be changed: copy before removing."""
    store = RunStore(tmp_path_factory.mktemp("store"))
    runs = whatif(recordings / "sample.parquet", ["escra", "autopilot", "vpa", "static"], store=store)
    return store, runs


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
