"""The lock that says who owns something: held by a living process alone, wherever that is seen from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from twinbed.ownership import holder, is_held, is_mine, take

SPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
HOLD = (
    "import sys\nfrom pathlib import Path\nfrom twinbed.ownership import take\n"
    "lock = take(Path(sys.argv[1]), 0.0)\n"
    "print('held' if lock else 'refused', flush=True)\nsys.stdin.read()"
)
ASK = (
    "import sys\nfrom pathlib import Path\nfrom twinbed.ownership import holder, is_held\n"
    "print(is_held(Path(sys.argv[1])), holder(Path(sys.argv[1])))"
)

Hold = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def hold(lock: Path) -> Iterator[Hold]:
    """A function that starts a process which holds the lock. Its arguments come before the process's own."""
    started = []

    def start(*before: str) -> subprocess.Popen[bytes]:
        command = [*before, sys.executable, "-c", HOLD, str(lock)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def space() -> tuple[str, ...]:
    """Return the words that run a command in a PID namespace of its own."""
    if os.geteuid() != 0 or subprocess.run([*SPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a PID namespace needs root")
    return SPACE


def test_a_lock_is_held_until_it_is_released_or_its_owner_dies(lock: Path, hold: Hold) -> None:
    assert not is_held(lock)
    mine = take(lock)
    assert mine is not None
    assert (is_held(lock), is_mine(lock), holder(lock)) == (True, True, os.getpid())
    mine.release()
    mine.release()
    assert (is_held(lock), is_mine(lock), holder(lock)) == (False, False, None)
    process = hold()
    assert take(lock, 0.0) is None
    assert (is_held(lock), is_mine(lock), holder(lock)) == (True, False, process.pid)
    process.kill()
    process.wait()
    assert not is_held(lock)
    again = take(lock)
    assert again is not None
    again.release()


def test_a_zombie_owns_nothing(lock: Path, hold: Hold) -> None:
    process = hold()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    assert (state, is_held(lock)) == ("Z", False)


@pytest.mark.apart
@pytest.mark.root
@pytest.mark.parametrize("apart", ["owner", "observer"])
def test_a_lock_is_seen_from_another_pid_namespace(
    lock: Path, hold: Hold, space: tuple[str, ...], apart: str
) -> None:
    process = hold(*(space if apart == "owner" else ()))
    ask = [*(space if apart == "observer" else ()), sys.executable, "-c", ASK, str(lock)]
    seen, _, shown = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.partition(" ")
    assert seen == "True"
    # An owner further up has no process id in the observer's namespace.
    assert (shown.strip() == "None") == (apart == "observer")
    process.kill()
    assert process.stdout is not None
    assert process.stdout.read() == b""
    assert not is_held(lock)


def test_what_an_owner_starts_or_forks_does_not_own(lock: Path) -> None:
    program = (
        "import os, subprocess, sys, time\nfrom pathlib import Path\nfrom twinbed.ownership import take\n"
        "lock = take(Path(sys.argv[1]))\n"
        "child = subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL)\n"
        "ready, begun = os.pipe()\n"
        "fork = os.fork()\n"
        "if fork == 0:\n    os.close(1); os.write(begun, b'x'); time.sleep(60)\n"
        "os.read(ready, 1)\n"
        "print(child.pid, fork, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(lock)], stdout=subprocess.PIPE, check=False)
    children = list(map(int, done.stdout.split()))
    try:
        for child in children:
            os.kill(child, 0)
        assert not is_held(lock)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def test_a_child_that_has_not_started_its_program_yet_owns_nothing(lock: Path) -> None:
    """A process is killed between the fork of a child and the child's exec, which closes the lock's file."""
    program = (
        "import os, sys, time\nfrom pathlib import Path\nfrom twinbed import ownership\n"
        "lock = ownership.take(Path(sys.argv[1]))\n"
        "ownership._held.clear()\n"
        "if os.fork() == 0:\n    os.close(1); time.sleep(0.05); os._exit(0)\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(lock)], stdout=subprocess.PIPE, check=False)
    assert not is_held(lock)


def test_whoever_looks_does_not_turn_an_owner_away(lock: Path) -> None:
    lock.touch()
    looking = threading.Event()

    def look() -> None:
        while not looking.is_set():
            is_held(lock)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            mine = take(lock, 30.0)
            assert mine is not None
            mine.release()
    finally:
        looking.set()
        for thread in threads:
            thread.join()


def test_a_file_that_was_removed_and_made_again_is_another_lock(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A former owner removes its file between the moments at which it is opened and locked."""
    opened = os.open
    removed = []

    def remove_once(path: Path, flags: int, *mode: int) -> int:
        descriptor = opened(path, flags, *mode)
        if not removed:
            removed.append(path)
            lock.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", remove_once)
    mine = take(lock)
    assert mine is not None
    assert removed == [lock]
    assert is_mine(lock)
    mine.release()


def test_a_file_that_cannot_be_looked_at_counts_as_held(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert is_held(tmp_path / "loop")
    assert not is_held(tmp_path / "missing")
