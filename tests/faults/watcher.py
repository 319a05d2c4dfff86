"""Reads the limits of all containers from the cgroup files all the time, and judges them.

For: a sequence of faults that overlap (sequences.py). It learns about the controller from its log alone. Not
for: faults. What must hold at every moment, for CPU and for memory:

- The limits of all containers that run add up to at most Ω.
- Every process lives unless a fault killed it.

There is one exception. A new controller waits 5 s for its agents (docs/decisions/0013) and then begins
without the absent ones. It cannot know their limits, and the log names them. From then on the limits of all
other hosts together keep to Ω, and so do those of an absent host alone: the sum exceeds Ω by at most the
limits on absent hosts. The exception ends SETTLE_S after the faults are over and all agents are registered.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
import traceback
from collections.abc import Collection
from dataclasses import dataclass

from testbed.containers.ownership import lasting_run
from tests.faults.enclosure import CGROUPS
from tests.faults.fault_world import ViolationError, hierarchies
from tests.faults.running_hosts import BYTES, CORES, HOSTS, Episode

SETTLE_S = 5.0
"""Longest time from the moment at which all agents are registered until the sum is within Ω, s. Agents answer
cuts in milliseconds. A machine with other work may stand still for some seconds."""

_STOOD_STILL_S = 0.25
"""Longest part of the time between two readings that counts as time in which agents could answer, s."""

_ROUNDING_CORES = 4e-4
_POLL_S = 0.002
_ALIVE_EVERY = 10
_NO_LIMIT_BYTES = 1 << 62
"""cgroup v1 shows "no limit" as a number above this."""

_WORDS = re.compile(r"(begins without) agent (\w+)|agent (\w+) (is there|is lost|left)")

Limits = dict[str, dict[str, tuple[float, float]]]
"""Cores and bytes by host and container."""


@dataclass
class Tally:
    """Counts and extremes of the readings.

    readings: number of readings of all limits at one moment; gap_s: longest time between two of them, s;
    excepted: those while a host was absent; above: those with a sum above Ω; above_s: longest time above Ω
    without a pause, s; most: largest sum, as a multiple of Ω; settled_s: longest time above Ω with all agents
    registered and the faults over, s.
    """

    readings: int = 0
    gap_s: float = 0.0
    excepted: int = 0
    above: int = 0
    above_s: float = 0.0
    most: float = 0.0
    settled_s: float = 0.0

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        self.readings += other.readings
        self.gap_s = max(self.gap_s, other.gap_s)
        self.excepted += other.excepted
        self.above += other.above
        self.above_s = max(self.above_s, other.above_s)
        self.most = max(self.most, other.most)
        self.settled_s = max(self.settled_s, other.settled_s)

    def __str__(self) -> str:
        return (
            f"{self.readings} readings at most {self.gap_s:.2f} s apart, "
            f"{self.excepted} with an absent host, {self.above} of them above Ω "
            f"(at most {self.most:.2f} Ω, for {self.above_s:.2f} s, "
            f"{self.settled_s:.2f} s of that with all agents registered)"
        )


class Watcher(threading.Thread):
    """Reads from a moment at which all invariants hold, until `stop`.

    absent: hosts whose limits some controller began without; problem: what did not hold, after which nothing
    more is read; over: set by the owner when the faults are over.
    """

    def __init__(self, running: Episode) -> None:
        super().__init__(daemon=True)
        self.tally = Tally()
        self.absent: set[str] = set()
        self.problem: str | None = None
        self.over = False
        self._running = running
        self._stopped = threading.Event()
        self._controller = running.controller
        self._read_bytes = running.controller.log.stat().st_size
        self._there = set(HOSTS)
        self._last_s = time.monotonic()
        self._complete_s: float | None = None
        self._above_s: float | None = None

    def run(self) -> None:
        """Read the limits, and judge each reading, until `stop`."""
        while not self._stopped.is_set():
            try:
                self._look()
            except ViolationError as error:
                self.problem = str(error)
                return
            except Exception:
                self.problem = f"nobody watches any more: {traceback.format_exc()}"
                return
            self._stopped.wait(_POLL_S)

    def stop(self) -> None:
        """Stop reading."""
        self._stopped.set()
        self.join()

    def check(self) -> None:
        """Raise ViolationError if an invariant did not hold."""
        if self.problem is not None:
            raise ViolationError(self.problem)

    # --- readings --------------------------------------------------------------------------------

    def _look(self) -> None:
        limits = self._limits()
        # The log is read after the limits: a controller says whom it begins without before it acts on that.
        self._read_log()
        now_s = time.monotonic()
        elapsed_s, self._last_s = now_s - self._last_s, now_s
        self._settle(elapsed_s)
        self.tally.readings += 1
        self.tally.gap_s = max(self.tally.gap_s, elapsed_s)
        self.tally.excepted += bool(self.absent)
        shares = [check(limits, self.absent, index) for index in (0, 1)]
        self.tally.most = max(self.tally.most, *shares)
        if max(shares) > 1.0:
            self.tally.above += 1
            self._above_s = now_s if self._above_s is None else self._above_s
            self.tally.above_s = max(self.tally.above_s, now_s - self._above_s)
            if self._complete_s is not None:
                self.tally.settled_s = max(self.tally.settled_s, self._complete_s)
        else:
            self._above_s = None
        # The dead stay dead, so it is enough to look for them now and then.
        if self.tally.readings % _ALIVE_EVERY == 0:
            self._check_alive()

    def _limits(self) -> Limits:
        """Return all limits at one moment: two readings in a row agree."""
        before: Limits | None = None
        while True:
            limits = {host: limits_of(lasting_run(host)) for host in HOSTS}
            if limits == before:
                return limits
            before = limits

    def _check_alive(self) -> None:
        # The expected processes change meanwhile, so only a process that is expected before and after must
        # live.
        before = self._running.expected.copy()
        containers = [self._running.containers(host) for host in HOSTS]
        pids = {pid for those in containers for found in those.pids().values() for pid in found}
        after = self._running.expected.copy()
        dead = [name for name, pid in after.items() if pid not in pids and before.get(name) == pid]
        if dead:
            raise ViolationError(f"died and was not killed: {dead}")

    # --- the exception ---------------------------------------------------------------------------

    def _read_log(self) -> None:
        """Learn who is registered, and whom the controller began without."""
        controller = self._running.controller
        for verb in (self._controller, controller):
            if verb is not self._controller:
                self._controller, self._read_bytes, self._there = verb, 0, set()
            with verb.log.open("rb") as file:
                file.seek(self._read_bytes)
                text = file.read()
            text = text[: text.rfind(b"\n") + 1]
            self._read_bytes += len(text)
            for without, absent, agent, word in _WORDS.findall(text.decode(errors="replace")):
                if without:
                    self.absent.add(absent)
                elif word == "is there":
                    self._there.add(agent)
                else:
                    self._there.discard(agent)

    def _settle(self, elapsed_s: float) -> None:
        """Record the time after the faults. elapsed_s: time since the last reading, s. A standstill of the
        whole machine does not count."""
        if not self.over or self._there != set(HOSTS):
            self._complete_s = None
        else:
            self._complete_s = (self._complete_s or 0.0) + min(elapsed_s, _STOOD_STILL_S)
            if self._complete_s > SETTLE_S:
                self.absent.clear()


def limits_of(run: str) -> dict[str, tuple[float, float]]:
    """Return cores and bytes of a run's containers that have processes, read one after the other. It uses
    plain strings, because it is called hundreds of times a second."""
    unified = hierarchies() == [CGROUPS]
    cpu, memory = (f"{CGROUPS}{'' if unified else part}/twinbed/{run}" for part in ("/cpu", "/memory"))
    limits = {}
    try:
        names = [entry.name for entry in os.scandir(cpu) if entry.is_dir()]
    except OSError:
        return {}  # There is no container, or the last one is being removed.
    for name in names:
        try:
            if _read(f"{cpu}/{name}/cgroup.procs"):
                limits[name] = (
                    _cores(f"{cpu}/{name}", unified=unified),
                    _bytes(f"{memory}/{name}", unified=unified),
                )
        except OSError:
            continue  # It was removed meanwhile.
    return limits


def _cores(folder: str, *, unified: bool) -> float:
    if unified:
        quota, period = _read(f"{folder}/cpu.max").split()
        return math.inf if quota == "max" else int(quota) / int(period)
    quota_us = int(_read(f"{folder}/cpu.cfs_quota_us"))
    return math.inf if quota_us < 0 else quota_us / 100_000


def _bytes(folder: str, *, unified: bool) -> float:
    text = _read(f"{folder}/{'memory.max' if unified else 'memory.limit_in_bytes'}").strip()
    return math.inf if text == "max" or int(text) >= _NO_LIMIT_BYTES else int(text)


def _read(path: str) -> str:
    with open(path) as file:  # noqa: PTH123
        return file.read()


def check(limits: Limits, absent: Collection[str], index: int) -> float:
    """Return the sum of limits as a multiple of Ω. index: 0 for CPU, 1 for memory. Raises ViolationError."""
    what, cap, slack = (("CPU", CORES, _ROUNDING_CORES), ("memory", BYTES, 0.0))[index]
    sums = {host: sum(pair[index] for pair in of_host.values()) for host, of_host in limits.items()}
    groups = [{host} for host in absent] + [sums.keys() - set(absent)]
    for group in groups:
        total = sum(sums[host] for host in group)
        if total > cap + slack:
            raise ViolationError(
                f"{what} limits of {', '.join(sorted(group))} add up to {total:g}, above {cap:g} "
                f"(absent: {', '.join(sorted(absent)) or 'nobody'}): {limits}"
            )
    total = sum(sums.values())
    return total / cap if total > cap + slack else min(1.0, total / cap)
