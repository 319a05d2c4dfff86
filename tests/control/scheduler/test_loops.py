"""The loops over running jobs, beside sets of lines."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from control.scheduler.loops import Lines, changed
from twin.containers.compiled import compiled

holdings = st.dictionaries(
    st.tuples(st.integers(0, 5), st.integers(0, 2)), st.integers(1, 2), max_size=8
)  # (job, server) → GPUs


def _lines(held: dict[tuple[int, int], int]) -> Lines:
    rows = np.array([(*place, gpus) for place, gpus in sorted(held.items())], np.int64).reshape(-1, 3)
    return Lines(*(np.ascontiguousarray(column) for column in rows.T))


@given(holdings, holdings)
@settings(max_examples=200, deadline=None)
def test_jobs_that_stop_move_and_run_are_those_whose_lines_differ(
    old: dict[tuple[int, int], int], new: dict[tuple[int, int], int]
) -> None:
    def of(held: dict[tuple[int, int], int], job: int) -> set[tuple[int, int]]:
        return {(server, gpus) for (owner, server), gpus in held.items() if owner == job}

    runs = sorted({job for job, _ in new})
    stopped = sorted({job for job, _ in old} - set(runs))
    moved = [job for job in runs if of(old, job) != of(new, job)]
    for function in (changed, compiled(changed)):
        found = function(_lines(old), _lines(new))
        assert [jobs.tolist() for jobs in found] == [stopped, moved, runs]
