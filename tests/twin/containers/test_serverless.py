"""Pods of a serverless function: cold starts, reuse, keep-alive, lines, kills, batches and the limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator import make
from control.allocator.model import Application
from control.allocator.ports import Allocator
from control.services import Draw
from control.services import RequestStatus as Status
from twin.containers.model import Machine
from twin.containers.pods import PodRequests
from twin.containers.serverless import ServerlessOutcome, simulate_serverless
from twin.containers.serverless_model import Batch, Invocations, PodSpec, ServerlessWorkload, Step
from twinbed import InvariantError, ScenarioError

MIB = 1 << 20
MACHINE = Machine(
    telemetry_delay_s=0.0001,
    telemetry_jitter_s=0.0002,
    quota_write_delay_s=0.0002,
    oom_grant_delay_s=0.0002,
    reclaim_delay_s=0.001,
    restart_s=2.0,
)
POD = PodSpec(
    cores=1.0,
    memory_bytes=256 * MIB,
    threads=1,
    start=Step(False, Draw.FIXED, 1.0),
    initialise=Step(True, Draw.FIXED, 0.5),
    keep_alive_s=5.0,
    base_bytes=40 * MIB,
    working_bytes=60 * MIB,
    retained_bytes=20 * MIB,
)
READ = Step(False, Draw.FIXED, 0.2)
COMPUTE = Step(True, Draw.FIXED, 0.3)
WRITE = Step(False, Draw.FIXED, 0.1)


def function(
    *at_s: float, max_pods: int = 4, pod: PodSpec = POD, seconds: int = 20, phases: int = 1
) -> ServerlessWorkload:
    application = Application("thumbnails", float(max_pods), max_pods * 256 * MIB)
    return ServerlessWorkload(
        application=application,
        pod=pod,
        steps=(READ, COMPUTE, WRITE),
        load=Invocations(np.array(at_s, np.float64)),
        max_pods=max_pods,
        hosts=2,
        cores_per_host=8.0,
        period_s=0.1,
        periods=10 * seconds,
        phases=phases,
    )


def batch(tasks: int, workers: int, **changes: object) -> ServerlessWorkload:
    varied = (READ, Step(True, Draw.LOGNORMAL, 0.4, 0.5))
    whole = replace(function(max_pods=workers), load=Batch(tasks, workers), steps=varied, periods=600)
    return replace(whole, **changes)  # type: ignore[arg-type]


def static() -> Allocator:
    return make("static", {"factor": 1.0})


def run(workload: ServerlessWorkload, allocator: Allocator | None = None, seed: int = 0) -> ServerlessOutcome:
    return simulate_serverless(workload, allocator or static(), MACHINE, seed=np.random.SeedSequence(seed))


def counted(result: ServerlessOutcome) -> Counter[str]:
    return Counter(result.outcome.events.kind)


def test_the_first_invocation_waits_for_a_pod_and_the_second_reuses_it() -> None:
    result = run(function(0.0, 3.0))
    # start 1 s, initialisation 0.5 s at full speed, then 0.2 + 0.3 + 0.1 s.
    np.testing.assert_allclose(result.start_s, [1.5, 3.0])
    np.testing.assert_allclose(result.invocations.latency_s, [2.1, 0.6])
    assert result.cold.tolist() == [True, False]
    assert result.pods_started == counted(result)["join"] == 1


def test_the_pod_used_last_is_taken_first() -> None:
    result = run(function(0.0, 0.1, 4.0, 5.0, 9.2))
    # The pods end at 2.1 and 2.2: the second serves all others, and the first leaves in its time.
    assert result.cold.tolist() == [True, True, False, False, False]
    events = result.outcome.events
    left = [
        (at, pod)
        for at, pod, kind in zip(events.at_s, events.container, events.kind, strict=True)
        if kind == "leave"
    ]
    assert left == [(pytest.approx(7.1), 0), (pytest.approx(14.8), 1)]


def test_an_idle_pod_leaves_when_its_keep_alive_has_passed_and_the_next_start_is_cold() -> None:
    result = run(function(0.0, 10.0))
    assert counted(result) == {"join": 2, "leave": 2}
    assert result.outcome.events.at_s == pytest.approx([0.0, 7.1, 10.0, 17.1])
    assert result.cold.all()
    assert result.pods[[69, 72, 98]].tolist() == [1, 0, 0]


def test_invocations_wait_in_line_when_there_may_be_no_more_pods() -> None:
    result = run(function(0.0, 0.0, 0.0, 0.0, max_pods=2))
    assert result.pods_started == 2
    assert result.pods.max() == 2
    np.testing.assert_allclose(result.start_s, [1.5, 1.5, 2.1, 2.1])
    assert result.cold.tolist() == [True, True, False, False]


def test_a_pod_has_limits_from_the_moment_it_is_asked_for() -> None:
    result = run(function(1.05))
    series = result.outcome.series
    assert series is not None
    cores, held = ((series.up * limits).sum(axis=1) for limits in (series.quota_cores, series.limit_bytes))
    # The pod joins in the middle of period 10 and computes nothing for a second.
    assert cores[9:12].tolist() == [0.0, 1.0, 1.0]
    assert held[10] == 256 * MIB
    assert series.usage_cores[10:20].sum() == 0.0
    assert series.memory_bytes[10:20, 0].tolist() == [40 * MIB] * 10


def test_a_pod_holds_what_it_works_on_and_keeps_what_its_initialisation_left() -> None:
    series = run(function(0.0)).outcome.series
    assert series is not None
    # starts up | initialises | reads | computes | idle
    assert (series.memory_bytes[[5, 12, 15, 18, 30], 0] / MIB).tolist() == [40, 100, 60, 120, 60]


def test_threads_divide_cpu_work_as_far_as_the_quota_goes() -> None:
    pod = replace(POD, threads=3)
    alone = run(function(0.0, pod=pod), make("unlimited", {}))
    # 1 s to start; 0.5 s and 0.3 s of work on three CPUs; 0.3 s of waits.
    np.testing.assert_allclose(alone.invocations.latency_s, [1.0 + 0.8 / 3 + 0.3])
    series = run(function(0.0, pod=pod)).outcome.series
    assert series is not None
    assert series.usage_cores.max() == pytest.approx(1.0)
    assert series.throttled.any()
    assert (series.memory_bytes[[5, 12, 15, 17, 30], 0] / MIB).tolist() == [40, 100, 60, 120, 60]


def test_limits_of_a_pod_that_left_are_there_for_others() -> None:
    # Ω is for one pod: the second fits only because the first has left and been forgotten.
    result = run(function(0.0, 10.0, max_pods=1))
    assert (result.invocations.status == Status.OK).all()
    escra = make("escra", {})
    result = run(function(0.0, 10.0, max_pods=1), escra)
    assert (result.invocations.status == Status.OK).all()
    assert escra.cpu.pool_cores[0] == pytest.approx(1.0)  # type: ignore[attr-defined]
    assert escra.memory.pool_bytes[0] == 256 * MIB  # type: ignore[attr-defined]


def test_a_pod_killed_for_memory_is_gone_and_its_invocation_has_failed() -> None:
    heavy = replace(POD, working_bytes=300 * MIB)
    result = run(function(0.0, 5.0, pod=heavy))
    assert result.invocations.status.tolist() == [Status.FAILED, Status.FAILED]
    np.testing.assert_allclose(result.invocations.end_s, [1.0, 6.0])
    assert counted(result)["kill"] == counted(result)["leave"] == result.pods_started == 2
    assert result.attempts.tolist() == [1, 1]


def test_a_pod_that_does_not_fit_its_limit_dies_as_it_joins_and_hangs_nothing() -> None:
    fat = replace(POD, base_bytes=300 * MIB)
    result = run(function(0.0, 0.0, 0.0, pod=fat, max_pods=2))
    assert (result.invocations.status == Status.FAILED).all()
    assert result.pods[-1] == 0


def test_an_idle_pod_that_is_killed_is_not_given_work() -> None:
    class Killer:
        """Static limits, but every pod is killed at 4 s."""

        def __init__(self) -> None:
            self._inner = static()

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        def on_period(self, stats):  # type: ignore[no-untyped-def]
            decision = self._inner.on_period(stats)
            return replace(decision, kill=stats.ids) if abs(stats.at_s - 4.0) < 0.05 else decision

    result = run(function(0.0, 4.5), Killer())  # type: ignore[arg-type]
    assert result.invocations.status.tolist() == [Status.OK, Status.OK]
    assert result.cold.tolist() == [True, True]
    assert result.pods_started == 2


def test_pods_that_the_limits_have_no_room_for_are_not_started() -> None:
    # Ω is 3.5 cores: three static pods of one core, and Escra's five smaller ones.
    narrow = replace(batch(20, 5), application=Application("a", 3.5, 5 * 256 * MIB))
    result = run(narrow)
    assert result.pods.max() == result.pods_started == 3
    assert (result.invocations.status == Status.OK).all()
    assert run(narrow, make("escra", {})).pods.max() == 5


def test_a_pod_that_never_fits_is_the_users_mistake() -> None:
    with pytest.raises(ScenarioError, match="above its limit"):
        run(replace(function(0.0), application=Application("a", 0.5, 1 << 30)))


def test_a_task_whose_pod_was_killed_is_taken_again_as_often_as_it_may() -> None:
    result = run(batch(3, 2, pod=replace(POD, working_bytes=300 * MIB)))
    assert result.attempts.tolist() == [2, 2, 2]
    assert (result.invocations.status == Status.FAILED).all()
    assert result.pods_started == 6


def test_the_workers_of_a_batch_start_together_and_share_its_tasks() -> None:
    result = run(batch(20, 4))
    assert (result.invocations.status == Status.OK).all()
    assert (result.attempts == 1).all()
    events = result.outcome.events
    assert [at for at, kind in zip(events.at_s, events.kind, strict=True) if kind == "join"] == [0.0] * 4
    assert result.cold.sum() == 4
    assert result.job_s == result.invocations.end_s.max()
    # Whoever is done takes the next: nobody begins later than the earliest end before it.
    later = np.sort(result.start_s)[4:]
    np.testing.assert_allclose(later, np.sort(result.invocations.end_s)[: len(later)])


def test_a_batch_is_recorded_until_its_last_task_is_done() -> None:
    result = run(batch(5, 2))
    series = result.outcome.series
    assert series is not None
    assert len(series.up) == len(result.pods) == int(np.ceil(result.job_s / 0.1))
    assert max(result.outcome.events.at_s) <= len(series.up) * 0.1


def test_a_batch_that_is_not_done_in_time_has_no_job_time() -> None:
    result = run(batch(50, 2, periods=50))
    assert np.isnan(result.job_s)
    assert (result.invocations.status == Status.PENDING).any()


def test_more_workers_than_tasks_start_a_pod_for_each_task() -> None:
    assert run(batch(2, 5)).pods_started == 2


def test_policies_meet_the_same_invocations() -> None:
    # Without limits in the way, the time that an invocation takes once begun is its own.
    workload = batch(12, 3)
    generous = replace(workload, application=Application("a", 100.0, 1 << 40))
    quick = run(generous, make("static", {"factor": 4.0}))
    other = run(generous, make("unlimited", {}))
    np.testing.assert_allclose(
        quick.invocations.end_s - quick.start_s, other.invocations.end_s - other.start_s, atol=1e-9
    )


def test_the_same_seed_gives_the_same_outcome_and_another_seed_another() -> None:
    workload = batch(30, 4, phases=4)
    first, again, other = (run(workload, make("escra", {}), seed) for seed in (3, 3, 4))
    assert first.outcome.series is not None
    assert again.outcome.series is not None
    for name in ("usage_cores", "quota_cores", "limit_bytes", "up"):
        assert np.array_equal(getattr(first.outcome.series, name), getattr(again.outcome.series, name))
    assert np.array_equal(first.invocations.end_s, again.invocations.end_s)
    assert first.outcome.events == again.outcome.events
    assert not np.array_equal(first.invocations.end_s, other.invocations.end_s)


@pytest.mark.parametrize(
    "broken",
    [
        replace(function(0.0), steps=()),
        function(2.0, 1.0),
        function(-1.0),
        replace(function(0.0), max_pods=0),
        batch(0, 1),
        function(0.0, pod=replace(POD, start=COMPUTE)),
        function(0.0, pod=replace(POD, initialise=Step(True, Draw.FIXED, float("nan")))),
    ],
)
def test_a_workload_that_cannot_be_is_refused(broken: ServerlessWorkload) -> None:
    with pytest.raises(InvariantError, match="serverless"):
        run(broken)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    at_ms=st.lists(st.integers(0, 15_000), max_size=25),
    max_pods=st.integers(1, 5),
    phases=st.sampled_from([1, 3]),
    keep_alive_s=st.sampled_from([0.0, 0.4, 3.0]),
    policy=st.sampled_from(["static", "escra"]),
    working_mib=st.sampled_from([60, 250]),
)
def test_whatever_comes_everything_ends_once_and_limits_stay_below_those_of_the_application(
    at_ms: list[int], max_pods: int, phases: int, keep_alive_s: float, policy: str, working_mib: int
) -> None:
    pod = replace(POD, keep_alive_s=keep_alive_s, working_bytes=working_mib * MIB)
    at_s = sorted(ms / 1000 for ms in at_ms)
    workload = function(*at_s, max_pods=max_pods, pod=pod, seconds=150, phases=phases)
    sums = []

    def watched(physics: PodRequests, at_s: float) -> float:
        """The loop moves the physics before each thing that it does, so this sees every limit there is."""
        fleet = physics.fleet
        sums.append((fleet.quota.sum(), int(fleet.limit_bytes.sum())))
        return original(physics, at_s)

    original = PodRequests.run_until
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PodRequests, "run_until", watched)
        result = run(workload, make(policy, {"factor": 1.0} if policy == "static" else {}))
    application = workload.application
    assert max(cores for cores, _ in sums) <= application.cpu_limit_cores * (1 + 1e-9)
    assert max(held for _, held in sums) <= application.memory_limit_bytes

    log, events = result.invocations, counted(result)
    assert np.isin(log.status, (Status.OK, Status.FAILED)).all()
    assert (result.attempts == 1).all()
    done = log.status == Status.OK
    assert (log.end_s >= log.at_s).all()
    assert (log.end_s[done] - result.start_s[done] >= 0.6 - 1e-9).all()
    assert events["join"] == result.pods_started == result.cold.sum()
    assert events["join"] - events["leave"] == result.pods[-1]
    assert result.pods.max(initial=0) <= max_pods
    # No pod works on two things at once: at most max_pods between start and end at any start.
    for start in result.start_s[done]:
        assert ((result.start_s[done] <= start) & (log.end_s[done] > start)).sum() <= max_pods
    lost = log.lost_s.sum() + log.waiting_s.sum()
    assert result.outcome.arrived_s.sum() == pytest.approx(result.outcome.done_s.sum() + lost, abs=1e-6)
