"""The command line called in this process, on a store of its own."""

from pathlib import Path

import pytest

from lab.cli.main import call
from tests.lab.cli.cli_calls import Ended, Twinbed


@pytest.fixture
def store_path(tmp_path, monkeypatch) -> Path:
    root = tmp_path / "store"
    monkeypatch.setenv("TWINBED_STORE", str(root))
    return root


@pytest.fixture
def twinbed(store_path, capsys, monkeypatch) -> Twinbed:
    """Calls `twinbed ARGUMENTS…` on an empty store, 100 columns wide."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        code = call([str(each) for each in arguments])
        written = capsys.readouterr()
        return Ended(code, written.out, written.err)

    return run


@pytest.fixture
def csv_path(tmp_path) -> Path:
    """Two containers over 30 s at 1 s, as a user would bring them."""
    lines = ["container,time_s,cpu_cores,memory_mib"]
    lines += [f"{name},{t},{0.2 + 0.6 * (t % 5 == 0)},{100 + t}" for name in ("web", "db") for t in range(30)]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(lines) + "\n")
    return path
