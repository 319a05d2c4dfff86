"""The VM runs commands, ends what they leave, and is gone with whoever started it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kernel.build import object_file
from testbed.vm import NOT_STARTED, TIMED_OUT, StoppedError, Vm, __main__, boot, host
from tests.testbed.containers.waiting import until
from twinbed import BackendError

INSIDE = (
    "tests/contract/reconciler/test_keeping_rules_in_step.py",
    "tests/contract/test_carrying_out_decisions.py",
    "tests/kernel/test_loader.py",
    "tests/testbed/containers/cgroup/test_hooks.py",
    "tests/testbed/containers/cgroup/test_limits.py",
    "tests/testbed/containers/cgroup/test_oom_trap.py",
    "tests/testbed/fabric/rules/test_flower_rules.py",
    "tests/testbed/fabric/test_netem.py",
)
"""Tests of what this machine's kernel may lack: BPF tracing, cgroup v2's controllers, flower and netem."""

LEFT_OUT = "not thousand and not policies and not linux-bpf and not linux-remote and not linux-podman"
"""Cases that do not run in the guest: a thousand traps, and what policies decide, because other cases set the
same limits on the same groups. Rules by BPF run on this machine's kernel. So do controller and agents: under
emulation their grants come so late that containers ask again, and a third of the telemetry is late. Podman
cannot start containers on the guest's root, which is this machine's."""

PLUGINS = ("-ppytest_timeout", "-ppytest_rerunfailures", "-pno:cacheprovider")
"""Only what is needed: each plugin takes long to load under emulation."""

INSIDE_TIMEOUT_S = 900
"""For all cases together; 333 seen beside eight other programs on two cores, less on idle ones."""

OUTCOME = re.compile(r"^(tests/\S+?::.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS|$)", re.MULTILINE)
"""A line of `pytest -v`: the case, and once it has ended its outcome."""


# --- where there is none -----------------------------------------------------------------------------


def test_without_qemu_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot, "find_program", lambda name: None)
    assert boot.available() == (
        False,
        "qemu-system-x86_64 is not installed (Debian's qemu-system-x86): make system-vm",
    )
    with pytest.raises(BackendError, match=r"no VM here: qemu-system-x86_64 .*make system-vm"):
        Vm().start()


def test_without_a_stock_kernel_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vmlinuz-6.1.0-56-cloud-amd64").touch()
    monkeypatch.setattr(boot, "BOOT", tmp_path)
    with pytest.raises(BackendError, match=r"no stock Debian kernel .*make system-vm"):
        boot.kernel_image()


def test_the_newest_stock_kernel_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("6.1.0-9-amd64", "6.1.0-56-amd64", "6.1.0-57-rt-amd64", "6.12.0-1-amd64"):
        (tmp_path / f"vmlinuz-{name}").touch()
    monkeypatch.setattr(boot, "BOOT", tmp_path)
    assert boot.release(boot.kernel_image()) == "6.1.0-56-amd64"


def test_a_vm_that_was_not_started_runs_nothing() -> None:
    with pytest.raises(BackendError, match="start it first"):
        Vm().run(["true"], 1)
    Vm().stop()


STAND_IN = """
import sys, time
print('{"ready": "6.1"}', flush=True)
for line in sys.stdin:
    while "chatty" in line:
        time.sleep(0.01)
        print('{"alive": true}', flush=True)
    for _ in range(3 if "slow" in line else 0):
        time.sleep(0.3)
        print('{"alive": true}', flush=True)
    if "silence" not in line:
        print('{"rc": 0}', flush=True)
"""
"""What a VM says, without one."""


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every VM a process of this machine that says what a VM says."""
    monkeypatch.setattr(host, "available", lambda: (True, "a stand-in"))
    monkeypatch.setattr(boot, "kernel_image", lambda: Path("vmlinuz"))
    monkeypatch.setattr(boot, "initramfs", lambda image: b"")
    monkeypatch.setattr(boot, "command", lambda *given: [sys.executable, "-c", STAND_IN])


@pytest.mark.usefixtures("stand_in")
def test_a_command_that_outlives_its_time_is_given_up_though_the_guest_goes_on_talking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "_GRACE_S", 0.2)
    with Vm() as vm:
        with pytest.raises(BackendError, match="does not end its command"):
            vm.run(["chatty"], 0.1)
        assert vm.pid is None


@pytest.mark.usefixtures("stand_in")
def test_a_vm_that_has_ended_is_off_after_the_next_command() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    vm = Vm()
    vm.start()
    os.kill(vm.pid or 0, signal.SIGKILL)
    until(lambda: vm.pid is None, "it ends")
    with pytest.raises(StoppedError):
        vm.run(["true"], 60)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.usefixtures("stand_in")
def test_a_vm_that_stops_is_given_up_and_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "STOPPED_S", 0.5)
    with Vm() as vm:
        assert vm.run(["slow"], 60).rc == 0
        with pytest.raises(StoppedError, match=r"the VM stopped \(.*\); its console said last: nothing"):
            vm.run(["silence"], 900)
        assert vm.pid is None
        with pytest.raises(BackendError, match="start it first"):
            vm.run(["true"], 60)
        vm.start()
        assert vm.run(["true"], 60).rc == 0


def test_a_boot_that_stops_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    boots = []
    monkeypatch.setattr(host, "available", lambda: (True, "a stand-in"))
    monkeypatch.setattr(host, "BOOT_S", 0.5)
    monkeypatch.setattr(boot, "kernel_image", lambda: Path("vmlinuz"))
    monkeypatch.setattr(boot, "initramfs", lambda image: b"")
    monkeypatch.setattr(boot, "command", lambda *given: boots.append(given) or ["sleep", "60"])
    with pytest.raises(StoppedError):
        Vm().start()
    assert len(boots) == host.BOOTS


