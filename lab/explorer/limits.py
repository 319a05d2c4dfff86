"""Limits on the use of the explorer's machine by one visitor and by all visitors together.

For: every number that bounds work for visitors, and the sentence about it for visitors. Not for: enforcing
them (queue, job, reading, answering, worker, visitors, uploads). `twinbed explore` passes its options on
through the environment, because Streamlit's server is a process of its own.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from twinbed import ScenarioError

WORKERS, MEMORY_GB = "TWINBED_EXPLORER_WORKERS", "TWINBED_EXPLORER_MEMORY_GB"
"""Environment variables: number of runs at once, and memory of all runs together, GB."""
_LEAST_BYTES = 512 << 20
"""Least memory of a worker, bytes. Its imports alone take some 200 MiB."""
_NEARLY_ALL = 0.9
"""Share of the allowed memory from which on an error counts as lack of memory."""

RUN_S = 1800.0
"""Longest time of one question's runs, s. The shipped questions take seconds to minutes."""
LEAVE_S = 10.0
"""How long a visitor may be disconnected before their work is ended, s: a reload or a weak network takes
less. With the 5 s in which a worker tidies up, the work ends within 20 s."""
READ_S = 30.0
"""Longest time to read one upload, s."""
READ_BYTES = 2 << 30
"""Memory to read one upload, or to answer one question of the page "Cloud", bytes."""
ANSWER_S = 60.0
"""Longest time to answer one question of the page "Cloud", s. The shipped jobs take below 3 s."""
TABS = 64
"""Most tabs of all visitors. Each keeps its state in the server's memory."""
SHELF_S = 3600.0
"""How long an upload or an answer is kept for the reload of its address, s."""
SHELF = 32
"""Most uploads, and most answers, that are kept for reloads."""
UPLOADS_BYTES = 512 << 20
"""Most bytes of all visitors' uploads together: eight of the largest."""
UPLOADS = 4 * TABS
"""Most uploads of all visitors together. An empty one takes memory, too."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that all visitors share.

    workers: runs at once; memory_bytes: memory of one worker, bytes; waiting: places in the queue.
    """

    workers: int
    memory_bytes: int
    waiting: int = 8

    def sentence(self) -> str:
        """Return the limits as visitors read them."""
        return (
            f"A visitor runs one question at a time, for at most {RUN_S / 60:.0f} minutes and with at most "
            f"{self.memory_bytes / 1e9:.1f} GB of memory. All visitors together run {self.workers} at once; "
            f"{self.waiting} more wait in a queue. Work ends soon after its visitor leaves. At most {TABS} "
            f"tabs are open at once, with uploads of {UPLOADS_BYTES >> 20} MiB together."
        )


def of(environment: Mapping[str, str]) -> Limits:
    """Return the limits: by default all CPUs but one, and half of the machine's memory.

    Raises ScenarioError, naming the option, for values that leave a worker too little.
    """
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    memory_bytes = int(_number(environment, MEMORY_GB, machine_bytes / 2e9) * 1e9)
    usual = min(len(os.sched_getaffinity(0)) - 1, memory_bytes // _LEAST_BYTES)
    workers = int(_number(environment, WORKERS, max(1, usual)))
    if workers < 1 or memory_bytes // workers < _LEAST_BYTES:
        raise ScenarioError(
            f"--workers {workers} with --memory-gb {memory_bytes / 1e9:g}: there must be a worker, and each "
            f"needs at least {_LEAST_BYTES / 1e9:.2f} GB; change one of the two"
        )
    return Limits(workers, memory_bytes // workers)


@cache
def shared() -> Limits:
    """Return the limits of this server."""
    return of(os.environ)


def bound_memory(most_bytes: int) -> None:
    """Bound the memory that this process may write to; beyond it, allocations fail."""
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))


def is_short_of_memory() -> bool:
    """Return whether this process uses nearly all memory that `bound_memory` left it. Libraries report lack
    of memory as errors of every kind."""
    most_bytes, _ = resource.getrlimit(resource.RLIMIT_DATA)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    used_kib = int(status.partition("VmData:")[2].split()[0])
    return most_bytes != resource.RLIM_INFINITY and used_kib * 1024 > _NEARLY_ALL * most_bytes


def _number(environment: Mapping[str, str], name: str, usual: float) -> float:
    text = environment.get(name, "")
    try:
        value = float(text) if text else usual
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ScenarioError(f"{name}={text}: not a number")
    return value
