"""What is made of Slurm's answers, which come between two looks."""

from types import SimpleNamespace

import numpy as np

from testbed.cluster.slurm import Backfill


def given(holders: dict[int, list[int]], jobs: list[int]) -> list[list[int]]:
    """(row, server, GPUs) with two servers of one GPU, for jobs of one GPU."""
    gangs = SimpleNamespace(
        submit=lambda job: None, holders=lambda: holders, room=lambda: np.ones(2, np.int64)
    )
    rows = np.arange(len(jobs))
    state = SimpleNamespace(job=np.array(jobs), gpus=np.ones(len(jobs), int), by_arrival=lambda: rows)
    said = Backfill(gangs, 2.0).on_round(state)
    return np.stack([said.row, said.server, said.gpus], 1).tolist()


def test_a_job_that_ended_before_anybody_looked_comes_before_its_successor_on_the_gpu() -> None:
    assert given({1: [0], 2: [1], 3: [0]}, [1, 2, 3]) == [[0, 0, 1], [1, 1, 1]]
    # The first is booked: it is a job no longer.
    assert given({1: [0], 2: [1], 3: [0]}, [2, 3]) == [[0, 1, 1], [1, 0, 1]]
