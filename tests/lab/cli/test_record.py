"""`twinbed record` as a user meets it: requests read, traces written, failures in one line."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
import typer

from lab.cli.main import app, call
from lab.cli.record import AS_ROOT, write_or_keep
from lab.containers.input.recording import ContainerEntry, from_arguments, from_file
from testbed.containers.record.recorder import ContainerSpec
from tests.lab.sample_traces import usage_trace
from tests.patience import PATIENCE_S
from traces import parquet
from twinbed import BackendError, ScenarioError


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "shop.yaml"
    path.write_text(
        "network: own\n"
        "duration_s: 5\n"
        "containers:\n"
        "  - {name: web, command: sh -c 'echo 1', env: {THREADS: 2}}\n"
        "  - {name: db, command: [sleep, '1'], cpu_quota_cores: 0.5, memory_limit_bytes: 1000000, app: s}\n"
    )
    return path


# --- requests ----------------------------------------------------------------------------------------


def test_one_command_is_named_after_its_program():
    request = from_arguments(["/usr/bin/python3.11", "-c", "pass"], [], None)
    assert request.name == "python3-11"
    assert request.specs == (ContainerSpec("python3-11", ("/usr/bin/python3.11", "-c", "pass")),)


def test_several_containers_are_split_where_the_next_is_named():
    words = ["serve", "--port", "1", "--container", "name=db,cpu_quota_cores=0.5", "--", "store", "--", "x"]
    request = from_arguments(words, ["name=web"], "shop")
    assert request.name == "shop"
    assert request.specs == (
        ContainerSpec("web", ("serve", "--port", "1")),
        ContainerSpec("db", ("store", "--", "x"), cpu_quota_cores=0.5),
    )


def test_the_help_of_containers_names_every_key():
    options = typer.main.get_command(app).commands["record"].params
    (text,) = (option.help for option in options if option.name == "container")
    assert {*ContainerEntry.model_fields} <= {word.strip(",.") for word in text.split()}


def test_a_single_commands_own_container_option_is_left_alone():
    words = ["docker", "--container", "name=x", "--", "y"]
    assert from_arguments(words, [], None).specs[0].command == tuple(words)


@pytest.mark.parametrize(
    ("words", "containers", "message"),
    [
        ([], [], "nothing to record: twinbed record -- COMMAND…"),
        ([], ["name=web"], "--container name=web: no command; write -- COMMAND… after it"),
        (["x"], ["web"], r"--container web: expected name=NAME"),
        (["x"], ["name=web,command=y"], "command is no key here; write it after --"),
        (["x"], ["name=web,env=A"], "env is no key here; give this container in a file, --file YAML"),
        (["x"], ["name=web,memory=1"], "--container name=web,memory=1: memory: unknown key"),
        (["x"], ["name=web,cpu_quota_cores=-1"], "cpu_quota_cores: Input should be greater than 0"),
        (["x"], ["name=a", "name=b"], "--container name=a: no command"),
    ],
)
def test_a_wrong_command_line_is_refused(words, containers, message):
    with pytest.raises(ScenarioError, match=message):
        from_arguments(words, containers, None)


def test_a_file_says_it_all_and_its_commands_run_beside_it(written):
    request = from_file(written, None)
    assert (request.name, request.network, request.interval_s, request.duration_s) == ("shop", "own", 0.1, 5)
    web, db = request.specs
    assert web.command == ("sh", "-c", "echo 1")
    assert web.env == {"THREADS": "2"}
    assert web.directory == written.parent
    assert (db.cpu_quota_cores, db.memory_limit_bytes, db.app) == (0.5, 1_000_000, "s")
    assert from_file(written, "other").name == "other"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- web\n", "expected keys, `containers` among them"),
        ("containers: []\n", "containers: List should have at least 1 item"),
        ("containers:\n  - {name: a}\n", r"containers\.0\.command: missing"),
        ("containers:\n  - {name: a, command: x, cpu_quota: 1}\n", "did you mean 'cpu_quota_cores'"),
        ("containers:\n  - {name: a b, command: x}\n", "container name 'a b'"),
        (
            "network: none\ncontainers:\n  - {name: a, command: x}\n",
            "network: Input should be 'host' or 'own'",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_key(tmp_path, text, message):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=message):
        from_file(path, None)


def test_failures_are_one_line_and_exit_2(tmp_path, capfd):
    assert call(["record", "--file", str(tmp_path / "none.yaml")]) == 2
    assert call(["record", "--out", str(tmp_path / "no" / "x.parquet"), "--", "true"]) == 2
    assert call(["record", "--file", "x.yaml", "--", "true"]) == 2
    output, errors = capfd.readouterr()
    assert output == ""
    assert [line.split(":")[0] for line in errors.splitlines()] == ["twinbed"] * 3


def test_a_recording_is_not_written_as_csv(tmp_path, capfd):
    assert call(["record", "--out", str(tmp_path / "a.csv"), "--", "true"]) == 2
    assert "a.csv: a recording is a .parquet file" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone without rights")
def test_without_root_it_says_what_is_missing_and_the_cure(tmp_path):
    # Rights are given up after everything is imported, by a call that fails as this one is to: the
    # interpreter may lie where nobody can read.
    program = (
        "import os, sys\n"
        "import lab.containers.input.recording, testbed.containers.record.recorder, traces.parquet\n"
        "from lab.cli.main import call\n"
        "call(['record', '--file', '/none'])\n"
        "os.setgid(65534); os.setuid(65534); os.chdir('/tmp')\n"
        "sys.exit(call(['record', '--', 'true']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    _, line = done.stderr.splitlines()
    assert "cgroup" in line


# --- recordings --------------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_a_trace_is_written_and_summed_up(tmp_path, capfd):
    path = tmp_path / "x.parquet"
    program = "import time\nprint('from the command')\nwhile time.process_time() < 0.3: pass"
    assert call(["record", "--out", str(path), "--format", "json", "--", sys.executable, "-c", program]) == 0
    output, errors = capfd.readouterr()
    assert "from the command" in errors
    summary = json.loads(output)
    trace = parquet.read(path)
    assert summary["facts"]["trace"] == str(path)
    assert summary["rows"][0]["exit_code"] == 0
    assert summary["rows"][0]["cpu_mean_cores"] == pytest.approx(trace.cpu_cores.mean())
    # A process's clock also counts the fork before it is in its cgroup.
    assert trace.cpu_cores.sum() * trace.interval_s >= 0.28
    assert trace.metadata["cpus"] == str(os.cpu_count())


@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_a_failing_command_still_makes_a_trace_and_exit_1(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--container", "name=good", "--", "true", "--container", "name=bad", "--", "sh", "-c", "exit 5"]
    assert call(["record", "--name", "pair", *words]) == 1
    (path,) = tmp_path.glob("pair-*T*Z.parquet")
    assert parquet.read(path).metadata["exit_code.bad"] == "5"
    output, _ = capfd.readouterr()
    assert "exit code" in output


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_a_file_records_its_containers(written, tmp_path):
    assert call(["record", "--file", str(written), "--network", "host", "--out", str(tmp_path / "y")]) == 0
    trace = parquet.read(tmp_path / "y")
    assert trace.containers == ("web", "db")
    assert trace.apps == ("shop", "s")
    assert trace.rx_bytes is None


@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_commands_of_a_user_and_their_trace_are_the_user_s(capfd, monkeypatch):
    monkeypatch.setenv("A_SECRET", "x")
    words = ["--user", "nobody", "--env", "GIVEN=y", "--", "sh", "-c", "echo $(id -un) $A_SECRET$GIVEN"]
    # The folder is not below tmp_path, which only root can enter.
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "x.parquet")
        assert call(["record", "--out", str(path), *words]) == 2
        assert "is not yours to write to" in capfd.readouterr().err
        path.parent.chmod(0o777)
        assert call(["record", "--out", str(path), *words]) == 0
        assert path.owner() == "nobody"
    output, _ = capfd.readouterr()
    assert "nobody y\n" in output
    assert AS_ROOT not in " ".join(output.split())


@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_commands_that_ran_as_root_unasked_are_told(tmp_path, capfd, monkeypatch):
    monkeypatch.delenv("SUDO_USER", raising=False)
    for words, told in (([], True), (["--user", "root"], False)):
        arguments = ["record", "--format", "json", "--out", str(tmp_path / "x.parquet"), *words]
        assert call([*arguments, "--", "true"]) == 0
        assert (AS_ROOT in json.loads(capfd.readouterr().out)["notes"]) == told


@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_a_command_that_cannot_run_leaves_no_file(tmp_path, capfd):
    assert call(["record", "--out", str(tmp_path / "x.parquet"), "--", "no-such-command"]) == 2
    assert "no-such-command: cannot be executed" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_ctrl_c_ends_with_130_and_leaves_nothing(tmp_path):
    program = "import sys; from lab.cli.main import call; sys.exit(call(sys.argv[1:]))"
    words = ["record", "--out", str(tmp_path / "x.parquet"), "--", "sh", "-c", "echo up; sleep 60"]
    command = [sys.executable, "-c", program, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert b"interrupted" in errors
    assert list(tmp_path.iterdir()) == []
    mark = f"run-{process.pid}-"
    assert not [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if Path(folder).name.startswith(mark)]


@pytest.fixture
def full(tmp_path):
    """A folder on a disk of its own that has no room left."""
    folder = tmp_path / "full"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mount refused: {mounted.stderr.decode().strip()}")
    with suppress(OSError), (folder / "filler").open("wb", 0) as filler:
        while True:
            filler.write(bytes(4096))
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_a_recording_on_a_full_disk_is_kept_among_temporary_files(tmp_path, full):
    other = tmp_path / "other"
    other.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "lab.cli.main", "record", "--out", full / "job.parquet", "--", "true"],
        env={**os.environ, "TMPDIR": str(other)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "job.parquet: cannot be written (No space left on device)" in done.stderr
    [kept] = other.glob("twinbed-trace-*/job.parquet")
    assert f"The whole recording is in {kept}; move it\n" in done.stderr
    assert done.stderr.count("\n") == 1
    assert parquet.read(kept).apps == ("true",)
    assert [path.name for path in full.iterdir()] == ["filler"]


@pytest.mark.root
def test_a_recording_without_room_anywhere_is_said_to_be_lost(full, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(full))
    with pytest.raises(BackendError, match=r"job\.parquet: .*The recording is lost: .* no room in TMPDIR"):
        write_or_keep(usage_trace(), full / "job.parquet")
    assert [path.name for path in full.iterdir()] == ["filler"]
