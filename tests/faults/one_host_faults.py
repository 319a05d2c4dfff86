"""Faults of runs on one host, each with what must hold afterwards.

For: one case from a random source, start to clean-up. Not for: runs (one_host.py).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lab.runs.store import RunStore
from testbed.containers import leftovers
from testbed.containers.cgroup.drivers import detect
from tests.faults.enclosure import ROOT
from tests.faults.fault_world import (
    CASE,
    DEADLINE_S,
    ViolationError,
    World,
    fill,
    make_room,
    remove_cgroup,
    step_clock,
    until,
)
from tests.faults.one_host import CORES, FOREIGN, PERIOD_S, Child, Form, Outcome
from tests.testbed.containers.waiting import is_gone

Fault = Callable[[World, random.Random], str]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_FULL_S = 3.0
_SCENARIO = """\
name: load
workload:
  containers:
    - {name: a, threads: 1, memory_bytes: 50331648, steps: [{duration_s: 1, cpu_cores: 0.1}]}
    - {name: b, threads: 1, memory_bytes: 50331648, steps: [{duration_s: 1, cpu_cores: 0.1}]}
policies: [escra]
"""


def run(fault: Fault, world: World, draws: random.Random) -> str:
    """Run one case and return a description of it. Raises ViolationError."""
    try:
        done = fault(world, draws)
        make_room()
        world.check_nothing_left()
    finally:
        make_room()
        step_clock(0)
        shutil.rmtree(CASE, ignore_errors=True)
    return done


# --- whoever runs it dies -------------------------------------------------------------------------


def kill_loop(world: World, draws: random.Random) -> str:
    """Kill the loop (SIGKILL) at any moment, also during its start. The containers run on, and `down` removes
    them."""
    form: Form = draws.choice(("loop", "loop", "loop", "load", "recording", "oci"))
    child, after_s = Child(form, draws), draws.uniform(0.0, 1.5)
    time.sleep(after_s)
    stopped_s = draws.choice((0.0, 0.0, draws.uniform(0.3, 0.8)))
    if stopped_s:
        # A container that grows meets its limit now, and is held when the loop dies.
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(stopped_s)
    before = child.containers.pids()
    os.kill(child.pid, signal.SIGKILL)
    outcome = child.wait()
    done = f"kill -9 of a {form} after {after_s:.2f} s, stopped for {stopped_s:.2f} s"
    if outcome.how == "killed":
        time.sleep(draws.uniform(0.0, 0.2))
        _check_nobody_died(before, child.containers.pids(), done)
    if draws.random() < 0.3:
        # The next loop does this when it starts.
        detect().sweep()
    if draws.random() < 0.2:
        _down_by_hand(left=outcome.how == "killed" and bool(before))
        done += ", then down by hand"
    _down()
    return done


def signal_loop(world: World, draws: random.Random) -> str:
    """Send Ctrl-C or SIGTERM, once or several times, at any moment. Everything is cleaned up without
    `down`."""
    form: Form = draws.choice(("loop", "loop", "load", "recording"))
    child, after_s = Child(form, draws), draws.uniform(0.0, 1.5)
    time.sleep(after_s)
    sent = [draws.choice(_SIGNALS) for _ in range(draws.randint(1, 3))]
    for each in sent:
        with suppress(ProcessLookupError):
            os.kill(child.pid, each)
        time.sleep(draws.uniform(0.0, 0.2))
    outcome = child.wait()
    names = "+".join(each.name for each in sent)
    if outcome.how not in ("interrupted", "ended", "killed"):
        raise ViolationError(f"{names} of a {form} after {after_s:.2f} s: {outcome.how} {outcome.text}")
    return f"{names} of a {form} after {after_s:.2f} s: {outcome.how}"


def stop_loop(world: World, draws: random.Random) -> str:
    """Stop the loop (SIGSTOP) and let it continue. No container is killed for it, and the time line is
    kept."""
    child, form = _begun(draws.choice(("loop", "load")), draws)
    lasts_s = draws.uniform(0.3, 1.0)
    before = child.containers.pids()
    os.kill(child.pid, signal.SIGSTOP)
    time.sleep(lasts_s)
    _check_nobody_died(before, child.containers.pids(), "while it was stopped")
    os.kill(child.pid, signal.SIGCONT)
    _check_undisturbed(child, child.wait())
    return f"{form} stopped for {lasts_s:.2f} s"


# --- others die -----------------------------------------------------------------------------------


def kill_container(world: World, draws: random.Random) -> str:
    """Kill one container's command (SIGKILL). The container comes back, and no other is touched."""
    child, _ = _begun("loop", draws)
    name = draws.choice(sorted(child.names))
    before = child.containers.pids()
    until(lambda: child.containers.pid(name), "a process to kill")
    pid = child.containers.pid(name)
    assert pid is not None
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    back = _wait_while_it_runs(child, lambda: child.containers.pid(name) not in (None, pid))
    if back:
        _check_nobody_died(before, child.containers.pids(), f"when {name} was killed", but=name)
        child.containers.check_limits(CORES)
    outcome = child.wait()
    if back and (("kill", name) not in outcome.events or ("restart", name) not in outcome.events):
        raise ViolationError(f"no kill and restart of {name} in {outcome.events}")
    _check_undisturbed(child, outcome, but=name)
    return f"kill -9 of container {name}"


