"""How the command starts: quickly, and with nothing but what works in its help."""

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lab.cli import packages
from twinbed import __version__

ROOT = Path(__file__).resolve().parents[3]

HEAVY = [
    "altair", "asyncio", "duckdb", "numba", "numpy", "pandas", "pyarrow", "scipy", "simpy", "streamlit",
    "torch", "vl_convert",
]  # fmt: skip


def test_the_command_line_imports_nothing_heavy_before_a_verb_runs():
    code = f"import sys, lab.cli.main; print(sorted(set({HEAVY}) & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_store_of_runs_loads_duckdb_for_queries_only():
    code = "import sys, lab.runs.store; print(sys.modules.keys() & {'duckdb'})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_version_is_printed(twinbed):
    ended = twinbed("--version")
    assert (ended.code, ended.out) == (0, f"twinbed {__version__}\n")


def test_the_package_is_a_command_line_too():
    asked = subprocess.run(
        [sys.executable, "-m", "twinbed", "--version"], capture_output=True, text=True, check=True
    )
    assert asked.stdout == f"twinbed {__version__}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb",
    [
        [],
        ["record"],
        ["whatif"],
        ["run"],
        ["compare"],
        ["report"],
        ["policies"],
        ["runs"],
        ["runs", "query"],
        ["traces"],
    ],
)
def test_every_verb_explains_itself(twinbed, verb):
    ended = twinbed(*verb, "--help")
    assert ended.code == 0
    assert "Usage: twinbed" in ended.out


def test_no_verb_at_all_shows_the_help_and_no_error(twinbed):
    ended = twinbed()
    assert ended.code == 2
    assert "whatif" in ended.out
    assert ended.err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'; see twinbed --help"),
        (["whatif"], "Missing argument 'TRACE'; see twinbed whatif --help"),
        (["runs", "list", "--format", "xml"], "Invalid value for '--format'"),
        (["whatif", "x", "--seed", "-1"], "Invalid value for '--seed'"),
        (["whatif", "x", "--nonsense"], "; see twinbed whatif --help"),
        (["whatif", "x", "--fill"], "Option '--fill' requires an argument; see twinbed whatif --help"),
        (["runs", "list", "--tag"], "Option '--tag' requires an argument; see twinbed runs list --help"),
    ],
)
def test_wrong_usage_is_one_line_that_names_the_help(twinbed, arguments, message):
    refused = twinbed(*arguments).refused
    assert message in refused
    assert "--help" in refused


@pytest.mark.slow
def test_a_reader_that_leaves_ends_the_program_without_a_word(store_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.cli.main", "policies"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_a_missing_package_of_any_extra_names_the_extra():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(packages.EXTRAS) == set(declared) - {"dev", "docs", "mutants"}
    assert "pip install 'twinbed[kubernetes]'" in packages.cure("httpx2")


def test_a_missing_package_is_installed_where_twinbed_is(monkeypatch):
    installs = f"{shlex.quote(sys.executable)} -m pip install 'twinbed[scale]' installs it"
    assert packages.cure("optuna") == f"the package optuna is not installed; {installs}"
    monkeypatch.setattr(packages, "find_spec", lambda _: None)  # uv makes environments without pip
    assert "; uv pip install 'twinbed[scale]' --python " in packages.cure("optuna")
