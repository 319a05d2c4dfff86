"""Faults of a controller and its agents, and what must hold afterwards.

For: one episode, in which the processes start, survive several faults, end (in good order or not), and
leave nothing. Not for: runs on one host, nor for how hosts are run (running_hosts.py).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.faults.enclosure import ROOT
from tests.faults.fault_world import (
    CASE,
    ViolationError,
    World,
    fill,
    make_room,
    remove_cgroup,
    step_clock,
    until,
)
from tests.faults.running_hosts import HOSTS, Episode, lay_out, start_agent, start_controller

Fault = Callable[[Episode, random.Random], str]

BACK_S = 6.0
"""A command that failed is started again within this time, the first times that it does."""


# --- faults ---------------------------------------------------------------------------------------


def kill_agent(episode: Episode, draws: random.Random) -> str:
    """Kill an agent (SIGKILL). The next agent takes over the running containers."""
    host, away_s = draws.choice(HOSTS), draws.uniform(0.0, 1.0)
    episode.agents[host].kill()
    episode.watch(away_s)
    episode.agents[host] = start_agent(host)
    if draws.random() < 0.3:
        # Kill the agent again, in the middle of its start.
        episode.watch(draws.uniform(0.3, 2.0))
        episode.agents[host].kill()
        episode.agents[host] = start_agent(host)
    agent = episode.agents[host]
    episode.until(lambda: agent.says("registered"), f"{host} is back")
    return f"kill -9 of agent {host}, back after {away_s:.2f} s"


def kill_controller(episode: Episode, draws: random.Random) -> str:
    """Kill the controller (SIGKILL). Agents keep their limits and find the next controller."""
    away_s = draws.uniform(0.0, 1.5)
    episode.controller.kill()
    episode.watch(away_s)
    episode.controller = start_controller()
    return f"kill -9 of the controller, back after {away_s:.2f} s"


def kill_both(episode: Episode, draws: random.Random) -> str:
    """Kill the controller and an agent (SIGKILL)."""
    host = draws.choice(HOSTS)
    episode.controller.kill()
    episode.agents[host].kill()
    episode.watch(draws.uniform(0.0, 0.5))
    episode.agents[host] = start_agent(host)
    episode.controller = start_controller()
    return f"kill -9 of the controller and agent {host}"


def end_controller(episode: Episode, draws: random.Random) -> str:
    """End the controller (SIGTERM or Ctrl-C). Containers keep running without it."""
    number = draws.choice((signal.SIGTERM, signal.SIGINT))
    episode.controller.end(number)
    episode.watch(draws.uniform(0.0, 1.0))
    episode.controller = start_controller()
    return f"{number.name} of the controller"


def end_agent(episode: Episode, draws: random.Random) -> str:
    """End an agent (SIGTERM). Its containers end with it, and no others. The next agent starts them again."""
    host = draws.choice(HOSTS)
    episode.expected = {k: v for k, v in episode.expected.items() if not k.endswith(host)}
    episode.agents[host].end()
    if episode.containers(host).folders():
        raise ViolationError(f"agent {host} ended and left {episode.containers(host).folders()}")
    episode.watch(draws.uniform(0.0, 0.5))
    episode.agents[host] = start_agent(host)
    return f"SIGTERM of agent {host}"


def kill_container(episode: Episode, draws: random.Random) -> str:
    """Kill a command (SIGKILL). Its agent starts it again, unless the agent took it over from an earlier
    one."""
    name, pid = draws.choice(sorted(episode.expected.items()))
    del episode.expected[name]
    os.kill(pid, signal.SIGKILL)
    host = name.rpartition("-")[2]
    episode.until(lambda: episode.pids().get(name) != pid, "it is gone")
    deadline = time.monotonic() + BACK_S
    while time.monotonic() < deadline:
        if episode.pids().get(name):
            return f"kill -9 of container {name}"
        episode.watch(0.1)
    # Nobody knows how a command ended that an earlier agent started, so it counts as finished.
    _again(episode, host)
    return f"kill -9 of container {name}, which had been taken over"


def remove_group(episode: Episode, draws: random.Random) -> str:
    """Remove a container's cgroup. The container leaves, and the others stay as they are."""
    host = draws.choice(HOSTS)
    name = draws.choice(sorted(episode.containers(host).folders()))
    episode.expected.pop(name, None)
    folders = episode.containers(host).everywhere(name)
    chosen = draws.choice([folders, [draws.choice(folders)]])
    remove_cgroup(chosen)
    episode.until(lambda: not episode.containers(host).everywhere(name), f"{name} leaves")
    episode.watch(0.3)
    _again(episode, host)
    return f"cgroup {name} removed in {len(chosen)} of {len(folders)} hierarchies"


def stop_somebody(episode: Episode, draws: random.Random) -> str:
    """Stop the controller or an agent (SIGSTOP), and let it continue (SIGCONT)."""
    which = draws.choice((None, *HOSTS))
    process = (episode.controller if which is None else episode.agents[which]).process
    lasts_s = draws.uniform(0.3, 1.0)
    process.send_signal(signal.SIGSTOP)
    episode.watch(lasts_s)
    process.send_signal(signal.SIGCONT)
    episode.watch(0.3)
    return f"{which or 'controller'} stopped for {lasts_s:.2f} s"


