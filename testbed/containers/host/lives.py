"""Starts, ends and restarts of the commands of one run.

For: a container's way from started over ready to ended, and back where it was killed or has failed. Not for:
who is a member and which limits it has (run.py, decisions.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from testbed.containers.host.fleet import Fleet
from testbed.containers.host.records import Books
from testbed.containers.host.supervised import NS, Status, Supervised
from testbed.containers.host.wakeups import NEVER_NS, Wakeups
from testbed.containers.ports import GroupGoneError
from twinbed import TwinbedError

_READY_POLL_NS = 20_000_000


class Lives:
    """leave: told of a container that has ended for good; killed: of one that the OOM killer has ended.

    logs: folder for the commands' output. restarts_s: from a container's end until it was up again, of each
    restart.
    """

    def __init__(
        self,
        fleet: Fleet,
        books: Books,
        wakeups: Wakeups,
        logs: Path | None,
        *,
        leave: Callable[[Supervised], None],
        killed: Callable[[Supervised], None],
    ) -> None:
        self._fleet, self._books, self._wakeups, self._logs = fleet, books, wakeups, logs
        self._leave, self._killed = leave, killed
        self._down: list[Supervised] = []
        self._asked: list[Supervised] = []
        self._ready_ns = NEVER_NS
        self.restarts_s: list[float] = []

    def start(self, containers: Sequence[Supervised]) -> None:
        """Their commands, those that are still members. Raises as Supervised.start does."""
        for each in containers:
            if not self._fleet.has(each.index):
                continue
            each.start(self._fleet.containers, self._logs, time.monotonic_ns())
            if each.pidfd >= 0:
                self._wakeups.watch(each.pidfd, partial(self._on_end, each))
            self._fleet.set_status(each, Status.STARTING)
        self._look_who_is_ready(time.monotonic_ns())

    def next_ns(self) -> int:
        """When something is due."""
        if not self._down and not self._asked:
            return self._ready_ns
        due = [each.starts_ns for each in self._down if each.starts_ns is not None]
        due += [each.kill_ns for each in self._asked if each.kill_ns is not None]
        return min([self._ready_ns, *due])

    def serve(self, now_ns: int) -> None:
        """Restarts that are due, the end of those who did not end when asked, and a look at who is ready."""
        for each in self._asked[:]:
            if each.kill_ns is None:
                self._asked.remove(each)
            elif each.kill_ns <= now_ns:
                each.kill()
        for each in self._down[:]:
            if each.starts_ns is None:
                self._down.remove(each)
            elif each.starts_ns <= now_ns:
                self._down.remove(each)
                self._restart(each, now_ns)
        if now_ns >= self._ready_ns:
            self._look_who_is_ready(now_ns)

    def take_down(self, each: Supervised, why: str) -> None:
        """Kills it, or restarts it for new limits, unless it is down already; it comes back by itself.

        Who is restarted is asked to end first; who is held at the memory limit could not, and is killed.
        """
        if each.status not in (Status.UP, Status.STARTING, Status.HELD):
            return
        if why == "kill":
            self._books.note("kill", each.index, time.monotonic_ns())
        elif each.attached:
            return
        each.deliberate = why == "restart"
        if each.deliberate and each.status is not Status.HELD:
            each.terminate(time.monotonic_ns())
            self._asked.append(each)
        else:
            each.kill()
        if each.attached:
            # The kernel's kill that this asked for is no second one.
            with suppress(GroupGoneError):
                each.was_oom_killed()
        else:
            each.down_ns = time.monotonic_ns()
            self._fleet.set_status(each, Status.DOWN)

    def _restart(self, each: Supervised, now_ns: int) -> None:
        """What cannot be started now, for want of a place for its log or for a process, is tried again."""
        self._books.note("restart", each.index, now_ns)
        try:
            self.start([each])
        except (TwinbedError, OSError):
            each.plan_restart(now_ns)
            self._down.append(each)

    def _look_who_is_ready(self, now_ns: int) -> None:
        starting = [each for each in self._fleet.containers if each.status is Status.STARTING]
        for each in starting:
            if each.is_ready():
                if each.down_ns is not None:
                    self.restarts_s.append((now_ns - each.down_ns) / NS)
                    each.down_ns = None
                self._fleet.set_status(each, Status.UP)
        waiting = any(each.status in (Status.STARTING, Status.HELD) for each in self._fleet.containers)
        self._ready_ns = now_ns + _READY_POLL_NS if waiting else NEVER_NS

    def _on_end(self, each: Supervised) -> None:
        """A command ended: for good, or to be started again."""
        self._wakeups.forget(each.pidfd)
        code = each.reap()
        now_ns = time.monotonic_ns()
        if each.status is Status.ABSENT:
            return
        if each.leaving or (code == 0 and not each.deliberate):
            self._leave(each)
            return
        if each.status is not Status.DOWN:
            killed = False
            with suppress(GroupGoneError):
                killed = each.was_oom_killed()
            if killed:
                self._killed(each)
            elif code is not None and code < 0:
                self._books.note("kill", each.index, now_ns)
        each.plan_restart(now_ns)
        each.down_ns = each.down_ns or now_ns
        self._down.append(each)
        self._fleet.set_status(each, Status.DOWN)
