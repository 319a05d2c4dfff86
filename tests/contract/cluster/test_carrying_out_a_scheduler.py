"""What every backend does with a scheduler's decisions, whether jobs are simulated or really train.

The cases assert order and books, not times: the machine under the real jobs may be busy. CANNOT (conftest.py)
says what a backend does not do, and why.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from control.cluster import Downtime, Outcome, Timing
from control.scheduler import make, settings
from control.scheduler.model import NOTHING, Assignment, Elastic, Sharing, State
from control.scheduler.ports import Scheduler
from tests.contract.cluster.cluster_backends import Backend, workload
from tests.control.scheduler.worlds import cluster
from twinbed import ScenarioError

TIMING = Timing(round_s=60.0, restart_s=2.0, checkpoint_s=5.0, start_s=1.0)
ONE, TWO_TYPES = cluster((0, 1)), cluster((0, 2), (1, 2))


def scheduler(policy: str, where) -> Scheduler:
    """Return a scheduler with settings for jobs of a few seconds."""
    given = {
        "tiresias": settings("tiresias", {"thresholds_gpu_s": [8.0]}),
        "gavel": settings("gavel", {"round_s": 12.0, "least_between_s": 0.0}),
    }
    return make(policy, where, 0, given)


@dataclass
class Scripted(Scheduler):
    """A scheduler that gives job 0 one GPU of each of these servers in turn, each for the given number of
    seconds."""

    servers: tuple[int, ...]
    seconds: float
    at_events = True
    asked: list[float] = field(default_factory=list)

    def on_round(self, state: State) -> Assignment:
        self.asked.append(state.now_s)
        turn = min(int(state.now_s / self.seconds + 1e-6), len(self.servers) - 1)
        here = np.array([0]), np.array([self.servers[turn]]), np.array([1])
        return Assignment(*here) if len(state) else NOTHING

    def wake_s(self, state: State, given: Assignment) -> float:
        later = [self.seconds * turn for turn in range(1, len(self.servers))]
        return min((at_s for at_s in later if at_s > state.now_s), default=np.inf)


def check_books(where, jobs, done: Outcome) -> None:
    assert not np.isnan(done.finish_s).any()
    assert np.allclose(done.left_steps, 0)
    assert (done.first_start_s >= jobs.submit_s - 1e-6).all()
    assert (done.busy_gpu_s <= done.capacity_gpu_s + 1e-3).all()
    assert np.isclose((done.held_s * jobs.gpus).sum(), done.busy_gpu_s.sum())
    assert np.isclose((done.restart_s * jobs.gpus).sum(), done.restart_gpu_s.sum())
    spans = done.spans
    held = np.bincount(spans.job, spans.gpus * (spans.end_s - spans.begin_s), len(jobs))
    # A real job's time is booked when its backend looks at it, five times per second of the cluster.
    assert np.allclose(held, done.held_s * jobs.gpus, rtol=0.1, atol=3.0)
    for at_s in spans.begin_s:
        now = (spans.begin_s <= at_s) & (spans.end_s > at_s + 1e-6)
        on = np.bincount(spans.server[now], spans.gpus[now], where.server_gpus.size)
        assert (on <= where.server_gpus).all(), "a GPU twice"
        whole = np.bincount(spans.job[now], spans.gpus[now], len(jobs))
        assert (np.isin(whole, [0]) | (whole == jobs.gpus)).all(), "a part of a gang"


@pytest.mark.parametrize("policy", ["fifo-backfill", "tiresias", "gavel"])
def test_the_books_of_every_policy_are_right(cluster_backend: Backend, policy: str) -> None:
    jobs = workload([0, 1, 2, 3], [2, 1, 1, 2], [12, 10, 14, 8], (1.0, 0.5))
    chosen = scheduler(policy, TWO_TYPES)
    done = cluster_backend.run(TWO_TYPES, jobs, chosen, Timing(12.0, True, 2.0, 5.0, 1.0))
    check_books(TWO_TYPES, jobs, done)
    assert (done.faulted == 0).all()


@pytest.mark.parametrize("policy", ["gavel-sharing", "gandiva"])
def test_two_jobs_on_one_gpu_are_as_fast_as_beside_each_other(cluster_backend: Backend, policy: str) -> None:
    sharing = Sharing(np.zeros(2, np.int64), np.full((1, 1, 1), 0.6))
    # The job is long enough that a quota counts, even if a busy machine sets the quota late.
    jobs = replace(workload([0, 0], [1, 1], [40, 40]), sharing=sharing)
    done = cluster_backend.run(ONE, jobs, scheduler(policy, ONE), Timing(12.0, True, 2.0, 5.0, 1.0))

    assert np.allclose(done.left_steps, 0)
    assert done.preemptions.tolist() == [0, 0]
    # Both jobs had the GPU from the first round to the first end, and the GPU counts once.
    assert done.first_start_s.max() < done.finish_s.min()
    assert (done.busy_gpu_s <= done.capacity_gpu_s + 1e-3).all()
    assert np.isclose(done.held_gpu_s.sum(), done.busy_gpu_s.sum())
    assert (done.held_s - done.restart_s > 40 * 1.2).all()


def test_a_job_that_got_more_gpus_is_started_again_and_faster(cluster_backend: Backend) -> None:
    where = cluster((0, 2))
    speed = np.array([0.0, 1.0, 1.9])
    elastic = Elastic(np.zeros(2, np.int64), np.tile(speed, (1, 2, 1)))
    jobs = replace(workload([0, 0], [1, 1], [10, 60]), elastic=elastic)
    given = {"pollux": settings("pollux", {"every_s": 5.0, "restart_s": 1.0})}
    done = cluster_backend.run(where, jobs, make("pollux", where, 0, given), TIMING)

    assert np.allclose(done.left_steps, 0)
    wide = (done.spans.job == 1) & (done.spans.gpus == 2)
    assert wide.any()
    assert done.spans.begin_s[wide].min() > 0
    assert (done.busy_gpu_s <= done.capacity_gpu_s + 1e-3).all()
    assert done.restart_s[1] > 0


def test_first_come_first_served_has_one_job_after_the_other(cluster_backend: Backend) -> None:
    jobs = workload([0, 1, 2], [1] * 3, [8, 4, 6])
    done = cluster_backend.run(ONE, jobs, make("fifo", ONE, 0), TIMING)
    check_books(ONE, jobs, done)
    assert (np.diff(done.finish_s) > 0).all()
    assert (done.first_start_s[1:] >= done.finish_s[:-1] - 1e-6).all()
    assert done.preemptions.tolist() == [0, 0, 0]


class _Yielding(Scheduler):
    """A scheduler that lets job 0 take eight steps, and then gives the GPU to the newest job."""

    at_events = True

    def on_round(self, state: State) -> Assignment:
        early = np.flatnonzero((state.job == 0) & (state.total_steps - state.left_steps < 8))
        row = early if early.size else np.flatnonzero(state.job == state.job.max(initial=-1))
        return Assignment(row, np.zeros_like(row), np.ones_like(row))

    def wake_s(self, state: State, given: Assignment) -> float:
        return state.now_s + 1.0


def test_a_preempted_job_keeps_its_work(cluster_backend: Backend) -> None:
    jobs = workload([0, 6], [1, 1], [24, 6])
    done = cluster_backend.run(ONE, jobs, _Yielding(), TIMING)
    check_books(ONE, jobs, done)
    assert done.preemptions.tolist() == [1, 0]
    assert done.finish_s[1] < done.finish_s[0]
    assert done.undone_s.tolist() == [0, 0]
    # A job that lost work would have to repeat at least the 8 steps before the preemption.
    assert cluster_backend.taken == pytest.approx([24, 6], abs=0.5)


def test_a_slower_type_takes_longer(cluster_backend: Backend) -> None:
    # The job is long enough that a quota counts, even if a busy machine sets the quota late.
    jobs = workload([0], [1], [25], (1.0, 0.4))
    fast, slow = (cluster_backend.run(TWO_TYPES, jobs, Scripted((server,), 1e9), TIMING) for server in (0, 1))
    works_s = [float(done.held_s[0] - done.restart_s[0]) for done in (fast, slow)]
    assert works_s[1] > 1.5 * works_s[0]


def test_a_moved_job_goes_on_where_it_was_sent(cluster_backend: Backend) -> None:
    where = cluster((0, 1), (0, 1))
    jobs = workload([0], [1], [20])
    done = cluster_backend.run(where, jobs, Scripted((0, 1), 10.0), TIMING)
    check_books(where, jobs, done)
    assert done.spans.server.tolist() == [0, 1]
    assert done.preemptions.tolist() == [0]
    assert done.restart_s[0] > 0
    assert cluster_backend.taken == pytest.approx([20], abs=0.5)


def test_a_fault_undoes_no_more_than_the_work_since_the_last_save(cluster_backend: Backend) -> None:
    jobs = workload([0], [1], [24])
    downtime = Downtime(np.array([0]), np.array([14.0]), np.array([16.0]))
    done = cluster_backend.run(ONE, jobs, make("fifo", ONE, 0), TIMING, downtime)
    check_books(ONE, jobs, done)
    assert done.faulted.tolist() == [1]
    assert 0 <= done.undone_s[0] <= TIMING.checkpoint_s + 0.5
    assert (done.spans.begin_s[1:] >= 16.0 - 1e-6).all()


def test_in_rounds_a_scheduler_is_asked_at_their_ends_only(cluster_backend: Backend) -> None:
    noting = Scripted((0,), 1e9)
    timing = Timing(round_s=10.0, at_events=False, restart_s=1.0)
    cluster_backend.run(ONE, workload([0, 3], [1, 1], [15, 1]), _InRounds(noting), timing)
    assert (np.diff(noting.asked) >= 10.0 - 1e-6).all()
    assert len(noting.asked) >= 3


class _InRounds(Scheduler):
    """A scheduler that answers like another one and notes when it is asked, but decides in rounds."""

    def __init__(self, noting: Scripted) -> None:
        self._noting = noting

    def on_round(self, state: State) -> Assignment:
        return self._noting.on_round(state)


def test_a_job_that_can_never_run_is_refused_before_anything_starts(cluster_backend: Backend) -> None:
    with pytest.raises(ScenarioError, match="job 1 asks for 2 GPUs and can have 1 at most"):
        cluster_backend.run(ONE, workload([0, 1], [1, 2], [1, 1]), make("fifo", ONE, 0), TIMING)


def test_the_same_seed_gives_the_same_log_to_the_bit(cluster_backend: Backend) -> None:
    jobs = workload([0, 1], [1, 1], [2, 2])
    first, second = (cluster_backend.run(ONE, jobs, make("fifo", ONE, 0), TIMING) for _ in range(2))
    assert np.array_equal(first.finish_s, second.finish_s)
