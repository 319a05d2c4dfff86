"""Declares the records of the BPF programs as NumPy types.

For: the layouts of `struct period` and `struct pressure` in containers.bpf.c. Not for: reading them
(loader.py). Times are nanoseconds; moments are of CLOCK_MONOTONIC. `id` is the inode number of the cgroup's
directory.
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
"""A CFS period that ended, just before the pool was refilled.

end_ns: when it ended
quota_ns: the quota in force
unused_ns: what was left of the pool, at most the quota
used_ns: what was taken from the pool since the last record, corrected for quota writes in between and for
    slices of the period before that were returned late
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
"""A memory limit that was hit (kind UNDER_OOM), or the kill that follows (kind KILL). pid: the process that
asked for memory, or the one that is killed."""

UNDER_OOM = 0
KILL = 1
