"""`twinbed.toml`: the user's own defaults, and what wins over them."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from lab.runs.store import RunStore
from tests.lab.sample_runs import publish

ROOT = Path(__file__).parents[3]


@pytest.fixture
def here(twinbed, tmp_path, monkeypatch):
    """A working directory, without a store in the environment and without a file of the user's."""
    for variable in ("TWINBED_STORE", "TWINBED_ENGINE", "TWINBED_REGION"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def users(tmp_path, text):
    path = tmp_path / "config" / "twinbed" / "twinbed.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def store_of(twinbed, *options):
    ended = twinbed("runs", "list", *options, "--format", "json")
    return Path(json.loads(ended.out)["facts"]["store"]).name


def test_command_line_wins_over_environment_over_the_folders_file_over_the_users(
    twinbed, here, tmp_path, monkeypatch
):
    users(tmp_path, 'store = "of-user"\n')
    assert store_of(twinbed) == "of-user"
    (here / "twinbed.toml").write_text('store = "of-folder"\n')
    assert store_of(twinbed) == "of-folder"
    monkeypatch.setenv("TWINBED_STORE", "of-environment")
    assert store_of(twinbed) == "of-environment"
    assert store_of(twinbed, "--store", "of-command-line") == "of-command-line"


def test_a_relative_store_begins_at_the_files_folder(twinbed, here, tmp_path):
    run = publish(RunStore(users(tmp_path, 'store = "runs"\n').parent / "runs"))
    assert twinbed("runs", "show", run.id).code == 0


def test_the_engine_comes_from_the_file(twinbed, here, csv_path, monkeypatch):
    (here / "twinbed.toml").write_text('engine = "dask://nowhere:1"\n')
    asked = []
    monkeypatch.setattr("lab.api.run", lambda *_, engine, **__: asked.append(engine) or sys.exit(0))
    for options in ((), ("--engine", "local")):
        with pytest.raises(SystemExit):
            twinbed("whatif", csv_path, *options)
    assert asked == ["dask://nowhere:1", "local"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('regoin = "x"\n', "twinbed.toml: regoin: unknown key; did you mean 'region'?"),
        ("store = 3\n", "twinbed.toml: store: expected text in quotes, not 3"),
        ('store = ""\n', "twinbed.toml: store: String should have at least 1 character"),
        ('engine = "moon"\n', "twinbed.toml: engine: expected local, dask"),
        ("store = \n", "twinbed.toml: "),
    ],
)
def test_a_mistake_names_the_file_and_the_key(twinbed, here, text, line):
    (here / "twinbed.toml").write_text(text)
    assert twinbed("runs", "list").refused.startswith(line)


def test_help_on_a_terminal_has_no_escape_with_no_color(tmp_path):
    main, terminal = pty.openpty()
    environment = os.environ | {"NO_COLOR": "1", "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    command = [sys.executable, "-m", "lab.cli.main", "runs", "--help"]
    subprocess.run(command, stdout=terminal, env=environment, cwd=tmp_path, check=True)
    os.close(terminal)
    shown = os.read(main, 65536)
    os.close(main)
    assert b"prune" in shown
    assert b"\x1b" not in shown