def cut_network(episode: Episode, draws: random.Random) -> str:
    """Take an agent's link down and up again, before or after both sides have noticed."""
    host = draws.choice(HOSTS)
    lasts_s = draws.choice((draws.uniform(0.3, 1.5), 4.5))
    subprocess.run(["ip", "link", "set", f"h-{host}", "down"], check=True)
    episode.watch(lasts_s)
    subprocess.run(["ip", "link", "set", f"h-{host}", "up"], check=True)
    episode.watch(0.3)
    return f"network of {host} cut for {lasts_s:.2f} s"


def full_disk(episode: Episode, draws: random.Random) -> str:
    """Fill the disk where agents keep notes, while a container or an agent has to be started again."""
    fill(Path("/tmp"))
    fill(Path("/run"))
    what = draws.choice((stop_somebody, kill_container, kill_agent, kill_controller))
    done = what(episode, draws)
    episode.heal()
    make_room()
    return f"/tmp and /run full, and {done}"


def step_the_clock(episode: Episode, draws: random.Random) -> str:
    """Let the date jump for all processes. No agent may be lost for it."""
    steps = []
    for verb in episode.verbs():
        verb.from_here()
    for _ in range(draws.randint(1, 3)):
        steps.append(round(draws.choice((-1, 1)) * 10 ** draws.uniform(0.0, 8.0)))
        step_clock(steps[-1])
        episode.watch(0.4)
    lost = [
        verb.log.stem for verb in episode.verbs() if verb.says("lost") or verb.says("limits stay unchanged")
    ]
    if lost:
        raise ViolationError(f"date stepped by {steps}, and a connection was lost: {lost}")
    step_clock(0)
    return f"date stepped by {', '.join(map(str, steps))} s"


FAULTS: Mapping[Fault, int] = {
    kill_agent: 4,
    kill_controller: 4,
    kill_both: 2,
    end_controller: 1,
    end_agent: 2,
    kill_container: 3,
    remove_group: 3,
    stop_somebody: 3,
    cut_network: 3,
    full_disk: 3,
    step_the_clock: 3,
}
"""With their weights."""


def _again(episode: Episode, host: str) -> None:
    """End an agent and start it anew, so that a container that left comes back."""
    episode.expected = {k: v for k, v in episode.expected.items() if not k.endswith(host)}
    episode.agents[host].end()
    episode.agents[host] = start_agent(host)


# --- an episode -----------------------------------------------------------------------------------


def episode(world: World, draws: random.Random, count: int, say: Callable[[str, str], None]) -> None:
    """Inject `count` faults under one deployment. say: function that gets the kind and description of each.
    Raises ViolationError."""
    with deployed(world) as running:
        running.heal()
        for _ in range(count):
            (fault,) = draws.choices(list(FAULTS), list(FAULTS.values()))
            done = fault(running, draws)
            running.heal()
            say(f"hosts_{fault.__name__}", done)
        end(running, draws)


@contextmanager
def deployed(world: World, addresses: Mapping[str, str] | None = None) -> Iterator[Episode]:
    """Yield a controller and agents that run. Afterwards they are killed.

    addresses: addresses at which some hosts find the controller, other than on their own link. Raises
    ViolationError that says what is left.
    """
    addresses = addresses or {}
    running: Episode | None = None
    try:
        lay_out()
        running = Episode(world, start_controller(), {})
        running.agents = {host: start_agent(host, addresses.get(host)) for host in HOSTS}
        yield running
    finally:
        make_room()
        step_clock(0)
        for verb in [] if running is None else running.verbs():
            with suppress(ProcessLookupError):
                verb.process.send_signal(signal.SIGCONT)
            verb.kill()
        for host in HOSTS:
            subprocess.run(["ip", "netns", "delete", host], capture_output=True, check=False)
        shutil.rmtree(CASE, ignore_errors=True)
        shutil.rmtree("/dev/shm/verbs", ignore_errors=True)
    world.check_nothing_left()


def end(running: Episode, draws: random.Random) -> None:
    """End everything: in good order, by SIGKILL and `down`, or by `down --all` alone."""
    how = draws.choice(("good order", "down", "down --all"))
    if how == "good order":
        for agent in running.agents.values():
            agent.end()
        running.controller.end()
    elif how == "down":
        for verb in running.verbs():
            verb.kill()
        _twinbed("testbed", "down")
    else:
        _twinbed("testbed", "down", "--all")
        for agent in running.agents.values():
            until(lambda agent=agent: agent.process.poll() is not None, "agents end by down --all")  # type: ignore[misc]
        running.controller.end()
    left = [str(folder) for host in HOSTS for folder in running.containers(host).folders().values()]
    left += [str(path) for path in Path("/run/twinbed").rglob("*")]
    if left:
        raise ViolationError(f"left after {how}: {left}")


def _twinbed(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lab.cli.main", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ViolationError(f"twinbed {' '.join(words)}: {done.returncode} {done.stdout} {done.stderr}")
