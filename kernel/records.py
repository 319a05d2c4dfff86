"""The records of the BPF programs as NumPy types.

For: the layouts of `struct period` and `struct pressure` in containers.bpf.c. Not for: reading them
(loader.py). Times are in nanoseconds; points in time are read from CLOCK_MONOTONIC. `id` is the inode number
of the cgroup's directory.
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
"""The end of a CFS period, recorded just before the runtime pool is refilled.

end_ns: time of the end, ns
quota_ns: quota in force, ns
unused_ns: runtime left in the pool, at most the quota, ns
used_ns: runtime taken from the pool since the last record, ns. It is corrected for quota writes in
    between, and for slices of the period before that were returned late.
nr_periods, nr_throttled: the counters of cpu.stat, without this period
throttled: 1 if some run queue was throttled
elapsed: number of periods that ended at once, more than 1 if the timer was late
"""

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
"""A group at its memory limit (kind UNDER_OOM), or the kill that follows (kind KILL). pid: the process that
asked for memory, or the one that is killed."""

UNDER_OOM = 0
KILL = 1
