"""Decisions carried out step by step, with lives that are no processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from control.cluster import NEVER_DOWN, Downtime, Timing
from control.scheduler.model import Assignment, State
from control.scheduler.ports import Scheduler
from testbed.cluster.carrying_out import Carrying
from testbed.cluster.gangs import Seen
from tests.contract.cluster.cluster_backends import workload
from tests.control.scheduler.worlds import cluster


class Moves(Scheduler):
    """It gives job 0 a GPU of server 0, and after 10 s one of the last server that works."""

    at_events = True

    def on_round(self, state: State) -> Assignment:
        server = 0 if state.now_s < 10 else int(np.flatnonzero(state.up)[-1])
        return Assignment(np.array([0]), np.array([server]), np.array([1]))

    def wake_s(self, state: State, given: Assignment) -> float:
        return 10.0


@dataclass
class Lives:
    """One life after the other, each as many steps as the test says. saved: steps of the last save."""

    saved: int = 0
    done: int = 0
    alive: bool = False
    told: list[str] = field(default_factory=list)

    def start(self, job: int, servers: Mapping[int, int], quota_cores: float) -> None:
        self.alive = True
        self.told.append(f"start on {min(servers)}")

    def stop(self, job: int) -> None:
        self.told.append("stop")

    def kill(self, job: int) -> None:
        self.alive, self.done = False, self.saved
        self.told.append("kill")

    def limit(self, job: int, quota_cores: float) -> None: ...

    def look(self, job: int) -> Seen:
        return Seen(self.done, begun=True, alive=self.alive)


def real(lives: Lives, fails: int) -> Carrying:
    """A job of 100 steps, and a server that fails at 12 s."""
    downtime = Downtime(np.array([fails]), np.array([12.0]), np.array([1000.0]))
    where, jobs = cluster((0, 1), (0, 1), (0, 1)), workload([0], [1], [100])
    return Carrying(where, jobs, [100], Moves(), Timing(), lives, downtime, lambda _, rate: rate)


def test_a_fault_where_a_job_is_to_go_leaves_the_life_that_saves_alone() -> None:
    lives = Lives(saved=5)
    moved = real(lives, fails=2)
    moved.tick(0.0, 0.0)
    lives.done = 9
    moved.tick(11.0, 11.0)
    assert lives.told == ["start on 0", "stop"]
    moved.tick(12.0, 1.0)
    lives.alive = False
    moved.tick(13.0, 1.0)
    assert lives.told == ["start on 0", "stop", "start on 1"]
    assert (moved.books.undone[0], moved.books.left[0]) == (0, 91)


def test_a_fault_kills_the_life_on_its_server_and_undoes_what_it_had_not_saved() -> None:
    lives = Lives(saved=5)
    stays = real(lives, fails=0)
    stays.tick(0.0, 0.0)
    lives.done = 9
    stays.tick(9.0, 9.0)
    stays.tick(12.0, 3.0)
    assert lives.told == ["start on 0", "kill", "start on 2"]
    assert (stays.books.undone[0], stays.books.left[0]) == (4, 95)


def test_a_run_ends_with_the_jobs_that_are_watched() -> None:
    lives, jobs = Lives(), workload([0, 0], [1, 1], [100, 100])
    watched = Carrying(
        cluster((0, 1)), jobs, [100] * 2, Moves(), Timing(), lives, NEVER_DOWN, lambda _, rate: rate, until=1
    )
    watched.tick(0.0, 0.0)
    lives.done, lives.alive = 100, False
    watched.tick(9.0, 9.0)
    assert watched.books.unfinished == 0
    assert np.isnan(watched.books.finish[1])
