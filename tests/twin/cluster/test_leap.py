"""One compiled pass of all events beside the simulation event by event."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from control.cluster import NEVER_DOWN, Downtime, Outcome, Timing, Workload
from control.scheduler import books, make, settings
from control.scheduler.model import Cluster
from tests.control.scheduler.worlds import cluster
from tests.twin.cluster.test_cluster_simulation import workload
from twin.cluster import leap_first_come, passes
from twin.cluster.simulation import random_downtime, simulate
from twinbed import InvariantError


def drawn(seed: int, n: int) -> tuple[Cluster, Workload]:
    """A cluster of three types, and jobs of which some cannot run on some types and many come at once."""
    random = np.random.default_rng(seed)
    where = cluster(
        (0, 8),
        *zip(random.integers(0, 3, 5).tolist(), random.integers(1, 9, 5).tolist(), strict=True),
        (2, 4),
    )
    rates = random.uniform(0.5, 4, (n, len(where.types))) * (random.random((n, len(where.types))) < 0.7)
    rates[:, 0] = np.maximum(rates[:, 0], 0.3)
    jobs = workload(
        np.sort(random.integers(0, 40 * n, n) * 10.0),
        random.choice([1, 1, 2, 3, 8], n),
        np.exp(random.normal(7, 1.5, n)),
        throughput=rates,
        per_s=random.uniform(0.5, 2, n),
    )
    return where, replace(jobs, throughput=np.stack((rates, 0.7 * rates), axis=2))


def require_equal(first: Outcome, second: Outcome) -> None:
    for field in fields(first):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if field.name == "series":
            assert [column.name for column in fields(one)] == ["at_s", "waiting", "running", "busy_gpus"]
            for column in fields(one):
                assert np.array_equal(getattr(one, column.name), getattr(other, column.name)), column.name
        elif field.name != "spans":
            assert np.array_equal(one, other, equal_nan=isinstance(one, np.ndarray)), field.name


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("thresholds_gpu_s", [[3600.0], [100.0, 3000.0, 10_000.0], []])
def test_its_outcome_is_that_of_the_simulation_event_by_event_to_the_bit(
    seed: int, thresholds_gpu_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 60
    where, jobs = drawn(seed, n)
    timing = Timing(
        restart_s=(30.0, 0.0, 200.0)[seed % 3],
        start_s=20.0 * (seed % 2),
        end_s=(0.0, 15.0)[seed % 4 == 3],
        checkpoint_s=(600.0, 50.0)[seed % 2],
    )
    faults = random_downtime(
        len(where.server_gpus), per_day=20.0, repair_s=900.0, begin_s=0.0, end_s=400.0 * n, seed=seed
    )
    own = settings("tiresias", {"thresholds_gpu_s": thresholds_gpu_s, "knob": (8.0, 2.0, 0.0)[seed // 4]})
    asked: dict[str, Any] = {
        "downtime": (faults, NEVER_DOWN)[seed % 5 == 4],
        "until": (None, n // 2)[seed % 6 == 5],
    }
    outcomes, told = [], []
    for most_with_spans in (n, 0):
        monkeypatch.setattr(books, "MOST_WITH_SPANS", most_with_spans)
        tiresias = make("tiresias", where, 0, {"tiresias": own})
        shares: list[float] = []
        outcomes.append(simulate(where, jobs, tiresias, timing, **asked, progress=shares.append))
        told.append(shares)
    assert (outcomes[0].spans is None, outcomes[1].spans is None) == (False, True)
    require_equal(*outcomes)
    assert told[0] == told[1]


def test_jobs_without_a_server_for_ever_end_it_with_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "MOST_WITH_SPANS", 0)
    where, gone = cluster((0, 1)), Downtime(np.array([0]), np.array([50.0]), np.array([np.inf]))
    with pytest.raises(InvariantError, match="Tiresias: 2 jobs never run"):
        simulate(
            where, workload([0, 0], [1, 1], [100, 100]), make("tiresias", where, 0), Timing(), downtime=gone
        )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("policy", ["fifo", "fifo-fastest"])
def test_a_pass_of_fifo_is_the_simulation_event_by_event_to_the_bit(
    policy: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 60
    where, jobs = drawn(seed, n)
    if policy == "fifo":
        where = cluster((0, 8), (1, 8), (0, 3), (1, 2))
        jobs = replace(jobs, throughput=np.ascontiguousarray(jobs.throughput[:, :2]))
    timing = Timing(start_s=20.0 * (seed % 2), end_s=(0.0, 15.0)[seed % 4 == 3])
    passed: list[str] = []
    run = leap_first_come.run
    monkeypatch.setattr(leap_first_come, "run", lambda *given: passed.append(policy) or run(*given))
    outcomes, told = [], []
    for most_with_spans in (n, 0):
        monkeypatch.setattr(books, "MOST_WITH_SPANS", most_with_spans)
        shares: list[float] = []
        until = (None, n // 2)[seed % 6 == 5]
        fifo = make(policy, where, seed)
        outcomes.append(simulate(where, jobs, fifo, timing, until=until, progress=shares.append))
        told.append(shares)
    assert passed == [policy]
    require_equal(*outcomes)
    assert told[0] == told[1]


@pytest.mark.parametrize("jobs", [1, 60, 100, 150, 200, 5_000])
def test_a_pass_that_ends_to_tell_of_its_progress_is_followed_by_one_with_fewer_jobs(jobs: int) -> None:
    """Shares of a hundred jobs are whole percents, which a sum of floats may miss by its last digit."""
    books = SimpleNamespace(until=jobs, unfinished=jobs, sampled=lambda _: None, finish=np.zeros(jobs))
    left: list[int] = []

    def events(now_s: float, counts: np.ndarray, samples: np.ndarray, stop: int) -> tuple[float, int]:
        assert stop < counts[passes.UNFINISHED]
        counts[passes.UNFINISHED] = stop
        left.append(stop)
        return now_s, passes.ENDED

    shares: list[float] = []
    passes.passes(books, SimpleNamespace(runs=np.zeros(1)), events, shares.append)  # type: ignore[arg-type]
    assert left[-1] == 0
    assert shares == [1 - unfinished / jobs for unfinished in left]
