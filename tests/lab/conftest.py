"""A small trace as a file, and a store with its four runs."""

import sys
from functools import cache

import pytest
import typer.main

from lab.ask.scenario import build
from lab.cli.main import call
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from tests.lab.cli_calls import Ended
from tests.lab.sample_traces import usage_trace, whatif
from traces import parquet


@pytest.fixture(scope="session")
def trace_path(tmp_path_factory):
    """`usage_trace()` as a file: 3 containers, 30 s."""
    path = tmp_path_factory.mktemp("trace") / "sample.parquet"
    parquet.write(usage_trace(), path)
    return path


@pytest.fixture(scope="session")
def stored(tmp_path_factory, trace_path):
    """`sample` under the four policies. Not to be changed: copy before removing."""
    store = RunStore(tmp_path_factory.mktemp("store"))
    runs = whatif(trace_path, ["escra", "autopilot", "vpa", "static"], store=store)
    return store, runs


@pytest.fixture(scope="session")
def asked(tmp_path_factory):
    """TeaStore for 12 s under Escra and a static limit that is too low. Not to be changed."""
    raw = {
        "name": "tea",
        "services": {"app": "teastore", "arrivals": "burst", "duration_s": 12.0},
        "policies": ["escra", "static:factor=0.9"],
    }
    store = RunStore(tmp_path_factory.mktemp("asked"))
    return store, run_scenario(build(raw), store)


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    return RunStore(tmp_path / "runs")


@pytest.fixture
def store_path(tmp_path, monkeypatch):
    root = tmp_path / "store"
    monkeypatch.setenv("TWINBED_STORE", str(root))
    return root


@pytest.fixture(scope="session", autouse=True)
def _verbs_are_built_once():
    """Typer builds the commands of all verbs for every call. A program makes one call, the tests hundreds."""
    build = typer.main.get_command
    typer.main.get_command = cache(build)
    yield
    typer.main.get_command = build


@pytest.fixture
def twinbed(store_path, capsys, monkeypatch):
    """Calls `twinbed ARGUMENTS…` on an empty store, 100 columns wide."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        code = call([str(each) for each in arguments])
        written = capsys.readouterr()
        return Ended(code, written.out, written.err)

    return run


@pytest.fixture(autouse=True)
def _main_stays_what_it_is():
    """Streamlit replaces `__main__` by the page, which processes that later tests spawn would run."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main
