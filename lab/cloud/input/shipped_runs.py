"""The shipped table of measured jobs, as runs of past jobs.

For: recommendations, which learn from these jobs unless told otherwise. Not for: predictors, which read the
table with its features (data_set.py). Only runs at a job's own batch size count.
"""

from __future__ import annotations

from functools import cache

from lab.ask import shipped
from lab.cloud.input import data_set
from lab.cloud.input.store import Run
from traces.catalogue.catalogue import load


@cache
def shipped_runs() -> tuple[Run, ...]:
    """Return the successful runs of the table, each with the time of the whole job on the type itself."""
    known = data_set.load(data_set.TABLE, shipped.FOLDERS["job"], load())
    rows, jobs = known.candidates, [known.jobs[job] for job in known.job]
    return tuple(
        Run(
            job=job.name,
            instance=str(rows.name[row]),
            workers=int(rows.count[row]),
            time_s=float(known.time_s[row]),
            price_usd_h=float(rows.price_usd_h[row]),
            vcpus=float(rows.vcpus[row]),
            memory_gib=float(rows.memory_gib[row]),
            network_bps=float(rows.network_bps[row]),
            source=data_set.TABLE.name,
        )
        for row, job in enumerate(jobs)
        if rows.batch[row] == job.batch
    )
