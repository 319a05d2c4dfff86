"""Run one job on a market in virtual time. Starts, saves, notices and losses are events of SimPy's clock.

For: `simulate`, which does in virtual time what testbed.cloud.market does on real processes, with the same
policy object and the same books. Not for: thousands of windows at once (deadline.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import simpy

from control.market.course import LEAVING, STARTING, WORKING, Course, Market, Outcome, Timing
from control.market.ports import CLOSE, IDLE, Policy, Terms


def simulate(
    market: Market,
    terms: Terms,
    timing: Timing,
    policy: Policy,
    progress: Callable[[float], None] | None = None,
) -> Outcome:
    """Return the result of a job that starts at 0 s. progress: function called with the share of work
    done."""
    run = _Run(market, terms, timing, policy, progress)
    run.env.run(until=run.ended)
    return run.course.outcome()


class _Run:
    def __init__(
        self,
        market: Market,
        terms: Terms,
        timing: Timing,
        policy: Policy,
        progress: Callable[[float], None] | None,
    ) -> None:
        self.course = Course(market, terms, policy)
        self.market, self.terms, self.timing = market, terms, timing
        self.env, self.progress = simpy.Environment(), progress
        self.ended = self.env.event()
        self.turn = 0
        """Number of the current machine's life. Processes of earlier lives stop by themselves."""
        self.since_s = 0.0
        self.left_s = 0.0
        """Time at which the job that leaves its machines has saved, s."""
        self.env.process(self._losses())
        self.env.process(self._ticks())

    def _ticks(self) -> Generator[simpy.Event, None, None]:
        tick = 0
        while True:
            self._work()
            if self.course.over:
                return
            if self.course.decide(tick, self.env.now):
                self._go()
            if self.progress is not None:
                self.progress(min(self.course.done_s / self.terms.work_s, 1.0))
            tick += 1
            yield self.env.timeout(tick * self.terms.tick_s - self.env.now)

    def _losses(self) -> Generator[simpy.Event, None, None]:
        """Announce every loss of machines, and take them away."""
        happen = [(at_s, True, zone) for at_s, zone in self.market.losses()]
        happen += [(at_s - self.market.notice_s, False, zone) for at_s, _, zone in happen]
        for at_s, lost, zone in sorted(happen):
            if at_s < self.env.now:
                continue
            yield self.env.timeout(at_s - self.env.now)
            if self.course.over:
                return
            if self.course.paying == zone:
                self._lose() if lost else self._notice(zone)

    def _notice(self, zone: int) -> None:
        self.course.notice(self.env.now, zone)
        self._work()
        if self.timing.saves and self.course.state in (STARTING, WORKING):
            self.course.go_idle(self.env.now)
            self._go()

    def _lose(self) -> None:
        self._work()
        if self.course.over:
            return
        in_time = self.market.notice_s > 0 and self.env.now >= self.left_s - CLOSE
        if self.course.state == LEAVING and in_time:
            self.course.worked(self.course.done_s, self.course.done_s)
        self.course.revoke(self.env.now, self.course.saved_s)
        self.turn += 1
        if self.course.place != IDLE:
            self.env.process(self._life(self.turn))

    def _go(self) -> None:
        """Leave the held machines, then start the wanted ones. A leave that has begun continues."""
        if self.course.state == LEAVING:
            return
        self.turn += 1
        self.env.process(self._life(self.turn))

    def _life(self, turn: int) -> Generator[simpy.Event, None, None]:
        course, timing = self.course, self.timing
        if course.state in (STARTING, WORKING):
            course.leave(self.env.now)
            self.left_s = self.env.now + timing.stop_s
            yield self.env.timeout(timing.stop_s)
            if turn != self.turn:
                return
            course.worked(course.done_s, course.done_s)
            course.gone(self.env.now)
        if course.place == IDLE:
            return
        moved = course.start(self.env.now)
        yield self.env.timeout(timing.start_s + timing.move_s * moved)
        if turn != self.turn:
            return
        course.work(self.env.now)
        self.since_s = self.env.now
        yield self.env.timeout((self.terms.work_s - course.done_s) / course.speed)
        if turn != self.turn:
            return
        self._finish()

    def _work(self) -> None:
        """Record the work since the last call."""
        course = self.course
        if course.state == WORKING:
            done_s = course.done_s + (self.env.now - self.since_s) * course.speed
            self.since_s = self.env.now
            # A tiny share of work is added, so that rounding does not lose a save that ends at this instant.
            course.worked(done_s, int(done_s / self.timing.every_s + 1e-9) * self.timing.every_s)
            if done_s >= self.terms.work_s - CLOSE:
                self._finish()

    def _finish(self) -> None:
        self.turn += 1
        self.course.finish(self.env.now)
        self.ended.succeed()