def test_waiting_for_a_cpu_is_counted() -> None:
    assert host.cpu_waits_s(os.getpid())[str(os.getpid())] > 0


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["--"]) == 2
    assert "usage: python -m testbed.vm -- COMMAND" in capsys.readouterr().err


# --- booted ------------------------------------------------------------------------------------------


@pytest.mark.vm
def test_a_vm_dies_with_whoever_started_it() -> None:
    bootable, reason = boot.available()
    if not bootable:
        pytest.skip(reason)
    starter = subprocess.Popen([sys.executable, "-m", "testbed.vm", "--", "true"], stderr=subprocess.DEVNULL)
    children = Path(f"/proc/{starter.pid}/task/{starter.pid}/children")

    def qemu() -> int | None:
        # The trial of KVM is a QEMU too, and the process is Python until it has executed it.
        for pid in children.read_text().split():
            words = _command(int(pid)).split(b"\0")
            if b"qemu" in words[0] and any(b"virtio-9p" in word for word in words):
                return int(pid)
        return None

    until(lambda: qemu() is not None)
    pid = qemu()
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    until(lambda: not Path(f"/proc/{pid}").exists() or b"qemu" not in _command(pid))


def _command(pid: int | None) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.mark.vm
@pytest.mark.timeout(400)
def test_commands_run_on_the_stock_kernel(vm: Vm) -> None:
    done = vm.run(["sh", "-c", "uname -r; echo oops >&2; echo $WORD; pwd; exit 3"], 60, env={"WORD": "ßø"})
    assert (done.rc, done.stderr) == (3, "oops\n")
    assert done.stdout.splitlines() == [vm.release, "ßø", str(Path.cwd())]
    controllers = vm.run(["cat", "/sys/fs/cgroup/cgroup.controllers"], 60).stdout.split()
    assert {"cpu", "memory"} <= set(controllers)


@pytest.mark.vm
@pytest.mark.timeout(400)
def test_much_output_arrives_whole(vm: Vm) -> None:
    done = vm.run(["head", "-c", "3000000", "/dev/zero"], 120)
    assert (done.rc, len(done.stdout)) == (0, 3_000_000)


@pytest.mark.vm
@pytest.mark.timeout(400)
def test_a_command_that_takes_too_long_is_killed_with_what_it_started(vm: Vm) -> None:
    late = vm.run(["sh", "-c", "sleep 1000 & sleep 1000"], 0.5)
    assert late.rc == TIMED_OUT
    assert " sh -c sleep" in late.stderr
    assert vm.run(["sh", "-c", "sleep 1000 & echo on"], 60).stdout == "on\n"
    assert "1000" not in vm.run(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"], 60).stdout


@pytest.mark.vm
@pytest.mark.timeout(400)
def test_a_command_that_does_not_exist_is_said(vm: Vm) -> None:
    done = vm.run(["/no/such/program"], 60)
    assert done.rc == NOT_STARTED
    assert done.stderr == "/no/such/program: No such file or directory\n"
    assert vm.run(["sh", "-c", "kill -9 $$"], 60).rc == -9


@pytest.mark.vm
@pytest.mark.slow
@pytest.mark.timeout(3 * INSIDE_TIMEOUT_S)
def test_hooks_cgroup_v2_flower_and_contracts_work_inside(vm: Vm, capsys: pytest.CaptureFixture[str]) -> None:
    """One run of pytest does all, because Python takes long to start under emulation.

    A case that fails in a live guest runs a second time there. A case that hangs fails with the stacks of its
    threads (pytest-timeout), and the whole with those of the kernel. If the guest stops, the case that ran
    is repeated in a guest that is booted anew, and the cases before it are not.
    """
    object_file()
    root = Path(__file__).parents[2]
    selection = ["-v", "-ra", "-m", "root", "-k", LEFT_OUT, *(str(root / path) for path in INSIDE)]
    patience = ["--reruns", "1", "--timeout", "180"]
    command = [sys.executable, "-m", "pytest", *PLUGINS, *patience, "--durations=10", *selection]
    output, interrupted, outcomes = bytearray(), Counter[str](), dict[str, str]()

    def show(stream: str, data: bytes) -> None:
        output.extend(data)
        print(data.decode(errors="replace"), end="", flush=True)

    with capsys.disabled():
        while True:
            env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
            env["TWINBED_DONE"] = "\n".join(outcomes)
            try:
                done = vm.run(command, INSIDE_TIMEOUT_S, cwd=root, env=env, on_output=show)
                break
            except StoppedError as error:
                print(f"\n{error}\nbooted anew")
                cases = OUTCOME.findall(output.decode(errors="replace"))
                outcomes |= {case: outcome for case, outcome in cases if outcome}
                interrupted.update("a rerun" if outcome else case for case, outcome in cases[-1:])
                if not cases or max(interrupted.values()) == 3:
                    raise
                output.clear()
                vm.start()
        print(f"boot {vm.boot_s:.0f} s, tests {done.wall_s:.0f} s")
    assert done.rc == 0, done.stderr
    assert not {"FAILED", "ERROR"} & set(outcomes.values()), outcomes


STARVED = """
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
for cpu in 0 1; do chrt --fifo 99 sh -c "while :; do :; done" & done
sleep 1000"""
"""A program that leaves no CPU to any other. It comes last, because the guest is booted again after it."""


@pytest.mark.vm
@pytest.mark.timeout(400)
def test_a_guest_in_which_nothing_runs_any_more_has_stopped(vm: Vm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "STOPPED_S", 5)
    with pytest.raises(StoppedError, match=r"stopped \(CPU 0 (in|at) .*, CPU 1 (in|at) .*\)"):
        vm.run(["sh", "-c", STARVED], 600)
