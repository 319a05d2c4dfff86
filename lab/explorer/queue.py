"""Lets at most some jobs run at once, in the order in which they came, for all visitors of one server.

For: who runs and who waits. Not for: what a job is or does (lab.explorer.job). A ticket is any object that
stands for a job.
"""

from __future__ import annotations

import threading

from twinbed import BackendError


class Queue:
    """workers: jobs that run at once; length: jobs that may wait besides. Every method may be called by any
    thread."""

    def __init__(self, workers: int, length: int) -> None:
        self._workers, self._length = workers, length
        self._changed = threading.Condition()
        self._waiting: list[object] = []
        self._running: list[object] = []

    def enter(self, ticket: object) -> None:
        """Puts the job at the end of the queue. Raises BackendError if all places are taken."""
        with self._changed:
            free = self._workers - len(self._running)
            if len(self._waiting) >= self._length + free:
                raise BackendError(
                    f"{len(self._running)} questions of other visitors run and {len(self._waiting)} wait, "
                    "which is the most here; try again in some minutes"
                )
            self._waiting.append(ticket)

    def place(self, ticket: object) -> int:
        """Returns the job's place among those that wait, 1 for the next one; 0 if it runs or has left."""
        with self._changed:
            return self._waiting.index(ticket) + 1 if ticket in self._waiting else 0

    def take(self, ticket: object, timeout_s: float) -> bool:
        """Waits for the job's turn, at most `timeout_s`. Returns whether it came; `leave` ends it."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_next(ticket), timeout_s):
                return False
            self._waiting.remove(ticket)
            self._running.append(ticket)
            self._changed.notify_all()
            return True

    def leave(self, ticket: object) -> None:
        """Gives up the job's turn or its place."""
        with self._changed:
            for tickets in (self._waiting, self._running):
                if ticket in tickets:
                    tickets.remove(ticket)
            self._changed.notify_all()

    def _is_next(self, ticket: object) -> bool:
        return len(self._running) < self._workers and self._waiting[:1] == [ticket]
