from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from control.cluster import NEVER_DOWN, Downtime, Timing, Workload
from control.scheduler import POLICIES, make
from control.scheduler.model import Assignment, Sharing, State
from control.scheduler.queues import Fifo
from control.scheduler.tiresias import Tiresias, TiresiasSettings
from lab.check.watched_scheduler import WatchedScheduler
from tests.control.scheduler.worlds import cluster
from twin.cluster.simulation import random_downtime, simulate
from twinbed import ScenarioError

NO_COSTS = Timing(restart_s=0.0)


def workload(submit_s, gpus, steps, *, kinds: int = 1, throughput=None, **given) -> Workload:
    n = len(gpus)
    rates = np.ones((n, kinds)) if throughput is None else np.asarray(throughput, float)
    return replace(
        Workload(
            np.asarray(submit_s, float),
            np.asarray(gpus, np.int64),
            np.asarray(steps, float),
            np.repeat(rates[:, :, None], 2, axis=2),
            np.zeros(n, np.int64),
            np.ones(n),
            np.full(n, np.inf),
            np.zeros(n, np.bool_),
        ),
        **given,
    )


def drawn(seed: int, n: int = 40, within_s: float = 20_000) -> Workload:
    random = np.random.default_rng(seed)
    return workload(
        np.sort(random.uniform(0, within_s, n)),
        random.choice([1, 1, 2, 4], n),
        random.uniform(100, 8000, n),
        throughput=random.uniform(0.5, 4, (n, 2)),
        sharing=Sharing(np.arange(n) % 3, random.uniform(0.4, 0.9, (3, 3, 2))),
    )


def run(policy: str, jobs: Workload, timing: Timing = NO_COSTS, where=None, downtime=NEVER_DOWN, **more):
    where = where or cluster((0, 4), (0, 4), (1, 4), (1, 4))
    return simulate(where, jobs, make(policy, where, 0), timing, downtime=downtime, **more)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("faults", [False, True])
@pytest.mark.parametrize("cores", [np.inf, 8.0])
def test_gpu_seconds_are_conserved_and_no_work_comes_from_nothing(
    policy: str, faults: bool, cores: float
) -> None:
    where, jobs = cluster((0, 4), (0, 4), (1, 4), (1, 4)), drawn(1, 20, 3_000)
    downtime = random_downtime(4, per_day=25, repair_s=900, begin_s=0, end_s=4_000, seed=3)
    timing = Timing(restart_s=30.0, start_s=20.0, cores=cores, gpu_cores=0.1)
    done = run(policy, jobs, timing, where, downtime if faults else NEVER_DOWN)
    assert not np.isnan(done.finish_s).any()
    assert (done.left_steps == 0).all()
    assert (done.busy_gpu_s <= done.capacity_gpu_s + 1e-3).all()
    assert np.isclose(done.held_gpu_s.sum(), done.busy_gpu_s.sum())
    spans = done.spans
    assert spans is not None
    if policy in (
        "gavel-sharing",
        "gandiva",
        "fifo-packed",
        "pollux",
        "hadar-e",
    ):  # jobs share GPUs or have more of them
        return
    assert np.allclose(done.held_gpu_s, done.held_s * jobs.gpus)
    assert np.isclose((done.restart_s * jobs.gpus).sum(), done.restart_gpu_s.sum())
    held = np.bincount(spans.job, spans.gpus * (spans.end_s - spans.begin_s), len(jobs))
    assert np.allclose(held, done.held_s * jobs.gpus, atol=1e-3)
    # The steps done are the time of progress times a speed between the job's slowest and fastest.
    works_s = done.held_s - done.restart_s - done.undone_s
    assert (jobs.steps >= works_s * jobs.throughput.min(axis=(1, 2)) - 1e-3).all()
    assert (jobs.steps <= works_s * jobs.throughput.max(axis=(1, 2)) + 1e-3).all()
    for server in range(4):
        mine = spans.server == server
        for at_s in spans.begin_s[mine]:
            there = mine & (spans.begin_s <= at_s) & (spans.end_s > at_s + 1e-6)
            assert spans.gpus[there].sum() <= 4


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "fifo"])
def test_a_job_alone_takes_its_steps_at_its_best_speed(policy: str) -> None:
    jobs = workload([0], [2], [6000], throughput=[[1, 3]])
    done = run(policy, jobs, replace(NO_COSTS, round_s=100.0), cluster((0, 4), (1, 4)))
    slow = policy in ("yarn", "fifo-backfill", "las", "isolated", "tiresias")
    # The blind ones may take the slower type; the others take 6000 / 3 s. A copy on the other type adds one
    # step per second, and of 100 s the two exchange for 10.
    best_s = 6000 / (4 * 0.9) if policy == "hadar-e" else 2000.0
    assert done.finish_s[0] == pytest.approx(best_s) or slow
    assert done.finish_s[0] <= 6000.0 + 1e-6