def kill_generator(world: World, draws: random.Random) -> str:
    """Kill the load generator (SIGKILL). The run ends and says so."""
    child, _ = _begun("load", draws)
    pid = _generator(child)
    os.kill(pid, signal.SIGKILL)
    outcome = child.wait(DEADLINE_S / 2)
    if outcome.how != "error" or "load generator died" not in outcome.text:
        raise ViolationError(f"{outcome.how}: {outcome.text}")
    return "kill -9 of the load generator"


def stop_generator(world: World, draws: random.Random) -> str:
    """Stop the load generator (SIGSTOP) and let it continue."""
    child, _ = _begun("load", draws)
    pid, lasts_s = _generator(child), draws.uniform(0.3, 1.0)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(lasts_s)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    _check_undisturbed(child, child.wait())
    return f"load generator stopped for {lasts_s:.2f} s"


def remove_group(world: World, draws: random.Random) -> str:
    """Remove a cgroup of ours, in all hierarchies or in one. Its container leaves, and the others stay."""
    child, _ = _begun("loop", draws)
    name = draws.choice(sorted(child.names))
    folders = child.containers.everywhere(name)
    chosen = draws.choice([folders, [draws.choice(folders)]])
    before = child.containers.pids()
    remove_cgroup(chosen)
    if _wait_while_it_runs(child, lambda: not child.containers.pids().get(name)):
        _check_nobody_died(before, child.containers.pids(), f"when {name} was removed", but=name)
    _check_undisturbed(child, child.wait(), but=name)
    return f"cgroup {name} removed in {len(chosen)} of {len(folders)} hierarchies"


# --- no room, another date ------------------------------------------------------------------------


def full_disk(world: World, draws: random.Random) -> str:
    """Fill the disk, from the beginning or at any moment. The run ends with one line, or is not affected."""
    form: Form = draws.choice(("loop", "loop", "load", "recording", "oci"))
    folders = draws.choice((["/tmp"], ["/run"], ["/tmp", "/run"]))
    first = draws.random() < 0.4
    after_s = 0.0 if first else draws.uniform(0.0, 1.2)
    if first:
        _fill(folders)
    child = Child(form, draws)
    time.sleep(after_s)
    if not first:
        _fill(folders)
    killed = draws.random() < 0.3
    if killed:
        time.sleep(draws.uniform(0.0, 0.5))
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
    outcome = child.wait()
    done = f"{' and '.join(folders)} full after {after_s:.2f} s of a {form}"
    if outcome.how not in ("ended", "error", "killed"):
        raise ViolationError(f"{done}: {outcome.how} {outcome.text}")
    if killed:
        _down()
    for folder in folders:
        Path(folder, "filler").unlink()
    return f"{done}: {'killed' if killed else f'{outcome.how} {outcome.text}'}"


def step_the_clock(world: World, draws: random.Random) -> str:
    """Let the date jump. No row is lost or invented, and no container is killed."""
    child, form = _begun(draws.choice(("loop", "load")), draws)
    before, steps = child.containers.pids(), []
    for _ in range(draws.randint(1, 3)):
        steps.append(round(draws.choice((-1, 1)) * 10 ** draws.uniform(0.0, 8.0)))
        step_clock(steps[-1])
        time.sleep(draws.uniform(0.05, 0.2))
    if _wait_while_it_runs(child, lambda: True):
        _check_nobody_died(before, child.containers.pids(), "when the date jumped")
    _check_undisturbed(child, child.wait())
    return f"date stepped by {', '.join(map(str, steps))} s under a {form}"


# --- the command line -----------------------------------------------------------------------------


