"""Real-time priority and no garbage collection while the control loop runs.

For: serving periods on time on a machine that its containers keep busy. Not for: the containers: processes
started meanwhile have normal priority (sched(7), SCHED_RESET_ON_FORK).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

FIFO_PRIORITY = 10
"""The loop's real-time priority: above every normal process, below the kernel's own threads (50 and more)."""

NICE = -15
"""The loop's niceness where real-time priority is refused, as in a v1 group without a real-time budget."""

_THREAD = 0  # The calling thread


@contextmanager
def urgent() -> Iterator[str]:
    """Let the calling thread run before others until the end of the block; yield `fifo`, `nice` or `normal`,
    as far as the machine allows."""
    policy, parameters = os.sched_getscheduler(_THREAD), os.sched_getparam(_THREAD)
    nice = os.getpriority(os.PRIO_PROCESS, _THREAD)
    how, collecting = "normal", gc.isenabled()
    try:
        how = _raise_priority()
        gc.collect()
        gc.freeze()
        gc.disable()
        yield how
    finally:
        if collecting:
            gc.enable()
        gc.unfreeze()
        if how != "normal":
            os.sched_setscheduler(_THREAD, policy, parameters)
            os.setpriority(os.PRIO_PROCESS, _THREAD, nice)


def _raise_priority() -> str:
    with suppress(PermissionError):
        fifo = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(_THREAD, fifo, os.sched_param(FIFO_PRIORITY))
        return "fifo"
    with suppress(PermissionError):
        os.sched_setscheduler(_THREAD, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, _THREAD, NICE)
        return "nice"
    return "normal"
