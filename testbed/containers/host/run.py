"""The event loop of a run: periods, traps, ends of commands, starts, joins and leaves, in real time.

For: when everything happens, on one epoll and one timer. Not for: what is decided (control) or how it is
carried out (decisions.py). All times are CLOCK_MONOTONIC, so a step of the date changes nothing. A
container or a cgroup that vanishes leaves the run; nothing of it ends the loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from control.allocator.model import Application, Decision, Ids, PeriodStats
from control.allocator.ports import Allocator
from testbed.containers.cgroup.meter import AnyOomKills
from testbed.containers.host.decisions import Hands
from testbed.containers.host.fleet import Fleet
from testbed.containers.host.lives import Lives
from testbed.containers.host.records import Books
from testbed.containers.host.supervised import NS, Status, Supervised
from testbed.containers.host.wakeups import NEVER_NS, Wakeups
from testbed.containers.ports import GroupGoneError, TelemetrySource
from twinbed import BackendError, InvariantError

STARTUP_TIMEOUT_S = 120.0
"""How long containers may take to become ready before the run is given up."""

_CHORES_NS = NS


class ControlLoop:
    """One run. deploy, begin, run and close, once each and in this order.

    decide_s: time spent in the allocator's on_period; untrapped: containers for which the allocator wanted a
    trap and the kernel has none.
    """

    def __init__(
        self,
        fleet: Fleet,
        applications: Sequence[Application],
        allocator: Allocator,
        source: TelemetrySource,
        books: Books,
        logs: Path | None,
    ) -> None:
        self._fleet, self._applications, self._allocator = fleet, applications, allocator
        self._source, self._books = source, books
        self._wakeups = Wakeups()
        self._lives = Lives(
            fleet,
            books,
            self._wakeups,
            logs,
            leave=lambda each: self._leave([each]),
            killed=self._killed_for_memory,
        )
        self._hands = Hands(fleet, allocator, books, gone=self._vanish, take_down=self._lives.take_down)
        self._told = False
        if source.descriptor >= 0:
            self._wakeups.watch(source.descriptor, self._on_source)
        self._kills = AnyOomKills()
        self._held: list[Supervised] = []
        self._late = [each for each in fleet.containers if each.managed.begins_s > 0]
        self._ending = [each for each in fleet.containers if each.managed.ends_s is not None]
        self._sweep_ns = self._chores_ns = NEVER_NS
        self.decide_s = 0.0
        self.untrapped = 0

    # --- a run -----------------------------------------------------------------------------------

    def deploy(self) -> None:
        """First limits, then the commands, until all are ready. Raises BackendError naming who is not.

        Where containers have something to become ready for, CPU is limited only after that.
        """
        # Its first call imports numpy.ma, 10 ms that the first held container would wait for.
        np.unique(np.empty(0))
        first = [each for each in self._fleet.containers if each.managed.begins_s == 0 and each.attach()]
        columns = [each.index for each in first]
        decision = self._allocator.start(self._applications, self._fleet.joining(columns))
        slow = any(each.managed.ready is not None for each in first)
        now_ns = time.monotonic_ns()
        self._chores_ns = now_ns + _CHORES_NS
        if slow:
            self._admit(first, Decision(memory=decision.memory), decision.cpu.ids)
            self._start_all(first)
            self._await_ready(first)
            self._hands.carry_out(Decision(cpu=decision.cpu, reclaim=decision.reclaim))
            self._settle()
        else:
            self._admit(first, decision, decision.cpu.ids)
            self._settle()
            self._start_all(first)

    def begin(self, start_ns: int) -> None:
        """The time line begins at `start_ns`."""
        self._books.begin(start_ns)
        self.decide_s = 0.0
        if self._allocator.reclaim is not None:
            self._sweep_ns = start_ns + round(self._allocator.reclaim.interval_s * NS)

    def run(self, until_ns: int | None, on_row: Callable[[], bool]) -> None:
        """Serves until `until_ns`, or until `on_row`, called after each row, says no, or all have ended."""
        going = self._anyone()
        while going and (until_ns is None or time.monotonic_ns() < until_ns):
            if self._turn(until_ns or NEVER_NS):
                going = on_row() and self._anyone()

    def close(self) -> None:
        """Ends the loop's own parts; the containers run on. Idempotent."""
        self._wakeups.close()
        self._kills.close()
        for each in self._fleet.containers:
            each.let_go()
            each.close_pidfd()

    @property
    def restarts_s(self) -> list[float]:
        """From a container's end until it was up again, of each restart."""
        return self._lives.restarts_s

    # --- one turn --------------------------------------------------------------------------------

    def _turn(self, until_ns: int) -> bool:
        """Sleeps until something is to be done, and does it; whether a row of the record has ended."""
        due_ns = self._source.due_ns()
        ready = self._wakeups.sleep(min(due_ns, self._next_ns(), until_ns))
        now_ns = time.monotonic_ns()
        row_ended = self._books.advance(now_ns)
        if row_ended:
            self._look_for_kills()
        for handler in ready:
            handler()
        if self._held:
            self._serve_held(now_ns)
        if due_ns <= now_ns or self._told:
            self._told = False
            self._telemetry(due_ns, now_ns)
        self._chores(now_ns)
        return row_ended

    def _next_ns(self) -> int:
        """When something is due besides telemetry."""
        due = [self._sweep_ns, self._chores_ns, self._lives.next_ns()]
        if self._books.start_ns is not None:
            due.append(self._books.row_ends_ns())
        return min(due)

    def _chores(self, now_ns: int) -> None:
        """Starts, readiness, joins and leaves by time, the agents' sweep, and what is done once a second."""
        self._lives.serve(now_ns)
        if (self._late or self._ending) and self._books.start_ns is not None:
            self._keep_time(self._books.at_s(now_ns))
        if now_ns >= self._sweep_ns and self._allocator.reclaim is not None:
            self._sweep_ns = now_ns + round(self._allocator.reclaim.interval_s * NS)
            self._hands.reclaim(np.arange(len(self._applications)))
        if now_ns >= self._chores_ns:
            self._chores_ns = now_ns + _CHORES_NS
            self._hands.try_again()
            self._look_again()

    # --- telemetry -------------------------------------------------------------------------------

    def _on_source(self) -> None:
        self._told = True

    def _telemetry(self, due_ns: int, now_ns: int) -> None:
        records = self._source.collect(now_ns)
        gone = self._source.gone
        if gone.size:
            for each in self._fleet.members(gone):
                self._vanish(each)
        began_ns = self._books.start_ns
        if began_ns is None or records.ids.size == 0:
            return
        records, columns = self._fleet.members_only(records, began_ns)
        if records.ids.size == 0:
            return
        last_ns = max(records.end_ns.tolist())
        # What comes through a descriptor was due when the period ended.
        late_ns = now_ns - (due_ns if due_ns <= now_ns else last_ns)
        self._books.lateness_ns.append(max(late_ns, 0))
        self._books.take(records, columns)
        stats = PeriodStats(
            records.ids,
            records.quota_cores,
            records.unused_cores,
            records.throttled,
            records.usage_cores,
            records.memory_bytes,
            self._books.period_ns / NS,
            (last_ns - began_ns) / NS,
        )
        began = time.perf_counter()
        decision = self._allocator.on_period(stats)
        self.decide_s += time.perf_counter() - began
        self._hands.carry_out(decision)

    # --- memory ----------------------------------------------------------------------------------

    def _on_trap(self, each: Supervised) -> None:
        with suppress(GroupGoneError):
            if each.trap is not None and each.trap.held() and each.status in (Status.UP, Status.STARTING):
                self._held.append(each)

    def _serve_held(self, began_ns: int) -> None:
        """Asks about everyone who was held since, in one event."""
        held = [each for each in self._held if each.status in (Status.UP, Status.STARTING)]
        self._held = []
        if not held:
            return
        for each in held:
            self._books.note("oom", each.index, began_ns)
            self._fleet.hold(each)
        self._hands.out_of_memory(held)
        took_ns = time.monotonic_ns() - began_ns
        self._books.grant_ns.extend(took_ns for each in held if each.status in (Status.UP, Status.STARTING))

    def _look_for_kills(self) -> None:
        """The OOM killer took a process: its container goes down as a whole, as with memory.oom.group.

        Everybody is looked at together, and only where it has taken any at all: a hundred files once a row
        are a twentieth of what the loop costs.
        """
        if not self._kills.lately():
            return
        for each in self._fleet.containers:
            try:
                if each.was_oom_killed() and each.status in (Status.UP, Status.STARTING, Status.HELD):
                    self._killed_for_memory(each)
            except GroupGoneError:
                self._vanish(each)

    def _killed_for_memory(self, each: Supervised) -> None:
        self._books.note("oom", each.index, time.monotonic_ns())
        if each.attached:
            # Whoever runs it sees to it; what is left of it goes on.
            self._books.note("kill", each.index, time.monotonic_ns())
        else:
            self._lives.take_down(each, "kill")
        if not self._allocator.traps_oom:
            self._hands.out_of_memory([each])

    # --- members ---------------------------------------------------------------------------------

    def _keep_time(self, at_s: float) -> None:
        due = [each for each in self._late if each.managed.begins_s <= at_s]
        if due:
            self._late = [each for each in self._late if each not in due]
            self._join([each for each in due if each.attach()])
        for each in self._ending:
            over = each.managed.ends_s is not None and each.managed.ends_s <= at_s
            if over and not each.leaving and each.status is not Status.ABSENT:
                each.leaving = True
                if each.attached or each.status is Status.DOWN:
                    self._leave([each])
                else:
                    each.kill()

    def _join(self, containers: Sequence[Supervised]) -> None:
        if not containers:
            return
        decision = self._allocator.on_join(self._fleet.joining([each.index for each in containers]))
        self._admit(containers, decision, decision.cpu.ids)
        self._lives.start(containers)

    def _admit(self, containers: Sequence[Supervised], decision: Decision, ids: Ids) -> None:
        """Newcomers get the last ids and limits of the decision, whose other parts take force now too."""
        count = len(containers)
        new, limited = ids[len(ids) - count :], decision.memory.ids
        if len(ids) < count or not np.array_equal(new, limited[len(limited) - count :]):
            raise InvariantError(f"{self._allocator.name}: newcomers without a CPU and a memory limit")
        self._fleet.add([each.index for each in containers], new)
        if decision.cpu.ids.size == 0:
            self._fleet.quota_cores[[each.index for each in containers]] = np.inf
        self._hands.carry_out(decision)
        groups = [each.group for each in containers if each.group is not None]
        for each in containers:
            self._arm(each)
            self._books.note("join", each.index, time.monotonic_ns())
            self._books.joined(each.index)
        self._source.add(new, groups)

    def _arm(self, each: Supervised) -> None:
        if each.group is None:
            return
        try:
            each.watch_kills()
            if self._allocator.traps_oom:
                each.trap = each.group.trap()
                self._wakeups.watch(each.trap.descriptor, partial(self._on_trap, each))
        except GroupGoneError:
            self._vanish(each)
        except BackendError:
            self.untrapped += 1

    def _leave(self, containers: Sequence[Supervised]) -> None:
        """They are gone for good (or, attached, until they are there again)."""
        ids: list[int] = []
        for each in containers:
            if each.trap is not None:
                self._wakeups.forget(each.trap.descriptor)
            each.let_go()
            each.starts_ns = None
            self._hands.forget(each.index)
            self._books.note("leave", each.index, time.monotonic_ns())
            number = self._fleet.remove(each.index)
            self._fleet.set_status(each, Status.ABSENT)
            if number is not None:
                ids.append(number)
        left = np.array(ids, np.int64)
        self._source.remove(left)
        self._hands.carry_out(self._allocator.on_leave(left))

    def _vanish(self, each: Supervised) -> None:
        """Its cgroup was removed under us."""
        if self._fleet.has(each.index):
            self._leave([each])

    def _look_again(self) -> None:
        """Attached cgroups that are there again, and holds whose event was missed."""
        back = [
            each
            for each in self._fleet.containers
            if each.attached and each.status is Status.ABSENT and not each.leaving and each not in self._late
        ]
        self._join([each for each in back if each.attach()])
        for each in self._fleet.containers:
            if each.status is Status.UP and each.trap is not None:
                self._on_trap(each)
        if self._held:
            self._serve_held(time.monotonic_ns())

    # --- small parts -----------------------------------------------------------------------------

    def _anyone(self) -> bool:
        """Whether anybody is there or may still come."""
        if self._late:
            return True
        return any(
            each.status is not Status.ABSENT or (each.attached and not each.leaving)
            for each in self._fleet.containers
        )

    def _start_all(self, containers: Sequence[Supervised]) -> None:
        """One after the other; those that run already are served in between."""
        for each in containers:
            self._lives.start([each])
            self._turn(time.monotonic_ns())

    def _await_ready(self, containers: Sequence[Supervised]) -> None:
        deadline_ns = time.monotonic_ns() + round(STARTUP_TIMEOUT_S * NS)
        busy = (Status.STARTING, Status.HELD, Status.DOWN)
        while waiting := [each.name for each in containers if each.status in busy]:
            if time.monotonic_ns() > deadline_ns:
                raise BackendError(
                    f"containers {', '.join(waiting)} are not ready after {STARTUP_TIMEOUT_S:g} s; "
                    "look at their logs"
                )
            self._turn(deadline_ns)

    def _settle(self) -> None:
        """Until a period has gone by in which telemetry can find out when it is to be read."""
        until_ns = time.monotonic_ns() + round(1.3 * self._books.period_ns)
        while time.monotonic_ns() < until_ns:
            self._turn(until_ns)
