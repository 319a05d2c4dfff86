"""A real training job on a market of emulated machines, in compressed time.

For: `carry_out`, which runs on real processes what twin.cloud.market simulates, with the same policy object
and the same records; and `Instances`, the emulated machines. Not for: the market's offers, which come from
the scenario. A second of this machine stands for `compression` seconds of the market. A machine takes as long
to start and to leave as the timing says: the real job starts in that time, and waits after its first step
until the machine would be ready. A real start that takes longer counts with its real time. A
notice is SIGTERM, at which a job saves and ends, unless the timing says that it does not save; a loss is
SIGKILL. A job that could not save before the loss gets SIGKILL in place of SIGTERM, because the real save is
quick. A start continues from the checkpoint that the job itself wrote.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from control.market.course import LEAVING, STARTING, WAITING, WORKING, Course, Market, Outcome, Timing
from control.market.ports import IDLE, Policy, Terms
from testbed.cloud.emulated import shape
from testbed.cluster.carrying_out import Executor
from testbed.cluster.gangs import Gangs, Training
from testbed.containers.network import Endpoint, Network
from testbed.containers.ownership import end_run, new_run

_TICK_S, _START_TICK_S = 0.02, 0.002
"""Time between two checks of a running job, and of a starting job, seconds of this machine. Starting jobs are
checked more often, because a job has no quota until its first step is seen."""
JOB = 0
"""Number of the only job at the executor."""


class Instances(Gangs):
    """Emulated machines: a cgroup with a CPU quota, and a namespace behind a shaped link, for each process.

    network_bps: rate of every link in both directions, bit/s.
    """

    def __init__(self, jobs: Sequence[Training], network_bps: float) -> None:
        super().__init__(jobs)
        self._network_bps = network_bps
        self._networks: dict[int, ExitStack] = {}
        """Job → removal of its life's network."""

    def _endpoints(self, job: int, count: int) -> list[Endpoint | None]:
        with ExitStack() as undo:
            run = new_run()
            undo.callback(end_run, run)
            made = Network(run, [f"machine-{rank}" for rank in range(count)])
            undo.callback(made.remove)
            for endpoint in made.endpoints:
                shape(endpoint, self._network_bps)
            self._networks[job] = undo.pop_all()
        return list(made.endpoints)

    def _remove(self, job: int) -> None:
        # A namespace can be removed once its processes have ended.
        with self._networks.pop(job, ExitStack()):
            super()._remove(job)


def carry_out(
    market: Market,
    terms: Terms,
    timing: Timing,
    policy: Policy,
    executor: Executor,
    training: Training,
    *,
    compression: float,
    quota_cores: Callable[[int], float],
    progress: Callable[[float], None] | None = None,
) -> Outcome:
    """Return the result of the job. Real starts and stops that take longer than `timing` count with their
    real time.

    quota_cores: place → CPU quota of each of its machines, cores. Raises BackendError if the job fails.
    """
    real = _Real(market, terms, timing, policy, executor, training, quota_cores)
    began, told = time.monotonic(), 0.0
    while not real.course.over:
        real.step((time.monotonic() - began) * compression)
        share = min(real.course.done_s / terms.work_s, 1.0)
        if progress is not None and share >= told + 0.01:
            told = share
            progress(share)
        time.sleep(_START_TICK_S if real.course.state == STARTING else _TICK_S)
    return real.course.outcome()


class _Real:
    def __init__(
        self,
        market: Market,
        terms: Terms,
        timing: Timing,
        policy: Policy,
        executor: Executor,
        training: Training,
        quota_cores: Callable[[int], float],
    ) -> None:
        self.course = Course(market, terms, policy)
        self.terms, self.timing, self.executor, self.training = terms, timing, executor, training
        self.quota_cores = quota_cores
        losses = [(at_s, True, zone) for at_s, zone in market.losses()]
        self.events = sorted(losses + [(at_s - market.notice_s, False, zone) for at_s, _, zone in losses])
        self.tick, self.due_s, self.launched = 0, 0.0, False

    def step(self, now_s: float) -> None:
        """Check the job, carry out due events, and call the policy if it is time."""
        course = self.course
        self._look(now_s)
        while not course.over and self.events and self.events[0][0] <= now_s:
            _, lost, zone = self.events.pop(0)
            if course.paying == zone:
                self._lose(now_s) if lost else self._notice(now_s, zone)
        if not course.over and now_s >= self.tick * self.terms.tick_s:
            if course.decide(self.tick, now_s):
                losses = (at_s for at_s, lost, zone in self.events if lost and zone == course.paying)
                self._go(now_s, in_time=next(losses, math.inf) >= now_s + self.timing.stop_s)
            self.tick = int(now_s // self.terms.tick_s) + 1

    def _look(self, now_s: float) -> None:
        course = self.course
        if self.launched:
            self._look_at_job(now_s)
        if course.state == LEAVING and not self.launched and now_s >= self.due_s:
            self._next(now_s)

    def _look_at_job(self, now_s: float) -> None:
        course, soon = self.course, self.course.state == STARTING and now_s < self.due_s
        seen = self.executor.look(JOB, release=not soon)
        done_s, saved_s = self._work_s(seen.done), self._work_s(seen.done, saved=True)
        course.worked(done_s, saved_s)
        if soon:
            return
        if seen.done >= self.training.steps:
            if seen.alive:
                self.executor.kill(JOB)
            course.finish(now_s)
        elif not seen.alive:  # It was told to leave, and has saved.
            self.launched = False
            course.worked(done_s, done_s)
        elif course.state == STARTING and seen.begun:
            course.work(now_s)

    def _work_s(self, steps: int, *, saved: bool = False) -> float:
        """Return the work that corresponds to `steps` steps, or the saved part of it, s."""
        training = self.training
        counted = steps // training.every * training.every if saved else steps
        return counted / training.steps * self.terms.work_s

    def _notice(self, now_s: float, zone: int) -> None:
        self.course.notice(now_s, zone)
        if self.timing.saves and self.course.state != LEAVING:
            self.course.go_idle(now_s)
            notice_s = self.course.market.notice_s
            self._go(now_s, in_time=0 < notice_s >= self.timing.stop_s)

    def _lose(self, now_s: float) -> None:
        if self.launched:
            self.executor.kill(JOB)
            self.launched = False
        self.course.revoke(now_s, self._work_s(self.executor.look(JOB, release=False).done))
        self._next(now_s)

    def _go(self, now_s: float, *, in_time: bool) -> None:
        """Leave the held machines, then start the wanted ones. A leave that has already begun continues.

        in_time: whether the job can save before its machines are taken away.
        """
        if self.launched and self.course.state in (STARTING, WORKING):
            self.course.leave(now_s)
            self.due_s = now_s + self.timing.stop_s if in_time else math.inf
            if in_time:
                self.executor.stop(JOB)
            else:
                self.executor.kill(JOB)
                self.launched = False
        elif self.course.state != LEAVING:
            self._next(now_s)

    def _next(self, now_s: float) -> None:
        """Start the job where it is wanted, or wait, when no process of it runs."""
        course = self.course
        if course.state != WAITING:
            course.gone(now_s)
        if course.place != IDLE:
            self.due_s = now_s + self.timing.start_s + self.timing.move_s * course.start(now_s)
            self.executor.start(JOB, {}, self.quota_cores(course.paying))
            self.launched = True
