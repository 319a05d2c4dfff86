"""Recording for real: what commands use is what is recorded, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from testbed.containers.cgroup.drivers import V1, V2
from testbed.containers.record import recorder
from testbed.containers.record.recorder import ContainerSpec, Progress, record
from testbed.containers.record.schedule import Schedule
from tests.patience import PATIENCE_S
from twinbed import BackendError, ScenarioError

FORK_S = 0.02
"""CPU time that a process's own clock counts and its cgroup does not: the fork before it is inside."""

RECORD_FOREVER = (
    "from testbed.containers.record.recorder import *\n"
    "specs = [ContainerSpec(name, ('sh', '-c', {script!r})) for name in ('a', 'b')]\n"
    "record(specs, app='x', network_mode={network!r}, interval_s=0.05,"
    " on_tick=lambda progress: print(progress.samples, flush=True))"
)


def python(name: str, program: str, **more: object) -> ContainerSpec:
    return ContainerSpec(name, (sys.executable, "-c", program), **more)  # type: ignore[arg-type]


def recorder_process(network: str, script: str = "sleep 60 & sleep 60") -> subprocess.Popen[bytes]:
    """A recorder of two containers in a process of its own, past its third sample."""
    program = RECORD_FOREVER.format(network=network, script=script)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    while int(process.stdout.readline() or 3) < 3:
        pass
    return process


