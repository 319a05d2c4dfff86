"""Small histories for the tests of advice."""

import numpy as np

from control.advice.model import Kills, Sizes, Usage


def usage(
    cores,
    memory=None,
    *,
    row=None,
    present=None,
    current=None,
    interval_s=60.0,
    oom_limit_bytes=None,
    oom_interval=0,
):
    """Members over intervals; without `row` each is a row of its own. current: four numbers for all rows."""
    values = np.array(cores, np.float64)
    held = np.zeros(values.shape) if memory is None else np.array(memory, np.float64)
    there = np.ones(values.shape, np.bool_) if present is None else np.array(present, np.bool_)
    rows = np.arange(len(values)) if row is None else np.array(row)
    count = int(rows.max()) + 1
    known = np.logical_or.reduceat(held.any(axis=1), np.searchsorted(rows, np.arange(count)))
    limits = np.zeros(count) if oom_limit_bytes is None else np.array(oom_limit_bytes)
    killed = np.flatnonzero(limits)
    return Usage(
        cores=np.where(there, values, 0.0),
        memory_bytes=np.where(there, held, 0.0),
        present=there,
        interval_s=interval_s,
        row=rows,
        current=Sizes(*(np.full(count, value) for value in current or [np.nan] * 4)),
        memory_known=known,
        kills=Kills(killed, np.full(killed.size, oom_interval), np.ones(killed.size), limits[killed]),
    )