def hurt_scenario(world: World, draws: random.Random) -> str:
    """Kill or interrupt `twinbed run --backend testbed`, or fill its disk. The store stays whole, too."""
    CASE.mkdir()
    scenario, store, said = CASE / "load.yaml", CASE / "store", Path("/dev/shm/said")
    scenario.write_text(_SCENARIO)
    words = ("run", str(scenario), "--backend", "testbed", "--store", str(store), "--no-progress")
    after_s, how = draws.uniform(0.3, 5.0), draws.choice(("SIGKILL", "SIGKILL", "SIGINT", "SIGTERM", "full"))
    with said.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.cli.main", *words], cwd=ROOT, stdout=file, stderr=file
        )
    with suppress(subprocess.TimeoutExpired):
        process.wait(after_s)
    if how == "full":
        _fill(["/tmp", "/run"])
        # The disk is full for a while only, because containers that cannot report that they are ready are
        # given two minutes.
        with suppress(subprocess.TimeoutExpired):
            process.wait(_FULL_S)
        make_room()
    else:
        process.send_signal(signal.Signals[how])
    try:
        code = process.wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise ViolationError(f"{how} after {after_s:.2f} s: the scenario goes on") from None
    text = said.read_text(errors="replace")
    said.unlink()
    if "Traceback" in text:
        raise ViolationError(f"{how} after {after_s:.2f} s of a scenario: {text}")
    if how == "SIGKILL":
        _down()
    RunStore(store)
    left = [path.name for path in store.glob(".*") if path.name != ".lock"]
    if left:
        raise ViolationError(f"left in the store: {left}")
    return f"{how} after {after_s:.2f} s of a scenario: exit code {code}"


# --- what must hold -------------------------------------------------------------------------------


def _begun(form: Form, draws: random.Random) -> tuple[Child, Form]:
    """Return a child whose time line has begun, with limits that add up, and its form."""
    child = Child(form, draws)
    if not child.running():
        raise ViolationError(f"{form} did not begin: {child.wait()}")
    time.sleep(draws.uniform(0.0, 0.4))
    child.containers.check_limits(CORES)
    return child, form


def _check_nobody_died(
    before: dict[str, frozenset[int]], now: dict[str, frozenset[int]], when: str, but: str = ""
) -> None:
    """Check that the first process of each container still lives. Young containers may start other
    processes."""
    for name, pids in before.items():
        if name != but and pids and min(pids) not in now.get(name, ()):
            raise ViolationError(f"{name} lost process {min(pids)} {when}: {now.get(name)}")


def _check_undisturbed(child: Child, outcome: Outcome, but: str = "") -> None:
    """Check that the run, with all containers but one, continued to its end."""
    if outcome.how != "ended":
        raise ViolationError(f"{outcome.how}: {outcome.text}")
    if child.form == "loop" and abs(outcome.rows - child.lasts_s / PERIOD_S) > 1:
        raise ViolationError(f"{outcome.rows} periods in {child.lasts_s:.2f} s")
    hurt = [
        (kind, name) for kind, name in outcome.events if kind in ("kill", "leave", "restart") and name != but
    ]
    if hurt:
        raise ViolationError(f"others were hurt: {hurt}")
    down = [name for name, up in outcome.up.items() if not up and name not in (but, FOREIGN)]
    if down:
        raise ViolationError(f"not up in the end: {down}")


def _wait_while_it_runs(child: Child, look: Callable[[], bool]) -> bool:
    """Wait until `look` returns true. Returns False if the run was over before."""
    while not is_gone(child.pid):
        if look():
            return not is_gone(child.pid)
        time.sleep(0.005)
    return False


def _generator(child: Child) -> int:
    """Return the generator's process: the child's process that is in no container."""
    contained = frozenset().union(*child.containers.pids().values())
    tasks = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    return next(int(pid) for pid in tasks if int(pid) not in contained)


def _fill(folders: list[str]) -> None:
    for path in folders:
        fill(Path(path))


def _down() -> None:
    leftovers.down(detect())


def _down_by_hand(*, left: bool) -> None:
    """Check with `twinbed testbed` itself: `status` says whether anything is left, and `down` removes it."""
    codes = [_twinbed("testbed", *words) for words in (("status",), ("down",), ("status",))]
    if codes[1:] != [0, 0] or (left and codes[0] != 1):
        raise ViolationError(f"exit codes of status, down, status: {codes}, left {left}")


def _twinbed(*words: str) -> int:
    command = [sys.executable, "-m", "lab.cli.main", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode


FAULTS: dict[Fault, int] = {
    kill_loop: 6,
    signal_loop: 6,
    stop_loop: 2,
    kill_container: 4,
    kill_generator: 2,
    stop_generator: 1,
    remove_group: 5,
    full_disk: 6,
    step_the_clock: 4,
    hurt_scenario: 4,
}
"""Faults, with the weights with which they are drawn."""