def test_the_same_seed_gives_the_same_log_to_the_bit() -> None:
    first, second = (run("gavel", drawn(5)) for _ in range(2))
    assert np.array_equal(first.finish_s, second.finish_s)
    assert np.array_equal(first.spans.begin_s, second.spans.begin_s)


def test_fifo_on_one_gpu_is_a_queue_with_one_server() -> None:
    random = np.random.default_rng(0)
    submit_s = np.cumsum(random.exponential(100, 60))
    steps = random.exponential(80, 60)
    done = run("fifo", workload(submit_s, [1] * 60, steps), where=cluster((0, 1)))
    ends, free_s = [], 0.0
    for at_s, work_s in zip(submit_s, steps, strict=True):
        free_s = max(free_s, at_s) + work_s
        ends.append(free_s)
    assert np.allclose(done.finish_s, ends)


def test_in_rounds_gpus_are_free_at_the_end_of_the_round_in_which_a_job_ends() -> None:
    jobs = workload([0, 0], [1, 1], [100, 100])
    timing = replace(NO_COSTS, round_s=360.0, at_events=False)
    done = run("fifo", jobs, timing, cluster((0, 1)))
    assert done.finish_s.tolist() == [100.0, 460.0]
    assert done.busy_gpu_s.sum() == 200.0


def test_a_preempted_job_pays_for_its_restart_and_keeps_its_work() -> None:
    # Job 0 reaches 3600 GPU-s at 3600 s and gives way to job 1 until that ends at 3700 s.
    jobs = workload([0, 100], [1, 1], [5000, 100])
    done = run("tiresias", jobs, Timing(restart_s=30.0), cluster((0, 1)))
    assert done.finish_s == pytest.approx([3700 + 30 + 1400, 3700], abs=1e-3)
    assert done.preemptions.tolist() == [1, 0]
    assert done.restart_s.tolist() == [30.0, 0.0]


@pytest.mark.parametrize("at_events", [True, False])
def test_starts_share_what_running_jobs_leave_of_the_machines_cores(at_events: bool) -> None:
    # Job 0 starts alone in 10 s. Job 1 begins at 100 s: 0.5 cores are free for its start of 10 core-s. Jobs 2
    # and 3 have two processes each, and join at 110 s, when job 1 has 5 core-s left.
    jobs = workload([0, 100, 110, 110], [1, 1, 2, 2], [1000, 1000, 1000, 1000])
    timing = Timing(10.0, at_events, start_s=10.0, cores=1.0, gpu_cores=0.5)
    done = run("fifo", jobs, timing, cluster((0, 8)))
    # At 110 s, five processes share 0.5 cores: job 1 needs 50 s more. After it, nothing is left of the core.
    assert done.restart_s[0] == pytest.approx(10)
    assert done.restart_s[1] == pytest.approx(10 + 50)
    # Jobs 2 and 3 got 5 of 10 s by 160 s, and the least there is until job 0 ends at 1010 s: 850 s at 0.0025.
    # Then 0.5 cores serve four processes, until job 1 ends at 1160 s: 2.875 s at a speed of 0.125.
    assert done.restart_s[2:] == pytest.approx(50 + 850 + 2.875 / 0.125)
    assert done.finish_s[2:] == pytest.approx(110 + done.restart_s[2] + 1000)


@pytest.mark.parametrize("at_events", [True, False])
def test_a_start_and_the_jobs_beside_it_slow_each_other(at_events: bool) -> None:
    # Job 0 uses 0.5 of two cores. A start takes one core at most, so that of job 1 lacks none.
    timing = Timing(100.0, at_events, start_s=30.0, cores=2.0, gpu_cores=0.5, beside_starts=0.8)
    done = run("fifo", workload([0, 100], [1, 1], [200, 1000]), timing, cluster((0, 2)))
    assert done.restart_s[0] == pytest.approx(30)
    assert done.restart_s[1] == pytest.approx(30)
    # Job 0 works 70 s alone, 30 s at 0.8 beside the start, and 106 s alone.
    assert done.finish_s[0] == pytest.approx(30 + 70 + 30 + 106)


