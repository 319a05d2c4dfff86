"""What the BPF programs report, as NumPy sees it.

For: the layouts of `struct period` and `struct pressure` in containers.bpf.c. Not for: reading them
(loader.py). Times are nanoseconds, CLOCK_MONOTONIC where they are moments; `id` is the cgroup directory's
inode number.
"""

from __future__ import annotations

import numpy as np

PERIOD = np.dtype(
    [
        ("id", "<u8"),
        ("end_ns", "<u8"),
        ("quota_ns", "<u8"),
        ("unused_ns", "<u8"),
        ("used_ns", "<u8"),
        ("nr_periods", "<u4"),
        ("nr_throttled", "<u4"),
        ("throttled", "<u4"),
        ("elapsed", "<u4"),
    ]
)
"""A CFS period that ended, just before the pool was refilled. unused_ns: what was left of the pool; used_ns:
what was taken from it since the last record, quota writes in between accounted for; nr_periods, nr_throttled:
as cpu.stat had them, without this period; throttled: 1 where some run queue was held; elapsed: how many
periods ended at once, more than 1 where the timer came late."""

PRESSURE = np.dtype(
    [
        ("id", "<u8"),
        ("at_ns", "<u8"),
        ("limit_pages", "<u8"),
        ("usage_pages", "<u8"),
        ("kind", "<u4"),
        ("pid", "<u4"),
    ]
)
"""A memory limit that was hit (kind UNDER_OOM, pid: who asked), or the kill that follows (KILL, pid: who)."""

UNDER_OOM = 0
KILL = 1
