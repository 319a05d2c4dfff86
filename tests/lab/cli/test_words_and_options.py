"""What the command line's texts promise: options that every verb has, help that is whole, tables that fit."""

import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer

from control.jobs import LocalRun
from lab.ask import shipped
from lab.cli import profile as profile_verb
from lab.cli.main import app, call
from lab.cli.reference import document
from lab.cloud.input.local_run_file import read
from lab.cloud.input.store import read_csv


def verbs(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name.strip(), command
        return
    for key, below in command.commands.items():
        yield from verbs(below, f"{name} {key}")


ALL = dict(verbs(typer.main.get_command(app)))


@pytest.mark.parametrize("name", [key for key, verb in ALL.items() if key != "explore"])
def test_a_verb_that_prints_a_table_takes_the_options_that_verbs_share(name) -> None:
    names = {text for parameter in ALL[name].params for text in parameter.opts}
    if "--format" in names:
        assert "--no-progress" in names


def test_the_reference_tells_defaults_of_zero_and_both_names_of_a_switch() -> None:
    text = document()
    assert "Seed of all random numbers. Default: `0`." in text
    assert "`--no-shipped-runs`" in text


def test_the_help_of_measurements_names_every_column_that_an_import_reads(tmp_path) -> None:
    said = str(ALL["measurements import"].help)
    row = {
        "job": "a", "instance": "n1-standard-4", "workers": "2", "time_s": "3600", "price_usd_h": "1",
        "vcpus": "4", "memory_gib": "15", "ok": "true", "batch": "32", "gpus": "0", "network_bps": "1e9",
        "cpu_speed": "1", "servers": "1", "server_instance": "n1-standard-4", "use_bps": "1e8", "noise": "10",
        "source": "by hand", "parameter.layers": "3",
    }  # fmt: skip
    path = tmp_path / "runs.csv"
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    assert len(read_csv(path)) == 1
    for column in row:
        assert column.replace("layers", "NAME") in said


def test_an_import_says_how_many_runs_are_new(twinbed, tmp_path) -> None:
    path, database = tmp_path / "runs.csv", tmp_path / "runs.sqlite"
    path.write_text(
        "job,instance,workers,time_s,price_usd_h,vcpus,memory_gib\na,n1-standard-4,2,3600,1,4,15\n"
    )
    for added in (1, 0):
        ended = twinbed("measurements", "import", path, "--measurements", database, "--format", "json")
        assert ended.rows == [{"database": str(database), "runs": 1, "added": added}]


@pytest.mark.parametrize("wanted", [["--gpu", "a100"], ["--gpu", "h100"], ["--cloud", "gcp"], []])
def test_a_table_of_prices_keeps_the_names_of_types_whole(wanted, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert call(["prices", "list", *wanted]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    assert call(["prices", "list", *wanted, "--top", "20", "--format", "json"]) == 0
    for row in json.loads(capsys.readouterr().out)["rows"]:
        assert f"{row['type']} " in shown
        assert f"{row['cloud']}/" in shown


def test_a_market_that_all_prices_have_is_said_once(capsys) -> None:
    assert call(["prices", "list", "--type", "g2-standard-4", "--market", "spot"]) == 0
    shown = capsys.readouterr().out
    assert "All prices are spot." in shown
    assert "market" not in shown.splitlines()[0]


def test_a_seed_below_zero_is_refused(twinbed) -> None:
    assert "--seed" in twinbed("predict", "evaluate", "--seed", "-1").refused


def test_a_profiled_job_writes_beside_the_json(monkeypatch, tmp_path, capfd) -> None:
    given: dict[str, Any] = {}
    ones = np.ones((5, 1))
    run = LocalRun(1.0, ones, ones, ones, ones, np.tile([0.1, 0.1, 0.1, 0.1, 1.1], 4), 32, 1000)

    def profile(*_: object, **options: Any) -> object:
        given.update(options)
        return SimpleNamespace(
            run=run, processes=("master",), recording=SimpleNamespace(metadata={}, notes=())
        )

    monkeypatch.setattr("testbed.cloud.local_run.profile", profile)
    arguments = [
        "profile",
        str(shipped.path_of("job", "text_bag")),
        "--out",
        str(tmp_path / "run.parquet"),
        "--no-progress",
    ]
    assert call([*arguments, "--format", "json"]) == 0
    assert given["stdout"] == profile_verb.sys.stderr.fileno()
    assert call(arguments) == 0
    assert given["stdout"] is None
    monkeypatch.chdir(tmp_path)
    assert call(["profile", "text_bag", "--no-progress"]) == 0
    assert (tmp_path / "text_bag.local-run.parquet").exists()
    copied = f"copy {shipped.path_of('job', 'text_bag')} beside it and name the copy"
    said = " ".join(capfd.readouterr().out.split())
    assert copied in said
    assert "20 steps of 300.0 ms (mean, on which predictions rest; median 100.0 ms), batch" in said
    assert given["directory"] == shipped.path_of("job", "text_bag").parent
    (tmp_path / "mine.yaml").write_text("name: mine\ncommand: python x.py\nlocal_run: own.parquet")
    assert call(["profile", "mine.yaml", "--no-progress"]) == 0
    assert (tmp_path / "own.parquet").exists()
    assert "the run that ships" not in capfd.readouterr().out


def test_profile_takes_the_batch_that_the_file_states_and_tells_of_processes_alone(
    monkeypatch, tmp_path, capfd
) -> None:
    ones, sent = np.ones((5, 2)), np.full((5, 2), 1e6)
    seen = LocalRun(1.0, ones, ones, sent, sent, np.full(20, 0.1), 35, 1000)

    def profiled(*_: object, **__: object) -> object:
        return SimpleNamespace(
            run=seen, processes=("master", "worker-1"), recording=SimpleNamespace(metadata={}, notes=())
        )

    monkeypatch.setattr("testbed.cloud.local_run.profile", profiled)
    file = tmp_path / "mine.yaml"

    def said(batch: str) -> str:
        file.write_text(f"name: mine\ncommand: python x.py\n{batch}")
        assert call(["profile", str(file), "--no-progress"]) == 0
        return " ".join(capfd.readouterr().out.split())

    assert "states a batch of 20, which counts, and the model's input begins with 35" in said("batch: 20")
    assert read(tmp_path / "mine.local-run.parquet").batch == 20
    for batch in ("batch: 35", ""):
        assert "begins with" not in said(batch)
        assert read(tmp_path / "mine.local-run.parquet").batch == 35
    assert "exchanged no gradients" not in said("")
    seen = replace(seen, net_in_bytes=sent * 0)
    assert "exchanged no gradients" in said("")
