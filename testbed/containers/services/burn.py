"""Real CPU demand: keeps CPUs busy until a thread has used the requested CPU time.

For: the parts of a visit, of which many may be runnable at once. Not for: the length of a part (visits.py).
Runnable parts take turns of QUANTUM_S. That is processor sharing, up to the length of a turn: k parts in a
container of m threads each run at min(1, m/k) of a CPU, if the kernel gives that container m CPUs.

The event loop's thread is the first of the m. So a container with one thread never uses more than one CPU,
and a part that runs alone needs no other thread (a hand-over costs some 50 µs). The further threads are woken
when several parts are runnable. While the loop's thread burns, connections are answered up to a turn late. m
is at most the number of CPUs of this machine, because more threads could not run at once.

The work is PBKDF2, which releases the interpreter's lock for the whole call and needs no memory. It is
measured by the thread's own CPU clock, so waiting and throttling do not count. On a virtual machine that
clock also counts the time during which the hypervisor runs somebody else. The parts that follow make up for
that little by little, and the next part for the little that a call takes longer when its caches are cold.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from hashlib import pbkdf2_hmac
from math import ceil

QUANTUM_S = 0.0005
"""Length of a part's turn while others are runnable, s: well below the parts for which sharing matters."""

_QUANTUM_NS = round(QUANTUM_S * 1e9)
_CALL_NS = 5_000
"""Approximate cost of a call of PBKDF2 besides its iterations, ns. A smaller demand is not burnt."""
_STRETCHED_NS = 200_000
"""Least excess of a part that its caches do not explain, ns: after a sleep of 20 ms a part exceeds its demand
by some 40 µs."""
_STRETCHED_SHARE = 0.05
"""Share of its demand by which a part is shortened for such an excess. If the next parts made up for all of
it, one call that the machine stretches to milliseconds would leave them nothing to burn."""


class _Part:
    __slots__ = ("done", "left_ns", "spent_ns")

    def __init__(self, left_ns: int, done: asyncio.Future[float]) -> None:
        self.left_ns, self.spent_ns, self.done = left_ns, 0, done


class Burner:
    """The CPUs of one container. Make and use them in a running event loop. threads: how many CPUs it may
    keep busy at once, rounded up."""

    def __init__(self, threads: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._runnable: deque[_Part] = deque()
        self._turning = False
        self._excess_ns = self._stretched_ns = 0
        self._asleep: deque[threading.Lock] = deque()
        self._ns_per_iteration = _speed()
        for number in range(1, min(ceil(threads), os.cpu_count() or 1)):
            threading.Thread(target=self._help, name=f"burner-{number}", daemon=True).start()

    def burn(self, demand_s: float) -> asyncio.Future[float]:
        """Use demand_s seconds of CPU, in turns. The result is the CPU really used, s. The difference from
        the demand is settled with the next part, or with many parts if it is large."""
        done: asyncio.Future[float] = self._loop.create_future()
        demand_ns = round(demand_s * 1e9)
        excess_ns = min(self._excess_ns, demand_ns)
        stretched_ns = min(self._stretched_ns, round(_STRETCHED_SHARE * demand_ns), demand_ns - excess_ns)
        self._excess_ns -= excess_ns
        self._stretched_ns -= stretched_ns
        self._runnable.append(_Part(demand_ns - excess_ns - stretched_ns, done))
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)
        elif self._asleep:
            self._asleep.popleft().release()
        return done

    def _turn(self) -> None:
        """Take a turn in the loop's own thread. Between two turns the loop serves its connections."""
        part = self._take()
        if part is not None:
            if self._work(part):
                self._finish(part)
            else:
                self._runnable.append(part)
        self._turning = bool(self._runnable)
        if self._turning:
            self._loop.call_soon(self._turn)

    def _help(self) -> None:
        """Serve parts in a further thread for as long as the process lives."""
        awake = threading.Lock()
        awake.acquire()
        while True:
            # The loop's thread takes every part that arrives while all others are asleep. So no part is lost
            # when it arrives just before this thread reports that it is asleep.
            self._asleep.append(awake)
            awake.acquire()
            while (part := self._take()) is not None:
                if self._work(part):
                    self._loop.call_soon_threadsafe(self._finish, part)
                else:
                    self._runnable.append(part)

    def _take(self) -> _Part | None:
        try:
            return self._runnable.popleft()
        except IndexError:
            return None

    def _finish(self, part: _Part) -> None:
        if -part.left_ns < _STRETCHED_NS:
            self._excess_ns -= part.left_ns
        else:
            self._stretched_ns -= part.left_ns
        if not part.done.done():
            part.done.set_result(part.spent_ns * 1e-9)

    def _work(self, part: _Part) -> bool:
        """Work for one turn; return whether the part is burnt."""
        began_ns = time.thread_time_ns()
        budget_ns = min(part.left_ns, _QUANTUM_NS)
        spent_ns = 0
        while (left_ns := budget_ns - spent_ns) > _CALL_NS // 2:
            iterations = max(1, int((left_ns - _CALL_NS) / self._ns_per_iteration))
            pbkdf2_hmac("sha256", b"demand", b"", iterations)
            now_ns = time.thread_time_ns() - began_ns
            if iterations > 100:
                seen = max(now_ns - spent_ns - _CALL_NS, 1) / iterations
                self._ns_per_iteration += 0.1 * (seen - self._ns_per_iteration)
            spent_ns = now_ns
        part.spent_ns += spent_ns
        part.left_ns -= spent_ns
        return part.left_ns <= _CALL_NS // 2


def _speed() -> float:
    """Return the duration of an iteration, ns: the least of a few measurements, because the first ones run
    with cold caches."""
    count = 1000
    measured = []
    for _ in range(5):
        began_ns = time.thread_time_ns()
        pbkdf2_hmac("sha256", b"demand", b"", count)
        measured.append((time.thread_time_ns() - began_ns) / count)
    return min(measured)