def test_a_gang_of_two_shares_what_is_left_of_two_cores_and_has_a_start_time_of_its_own() -> None:
    timing = Timing(100.0, start_s=(30.0, 36.0), cores=2.0, gpu_cores=0.5)
    done = run("fifo", workload([0, 100], [1, 2], [900, 100]), timing, cluster((0, 4)))
    assert done.restart_s == pytest.approx([30, 36 / 0.75])


def test_a_job_waits_until_those_whose_gpus_it_gets_have_left() -> None:
    # Job 0 reaches 3600 GPU-s and gives way to job 1, which takes the free GPU and one of those that it left.
    timing = Timing(restart_s=30.0, start_s=20.0, leave_s=(7.0, 9.0))
    done = run("tiresias", workload([0, 100], [2, 2], [5000, 100]), timing, cluster((0, 3)))
    given_s = done.first_start_s[1]
    assert done.restart_s == pytest.approx([20 + 30, 9 + 20])
    assert done.finish_s[1] == pytest.approx(given_s + 9 + 20 + 100)


def test_a_first_step_belongs_to_the_start_and_a_preempted_job_finishes_its_step() -> None:
    timing = Timing(restart_s=30.0, start_s=20.0, leave_s=5.0, step_s=np.array([10.0, 4.0]))
    where, jobs = cluster((0, 1)), workload([0, 1000], [1, 1], [4000, 100])
    done = simulate(where, jobs, Tiresias(where, TiresiasSettings((500.0,), knob=0.0)), timing)
    assert done.finish_s[1] == pytest.approx(1000 + 5 + 20 + 100 - 4)
    # Job 0 has two lives, each with a first step of 10 s, and one of them ends with half a step.
    assert done.held_s[0] - done.restart_s[0] == pytest.approx(4000 - 2 * 10 - 10 / 2)
    assert done.restart_s[0] == pytest.approx(20 + 30)


def test_a_job_that_finds_free_gpus_waits_for_nobody_and_one_that_has_not_started_leaves_at_once() -> None:
    timing = Timing(restart_s=30.0, start_s=20.0, leave_s=7.0)
    done = run("fifo", workload([0, 1], [1, 1], [100, 100]), timing, cluster((0, 1), (0, 1)))
    assert done.restart_s == pytest.approx([20, 20])
    # Job 1 displaces job 0 when that works, and job 2 while it starts again.
    done = run("tiresias", workload([0, 100, 3760], [1] * 3, [5000, 100, 100]), timing, cluster((0, 1)))
    assert done.preemptions.tolist() == [2, 0, 0]
    assert done.restart_s[1:] == pytest.approx([7 + 20, 20])


def test_gangs_larger_than_the_measured_ones_take_the_last_time() -> None:
    timing = Timing(start_s=(10.0, 12.0), restart_s=(14.0, 18.0))
    again, gpus = np.array([False, False, False, True, True]), np.array([1, 2, 4, 1, 4])
    assert timing.starts_s(again, gpus).tolist() == [10, 12, 12, 14, 18]
    assert Timing(start_s=3.0, restart_s=4.0).starts_s(again, gpus).tolist() == [3, 3, 3, 4, 4]