# --- requests that are wrong -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "command", "message"),
    [
        ("a/b", ("true",), "container name 'a/b': expected letters"),
        ("", ("true",), "container name '': expected letters"),
        ("a", (), "container a: no command to run"),
    ],
)
def test_a_wrong_container_is_refused(name: str, command: tuple[str, ...], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        ContainerSpec(name, command)


def test_a_limit_must_be_above_zero() -> None:
    with pytest.raises(ScenarioError, match="container a: cpu_quota_cores is 0, expected more than 0"):
        ContainerSpec("a", ("true",), cpu_quota_cores=0)


@pytest.mark.parametrize(
    ("specs", "more", "message"),
    [
        ([], {}, "nothing to record"),
        ([ContainerSpec("a", ("true",))] * 2, {}, "container 'a' is given twice"),
        (
            [ContainerSpec("a", ("true",))],
            {"interval_s": 0.001},
            "interval of 0.001 s: expected at least 0.01 s",
        ),
        ([ContainerSpec("a", ("true",))], {"interval_s": float("nan")}, "interval of nan s"),
        ([ContainerSpec("a", ("true",))], {"duration_s": 0.0}, "duration of 0 s: expected more than 0"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_made(
    specs: list[ContainerSpec], more: dict[str, float], message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        record(specs, app="x", **more)  # type: ignore[arg-type]


# --- what is recorded --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.root
def test_cpu_time_and_memory_of_a_command_are_recorded(driver: V1 | V2) -> None:
    program = (
        "import time\nblock = bytearray(b'x') * (64 << 20)\n"
        "while time.process_time() < 0.6: pass\ntime.sleep(0.3)"
    )
    recording = record([python("busy", program)], app="x", driver=driver)
    assert recording.exit_codes == (0,)
    assert recording.cpu_cores.shape == recording.present.shape == recording.memory_bytes.shape
    assert recording.present.all()
    # The program counts its own CPU time; exec and exit come on top, the fork before it does not.
    assert 0.6 - FORK_S <= recording.cpu_cores.sum() * 0.1 <= 0.9
    assert 64 << 20 <= recording.memory_bytes.max() <= 96 << 20
    assert recording.rx_bytes is None
    assert recording.metadata["exit_code.busy"] == "0"
    assert recording.metadata["missed_ticks"] == str(recording.missed_ticks)
    assert recording.metadata["cgroup_version"] == str(driver.version)
    assert recording.metadata["cpus"] == str(os.cpu_count())


@pytest.mark.root
def test_nothing_in_the_metadata_names_the_host_or_its_user(driver: V1 | V2) -> None:
    recording = record([ContainerSpec("a", ("true",))], app="x", driver=driver)
    text = " ".join(recording.metadata.values())
    assert os.uname().nodename not in text
    assert str(Path.cwd()) not in text
    assert str(Path.home()) not in text


@pytest.mark.slow
@pytest.mark.root
def test_several_containers_are_kept_apart_and_end_when_they_end(driver: V1 | V2) -> None:
    specs = [
        python("busy", "import time\nwhile time.process_time() < 0.4: pass"),
        ContainerSpec("idle", ("sleep", "0.9"), app="other"),
        ContainerSpec("fails", ("sh", "-c", "exit 3")),
    ]
    recording = record(specs, app="x", driver=driver)
    assert recording.containers == ("busy", "idle", "fails")
    assert recording.apps == ("x", "other", "x")
    assert recording.exit_codes == (0, 0, 3)
    used = recording.cpu_cores.sum(axis=0) * 0.1
    assert used[0] >= 0.4 - FORK_S
    assert used[1] < 0.1
    there = recording.present.sum(axis=0)
    assert there[2] < there[1]
    # A container that has ended does not come back, and uses nothing.
    assert (np.diff(recording.present.astype(int), axis=0) <= 0).all()
    assert not recording.cpu_cores[~recording.present].any()
    assert not recording.memory_bytes[~recording.present].any()


@pytest.mark.root
def test_what_a_command_forks_is_counted_with_it(driver: V1 | V2) -> None:
    child = "import time\nwhile time.process_time() < 0.3: pass"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); sys.exit()"
    recording = record([python("parent", program)], app="x", driver=driver)
    assert recording.cpu_cores.sum() * 0.1 >= 0.3 - FORK_S


@pytest.mark.slow
@pytest.mark.root
def test_throttling_under_a_quota_is_recorded(driver: V1 | V2) -> None:
    spec = python("slow", "import time\nwhile time.process_time() < 0.2: pass", cpu_quota_cores=0.2)
    recording = record([spec], app="x", driver=driver)
    assert recording.throttled_s.sum() > 0
    assert int(recording.metadata["nr_throttled.slow"]) > 0
    assert recording.metadata["cpu_quota_cores.slow"] == "0.2"


@pytest.mark.root
@pytest.mark.usefixtures("root_network")
def test_network_bytes_are_recorded_and_names_lead_to_addresses(driver: V1 | V2) -> None:
    size = 1 << 20
    server = (
        "import os, socket\n"
        "server = socket.create_server((os.environ['TWINBED_ADDRESS'], 7000)); peer, _ = server.accept()\n"
        f"left = {size}\nwhile left: left -= len(peer.recv(65536))\npeer.sendall(b'k')"
    )
    client = (
        "import os, socket, time\n"
        "for _ in range(200):\n"
        "    try: peer = socket.create_connection((os.environ['TWINBED_ADDRESS_THE_SERVER'], 7000)); break\n"
        "    except OSError: time.sleep(0.05)\n"
        f"peer.sendall(bytes({size})); peer.recv(1)"
    )
    specs = [python("the-server", server), python("client", client)]
    recording = record(specs, app="x", network_mode="own", driver=driver)
    assert recording.exit_codes == (0, 0)
    assert recording.rx_bytes is not None
    assert recording.tx_bytes is not None
    assert size <= recording.rx_bytes[:, 0].sum() <= 1.1 * size
    assert size <= recording.tx_bytes[:, 1].sum() <= 1.1 * size


@pytest.mark.root
def test_the_first_connection_of_containers_is_dated(driver: V1 | V2) -> None:
    serve = (
        "import socket, time\ns = socket.create_server(('127.0.0.1', 47113))\n"
        "held = s.accept()\ntime.sleep(60)"
    )
    connect = (
        "import socket, time\ntime.sleep(0.5)\n"
        "s = socket.create_connection(('127.0.0.1', 47113))\ntime.sleep(60)"
    )
    specs = [python("server", serve), python("client", connect)]
    recording = record(specs, app="x", duration_s=1.5, driver=driver, meetings=["server", "client"])
    met_s = {name: recording.metadata.get(f"connected_s.{name}") for name in recording.containers}
    assert met_s["server"] == met_s["client"]
    assert 0.5 <= float(met_s["client"] or 0.0) <= 1.5


@pytest.mark.root
def test_a_recording_stops_after_its_duration(driver: V1 | V2, leftovers: Callable[[int], list[str]]) -> None:
    seen: list[Progress] = []
    recording = record(
        [ContainerSpec("long", ("sleep", "60"))], app="x", duration_s=0.45, on_tick=seen.append, driver=driver
    )
    # 0.45 s are four intervals and a half: the fifth is finished.
    assert recording.present.shape == (5, 1)
    assert recording.exit_codes == (None,)
    assert recording.metadata["exit_code.long"] == "stopped"
    assert seen[-1].elapsed_s == pytest.approx(0.5)
    assert seen[0].running == 1
    assert leftovers(os.getpid()) == []


@pytest.mark.slow
@pytest.mark.root
def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(
    driver: V1 | V2, monkeypatch: pytest.MonkeyPatch, leftovers: Callable[[int], list[str]]
) -> None:
    monkeypatch.setattr("testbed.containers.host.container.TERMINATION_GRACE_S", 0.2)
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    record([python("stubborn", stubborn)], app="x", duration_s=0.5, driver=driver)
    assert leftovers(os.getpid()) == []


@pytest.mark.root
def test_processes_left_behind_end_with_their_command(
    driver: V1 | V2, leftovers: Callable[[int], list[str]]
) -> None:
    recording = record([ContainerSpec("a", ("sh", "-c", "sleep 60 & exit 0"))], app="x", driver=driver)
    assert len(recording.present) < 100
    assert recording.notes[-1] == "1 process of a outlived its command and had to be ended."
    assert leftovers(os.getpid()) == []


@pytest.mark.root
def test_a_command_that_the_kernel_killed_for_want_of_memory_is_noted(driver: V1 | V2) -> None:
    spec = python("big", "bytearray(200 << 20)", memory_limit_bytes=50 << 20)
    recording = record([spec], app="x", driver=driver)
    assert recording.exit_codes == (-9,)
    assert recording.notes[-1].startswith("The kernel killed 1 process of big for want of memory")


@pytest.mark.slow
@pytest.mark.root
def test_missed_ticks_are_counted_noted_and_filled(driver: V1 | V2, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stalling(Schedule):
        def wait(self) -> int:
            if self.tick == 2:
                time.sleep(0.35)
            return super().wait()

    monkeypatch.setattr(recorder, "Schedule", Stalling)
    program = "import time\nwhile time.process_time() < 1: pass"
    recording = record([python("busy", program)], app="x", driver=driver)
    assert recording.missed_ticks >= 2
    assert recording.metadata["missed_ticks"] == str(recording.missed_ticks)
    assert "ticks were missed" in recording.notes[0]
    assert recording.cpu_cores.sum() * 0.1 >= 1
    assert (recording.cpu_cores[2:5] > 0).all()


@pytest.mark.root
def test_output_goes_to_logs_when_asked(driver: V1 | V2, tmp_path: Path) -> None:
    specs = [ContainerSpec(name, ("sh", "-c", f"echo {name}; echo bad >&2")) for name in ("a", "b")]
    record(specs, app="x", logs=tmp_path / "logs", driver=driver)
    assert (tmp_path / "logs/a.log").read_text() == "a\nbad\n"
    assert (tmp_path / "logs/b.log").read_text() == "b\nbad\n"


@pytest.mark.root
def test_environment_and_directory_are_the_commands(driver: V1 | V2, tmp_path: Path) -> None:
    spec = ContainerSpec(
        "a", ("sh", "-c", "echo $GREETING > here"), env={"GREETING": "hi"}, directory=tmp_path
    )
    record([spec], app="x", driver=driver)
    assert (tmp_path / "here").read_text() == "hi\n"


# --- what goes wrong ---------------------------------------------------------------------------------


@pytest.mark.root
def test_a_command_that_does_not_exist_is_named_and_the_others_are_ended(
    driver: V1 | V2, leftovers: Callable[[int], list[str]]
) -> None:
    specs = [ContainerSpec("good", ("sleep", "60")), ContainerSpec("bad", ("no-such-command",))]
    with pytest.raises(ScenarioError, match="container bad: no-such-command: cannot be executed"):
        record(specs, app="x", driver=driver)
    assert leftovers(os.getpid()) == []


@pytest.mark.root
def test_a_log_that_cannot_be_written_is_named(driver: V1 | V2, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackendError, match="file: the log cannot be written"):
        record([ContainerSpec("a", ("true",))], app="x", logs=tmp_path / "file", driver=driver)


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("driver", "root_network")
def test_an_interrupted_recorder_leaves_nothing(
    number: signal.Signals, leftovers: Callable[[int], list[str]]
) -> None:
    with recorder_process("own") as process:
        # Two groups in one to three hierarchies and their run's folders, two namespaces, three links.
        assert len(leftovers(process.pid)) >= 6
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert b"KeyboardInterrupt" in errors
    assert leftovers(process.pid) == []


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.usefixtures("driver")
def test_a_second_interrupt_shortens_the_grace(leftovers: Callable[[int], list[str]]) -> None:
    with recorder_process("host", script="trap '' TERM; while :; do sleep 0.1; done") as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert leftovers(process.pid) == []


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.usefixtures("root_network")
def test_what_a_killed_recorder_left_is_removed_by_the_next_start(
    driver: V1 | V2, leftovers: Callable[[int], list[str]]
) -> None:
    with recorder_process("own") as process:
        process.kill()
    assert leftovers(process.pid) != []
    record([ContainerSpec("a", ("true",))], app="x", driver=driver)
    assert leftovers(process.pid) == []
