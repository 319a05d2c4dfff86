"""`twinbed apply`: a dry run by default, what is refused, and the exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.cli.main import call
from lab.containers.advise import model
from lab.containers.apply import places
from testbed.containers.cgroup.drivers import detect
from tests.lab.containers.apply.apply_world import FOUND, MIB, WANTED, World, advice, row
from tests.patience import PATIENCE_S


@pytest.fixture
def world(tmp_path, monkeypatch):
    world = World(tmp_path / "world")
    monkeypatch.setattr(places, "detect", lambda: detect(world.proc))
    for variable in ("DOCKER_HOST", "CONTAINER_HOST"):
        monkeypatch.setenv(variable, f"unix://{tmp_path}/{variable}")
    careful = row("b", verdict="care", reason="The history is short.")
    model.write(advice(row("a"), careful, row("c", verdict="leave")), tmp_path / "advice.json")
    return world


def twinbed(world: World, *arguments: str) -> int:
    path = world.folder.parent / "advice.json"
    return call(["apply", str(path), "--state", str(world.state), "--no-progress", *arguments])


def test_without_yes_it_only_shows_what_would_change_and_why(world, capsys):
    assert twinbed(world, "--map", "a=/pods/a", "--format", "json") == 0
    said = json.loads(capsys.readouterr().out)
    cpu, memory = said["rows"]
    assert (cpu["quantity"], cpu["current"], cpu["new"], cpu["unit"]) == ("CPU limit", "none", 0.5, "cores")
    assert (memory["current"], memory["new"], memory["unit"]) == (256, 64, "MiB")
    assert {cpu["action"], memory["action"]} == {"to set"}
    assert cpu["reason"] == "It was as fast with less."
    assert any("--include-care" in note for note in said["notes"])
    assert any("Nothing was changed" in note for note in said["notes"])
    assert world.values("a") == FOUND[1]
    assert not world.state.exists()


def test_metrics_need_something_to_watch_and_a_free_port(world, capsys):
    assert twinbed(world, "--map", "a=/pods/a", "--metrics", "9117") == 2
    assert "--metrics: only with --yes" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as used:
        taken = f"127.0.0.1:{used.getsockname()[1]}"
        assert twinbed(world, "--yes", "--map", "a=/pods/a", "--metrics", taken) == 2
    assert f"{taken}: metrics cannot be served there (Address already in use)" in capsys.readouterr().err
    assert world.values("a") == FOUND[1]


def test_yes_carries_it_out_and_undo_takes_it_back(world, capsys):
    assert twinbed(world, "--yes", "--map", "a=/pods/a") == 0
    assert "In force: 2 changes" in capsys.readouterr().out
    assert world.values("a") == WANTED
    assert world.values("b") == FOUND[1]
    undo = ["apply", "--undo", "--state", str(world.state), "--format", "json"]
    assert call(undo) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["restored"] == 2
    assert world.values("a") == FOUND[1]
    assert call(undo) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rows"] == []
    assert "nothing to take back" in said["notes"][0]


def test_an_undo_in_a_folder_that_does_not_exist_is_refused_and_makes_none(world, capsys):
    assert call(["apply", "--undo", "--state", str(world.state)]) == 2
    assert f"--state {world.state}: no such folder" in capsys.readouterr().err
    assert not world.state.exists()


def test_a_row_with_care_is_applied_when_asked_for(world):
    assert twinbed(world, "--yes", "--include-care", "--map", "a=/pods/a", "--map", "b=/pods/b") == 0
    assert world.values("b") == WANTED


def test_an_advice_with_rows_to_be_applied_with_care_only_has_no_changes(world, capsys):
    careful = row("a", verdict="care", reason="The history is short.")
    model.write(advice(careful), world.folder.parent / "advice.json")
    assert twinbed(world) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("no changes · Rows to be applied with care, left out: 1; add them with")
    assert "nothing to show" not in said


def test_a_row_that_would_not_leave_room_is_a_problem_that_was_found(world, capsys):
    world.make("a", used=60 * MIB)
    assert twinbed(world, "--yes", "--map", "a=/pods/a") == 1
    assert "refused" in capsys.readouterr().out
    assert world.values("a") == FOUND[1]


def test_an_advice_that_no_container_here_matches_is_a_problem_that_was_found(world, capsys):
    assert twinbed(world, "--yes") == 1
    assert "name it with --map a=NAME" in " ".join(capsys.readouterr().out.split())


def test_what_a_killed_apply_left_is_taken_back_first_and_said(world, capsys):
    twinbed(world, "--yes", "--map", "a=/pods/a")
    state = world.state / "apply-000001.json"
    state.write_text(state.read_text().replace('"applied"', '"carrying"'))
    assert twinbed(world, "--map", "a=/pods/a") == 0
    assert "if it was killed, --yes and --undo take it back" in " ".join(capsys.readouterr().out.split())
    assert twinbed(world, "--yes", "--map", "a=/pods/b") == 0
    assert "An apply that was killed is taken back: 2 limits" in " ".join(capsys.readouterr().out.split())
    assert (world.values("a"), world.values("b")) == (FOUND[1], WANTED)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--canary", "20%"], "need --watch TIME"),
        (["--abort-if", "oom > 0"], "need --watch TIME"),
        (["--watch", "1m", "--canary", "20"], "expected a percentage"),
        (["--watch", "1m", "--canary", "0%"], "more than 0 %"),
        (["--watch", "1m", "--canary", "200%"], "up to 100 %"),
        (["--watch", "soon"], "--watch soon: expected a number and a unit"),
        (["--watch", "1m", "--abort-if", "p99 > 3"], "expected 'throttled > 5%'"),
        (["--map", "a=/pods/../etc"], "without '..'"),
        (["--map", "a=docker:../../x"], "is no name for docker"),
        (["--map", "a=docker:web?all"], "is no name for docker"),
        (["--map", "a=systemd:--version"], "is no name for systemd"),
        (["--map", "a=docker:\x1b[2J"], "is no name for docker"),
        (["--map", "a=lxc:web"], "expected a cgroup's path, or one of docker:web"),
        (["--map", "a=docker:web"], "no daemon listens there"),
        (["--map", "a=pod:web"], "neither Docker's nor Podman's socket is here"),
        (["--map", "a=/pods/zz"], "no such cgroup"),
        (["--undo"], "needs no other option"),
    ],
)
def test_what_is_wrong_is_one_line(world, capsys, arguments, said):
    assert twinbed(world, *arguments) == 2
    line = capsys.readouterr().err
    assert said in line
    assert line.count("\n") == 1
    assert line.strip().isprintable()
    assert world.values("a") == FOUND[1]


def test_a_damaged_state_file_is_named(world, capsys):
    world.state.mkdir()
    (world.state / "apply-000001.json").write_text('{"version": 1, "phase": "carrying"')
    assert twinbed(world, "--yes", "--map", "a=/pods/a") == 2
    assert "apply-000001.json" in capsys.readouterr().err


def limited(world: World) -> bool:
    """Whether the apply has written both limits. A plain file is empty while it is written; a cgroup's is
    not."""
    try:
        return world.values("a") == WANTED
    except ValueError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_in_the_watch_takes_everything_back(world, number, capsys):
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from lab.cli.main import call\n"
        "from lab.containers.apply import places\n"
        "from testbed.containers.cgroup.drivers import detect\n"
        "places.detect = lambda: detect(Path(sys.argv[1]))\n"
        "sys.exit(call(['apply', *sys.argv[2:]]))\n"
    )
    options = ["--state", str(world.state), "--yes", "--map", "a=/pods/a", "--watch", "10m"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(world.proc), str(world.folder.parent / "advice.json"), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
    )
    deadline = time.monotonic() + PATIENCE_S
    while not limited(world):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    shown, said = process.communicate(timeout=PATIENCE_S)
    if number == signal.SIGKILL:
        assert world.values("a") == WANTED
        assert twinbed(world, "--yes", "--map", "a=/pods/b") == 0
        assert "An apply that was killed is taken back: 2 limits" in " ".join(capsys.readouterr().out.split())
    else:
        assert "Taken back, everything is as it was: interrupted" in " ".join(shown.split())
        assert "interrupted" in said
        assert process.returncode == 130
    assert world.values("a") == FOUND[1]