def test_starts_are_drawn_around_their_median_by_a_seed() -> None:
    jobs, timing = workload(range(0, 200_000, 1000), [1] * 200, [1] * 200), Timing(start_s=20.0, spread=0.2)
    first, again, other = (run("tiresias", jobs, timing, seed=seed).restart_s for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.log(first / 20).std() == pytest.approx(0.2, rel=0.2)
    assert np.median(first) == pytest.approx(20, rel=0.06)


@pytest.mark.parametrize("at_events", [True, False])
def test_the_end_of_a_job_shares_the_cores_that_others_leave(at_events: bool) -> None:
    # Job 0 has done its work at 100 s. Its end of 5 core-s has 0.5 cores beside job 1, which ends alone.
    timing = Timing(10.0, at_events, end_s=5.0, cores=1.0, gpu_cores=0.5)
    done = run("fifo", workload([0, 0], [1, 1], [100, 200]), timing, cluster((0, 2)))
    assert done.finish_s == pytest.approx([100 + 10, 200 + 5])
    assert done.restart_s == pytest.approx([10, 5])


def test_a_job_holds_its_gpus_until_its_end_is_over() -> None:
    done = run("fifo", workload([0, 1], [1, 1], [100, 100]), Timing(end_s=20.0), cluster((0, 1)))
    assert done.finish_s.tolist() == [120.0, 240.0]
    assert done.first_start_s.tolist() == [0.0, 120.0]


def test_starts_do_not_slow_each_other_on_a_real_cluster() -> None:
    done = run("fifo", workload([0, 0, 0], [1, 1, 2], [100] * 3), Timing(start_s=10.0), cluster((0, 8)))
    assert done.restart_s.tolist() == [10.0, 10.0, 10.0]


def test_a_fault_undoes_the_work_since_the_last_save() -> None:
    downtime = Downtime(np.array([0]), np.array([1500.0]), np.array([2000.0]))
    jobs = workload([0], [1], [3000])
    done = run("fifo", jobs, Timing(restart_s=30.0, checkpoint_s=600.0), cluster((0, 1)), downtime)
    # 1500 s of work, saved at 1200; back at 2000, 30 s of restart, 1800 s to do.
    assert done.undone_s.tolist() == done.undone_gpu_s.tolist() == [300.0]
    assert done.finish_s[0] == pytest.approx(2000 + 30 + 1800)
    assert done.faulted.tolist() == [1]


def test_a_job_saves_after_so_much_of_its_work_in_however_many_parts_it_is_done() -> None:
    # Job 0 gives way at 3600 s, works again from 3730 s on, and saves at 4000 s of work: 100 s before the
    # fault.
    downtime = Downtime(np.array([0]), np.array([4230.0]), np.array([4300.0]))
    jobs, timing = workload([0, 100], [1, 1], [5000, 100]), Timing(restart_s=30.0, checkpoint_s=1000.0)
    done = run("tiresias", jobs, timing, cluster((0, 1)), downtime)
    assert done.undone_s == pytest.approx([100, 0], abs=1e-3)


@pytest.mark.parametrize(
    ("speed", "per_s", "lost_s"), [(0.5, 1.0, 1000.0), (2.0, 1.0, 100.0), (2.0, 2.0, 400.0)]
)
def test_a_job_saves_after_so_much_work_at_speed_1(speed: float, per_s: float, lost_s: float) -> None:
    # A job of half the speed has done 500 s of work when its server fails at 1000 s.
    downtime = Downtime(np.array([0]), np.array([1000.0]), np.array([2000.0]))
    jobs = workload([0], [1], [9000], throughput=[[speed]], per_s=per_s)
    done = run("fifo", jobs, Timing(checkpoint_s=600.0), cluster((0, 1)), downtime)
    assert done.undone_s.tolist() == pytest.approx([lost_s])


def test_a_fault_undoes_the_work_of_all_copies_of_a_job() -> None:
    downtime = Downtime(np.array([0]), np.array([500.0]), np.array([600.0]))
    timing = Timing(restart_s=0.0, checkpoint_s=300.0)
    done = run("hadar-e", workload([0], [1], [3000]), timing, cluster((0, 1), (0, 1), (0, 1)), downtime)
    # Three copies lose 10 s of each round of 360 s. They have saved four times 300 steps.
    lost_s = 500 - 1200 / (3 * (1 - 10 / 360))
    assert done.undone_s == pytest.approx([lost_s])
    assert done.undone_gpu_s == pytest.approx([3 * lost_s])


def test_two_jobs_on_one_gpu_are_slower_and_their_gpu_counts_once() -> None:
    # Beside each other each keeps 0.8: job 0 ends after 720 s of 360-s rounds, then job 1 has the GPU alone.
    sharing = Sharing(np.zeros(2, np.int64), np.full((1, 1, 1), 0.8))
    jobs = workload([0, 0], [1, 1], [576, 1000], sharing=sharing)
    done = run("gavel-sharing", jobs, where=cluster((0, 1)))
    assert done.finish_s.tolist() == pytest.approx([720.0, 720 + 1000 - 576])
    assert done.busy_gpu_s.tolist() == pytest.approx([1144.0])
    assert done.held_gpu_s.tolist() == pytest.approx([360.0, 1144.0 - 360])
    assert done.preemptions.tolist() == [0, 0]


def test_gandiva_pairs_jobs_while_gpus_are_short() -> None:
    jobs = workload([0] * 4, [1] * 4, [1000] * 4)
    alone, paired = (
        run("gandiva", replace(jobs, sharing=Sharing(np.zeros(4, np.int64), kept)), where=cluster((0, 1)))
        for kept in (np.full((1, 1, 1), 0.4), np.full((1, 1, 1), 0.75))
    )
    # Two jobs that keep 0.4 of a GPU each gain nothing, so they are not paired: 4000 s of work.
    assert alone.busy_gpu_s.sum() == pytest.approx(4000.0)
    assert paired.busy_gpu_s.sum() == pytest.approx(4000 / 1.5)


def test_a_fault_of_a_shared_server_hits_both_jobs() -> None:
    sharing = Sharing(np.zeros(2, np.int64), np.full((1, 1, 1), 0.5 + 1e-3))
    downtime = Downtime(np.array([0]), np.array([500.0]), np.array([600.0]))
    jobs = workload([0, 0], [1, 1], [1000, 1000], sharing=sharing)
    done = run("gavel-sharing", jobs, Timing(restart_s=30.0, checkpoint_s=200.0), cluster((0, 1)), downtime)
    assert done.faulted.tolist() == [1, 1]
    lost_s = 500 - 200 / (0.5 + 1e-3)
    assert done.undone_s.tolist() == pytest.approx([lost_s, lost_s])
    assert done.undone_gpu_s.tolist() == pytest.approx([lost_s / 2, lost_s / 2])
    assert done.held_gpu_s.sum() == pytest.approx(done.busy_gpu_s.sum())


def test_a_fault_undoes_what_was_done_at_the_speed_at_which_it_was_done() -> None:
    # Job 0 is alone until job 1 joins it, and nothing is saved before the fault: both begin again.
    sharing = Sharing(np.zeros(2, np.int64), np.full((1, 1, 1), 0.8))
    downtime = Downtime(np.array([0]), np.array([3000.0]), np.array([3100.0]))
    jobs = workload([0, 300], [1, 1], [6000, 6000], sharing=sharing)
    done = run("gavel-sharing", jobs, Timing(restart_s=0.0, checkpoint_s=1e6), cluster((0, 1)), downtime)
    assert done.spans is not None
    again_s = done.spans.begin_s[done.spans.begin_s >= 3000].min()
    assert done.finish_s == pytest.approx([again_s + 6000 / 0.8] * 2)


def test_a_job_that_can_never_run_is_refused_by_its_number() -> None:
    with pytest.raises(ScenarioError, match="job 1 asks for 9 GPUs and can have 8 at most"):
        run("fifo", workload([0, 1], [1, 9], [1, 1]), where=cluster((0, 4), (0, 4)))


def test_jobs_that_lose_their_gpus_before_they_have_started_end_the_run_with_the_reason() -> None:
    jobs = workload([0.0, 0.0], [1, 1], [1000.0, 1000.0])
    # Gavel gives the only GPU to the other job after every round of 100 s, and a start takes 150 s.
    timing = Timing(100.0, at_events=False, start_s=150.0, restart_s=150.0)
    with pytest.raises(ScenarioError, match=r"no job works in 1000 rounds of 100 s.* a restart 150 s"):
        run("gavel", jobs, timing, cluster((0, 1)))


@pytest.mark.parametrize("policy", ["fifo", "las", "tiresias"])
def test_jobs_that_wait_long_for_a_server_run_once_it_is_back(policy: str) -> None:
    down = Downtime(np.array([0]), np.array([1.0]), np.array([15_000.0]))
    timing = Timing(10.0, at_events=False, restart_s=3.0)
    done = run(policy, workload([0.0], [1], [100.0]), timing, cluster((0, 1)), down)
    assert done.finish_s[0] == pytest.approx(15_103, abs=10)


def test_it_ends_when_the_watched_jobs_have_finished() -> None:
    done = run("fifo", workload([0, 0, 0], [1] * 3, [10, 20, 30]), where=cluster((0, 1)), until=2)
    assert done.finish_s[:2].tolist() == [10.0, 30.0]
    assert np.isnan(done.finish_s[2])


@pytest.mark.parametrize("policy", ["fifo", "las", "pollux"])
def test_servers_count_while_no_job_is_there(policy: str) -> None:
    # One server is down from 1000 to 2000 s, in the hour in which the queue is empty.
    jobs = workload([0, 3600], [1, 1], [100, 100])
    downtime = Downtime(np.array([0]), np.array([1000.0]), np.array([2000.0]))
    done = run(policy, jobs, replace(NO_COSTS, round_s=100.0), cluster((0, 2), (0, 1)), downtime)
    assert done.busy_gpu_s.sum() == pytest.approx(200.0)
    assert done.capacity_gpu_s.sum() == pytest.approx(3 * 3700.0 - 2 * 1000.0)


@pytest.mark.parametrize("policy", ["fifo", "tiresias", "las", "gavel"])
def test_servers_count_until_the_last_watched_job_ends(policy: str) -> None:
    # The last job ends at 250 s, inside the first round of 1000 s.
    done = run(policy, workload([0, 0], [2, 2], [100, 250]), Timing(1000.0, restart_s=0.0), cluster((0, 4)))
    assert done.end_s == 250.0
    assert done.busy_gpu_s.sum() == pytest.approx(2 * 100 + 2 * 250)
    assert done.capacity_gpu_s.sum() == pytest.approx(4 * 250)


@pytest.mark.parametrize("policy", ["fifo", "las"])
def test_the_queue_is_empty_from_the_end_of_the_last_job_on(policy: str) -> None:
    jobs = workload([0, 3600], [1, 1], [100, 100])
    done = run(policy, jobs, replace(NO_COSTS, round_s=100.0), cluster((0, 3)))
    series = done.series
    assert series.at_s == pytest.approx([0, 100, 3600, 3700])
    assert series.running.tolist() == series.busy_gpus.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_gang_that_stays_together_may_fill_the_servers_of_a_rack(policy: str) -> None:
    jobs = workload([0, 0], [8, 1], [1000, 10], together=np.array([True, True]))
    done = run(policy, jobs, where=cluster((0, 4), (0, 4), (0, 4), racks=[0, 1, 1]))
    assert np.isfinite(done.finish_s).all()
    assert done.spans is not None
    assert set(done.spans.server[done.spans.job == 0]) == {1, 2}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_type_whose_racks_are_too_small_for_a_gang_that_stays_together_is_none_of_its_types(
    policy: str,
) -> None:
    jobs = workload([0], [8], [1000], throughput=[[9, 1]], together=np.array([True]))
    done = run(policy, jobs, where=cluster((0, 4), (0, 4), (1, 8), racks=[0, 1, 0]))
    assert done.finish_s == pytest.approx([1000])


def test_a_restarting_job_that_is_about_to_drop_a_queue_asks_for_no_decisions_until_it_works() -> None:
    # Job 0 is 0.1 GPU-s below the threshold when its server fails. It restarts for 1000 s.
    downtime = Downtime(np.array([0]), np.array([3599.9]), np.array([3700.0]))
    where, asked = cluster((0, 1)), []

    class Counted(Tiresias):
        def on_round(self, state):
            asked.append(state.now_s)
            return super().on_round(state)

    scheduler = Counted(where, TiresiasSettings())
    done = simulate(where, workload([0], [1], [5000]), scheduler, Timing(restart_s=1000.0), downtime=downtime)
    # The work since the last save, at 3000 s, is undone.
    assert done.finish_s[0] == pytest.approx(3700 + 1000 + 5000 - 3000)
    assert len(asked) <= 8


def test_a_scheduler_of_the_users_may_keep_its_states() -> None:
    class Keeps(Fifo):
        states: ClassVar[list[State]] = []

        def on_round(self, state: State) -> Assignment:
            self.states.append(state)
            return super().on_round(state)

    where = cluster((0, 1))
    watched = WatchedScheduler(where, Keeps(where, 0))
    simulate(where, workload([0, 10], [1, 1], [100, 100]), watched, NO_COSTS)
    assert [state.left_steps.tolist() for state in Keeps.states] == [[100.0], [90.0, 100.0], [100.0]]
