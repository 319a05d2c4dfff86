"""Small clusters and queues for the tests of schedulers."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from control.scheduler.model import (
    NOT_ELASTIC,
    NOTHING,
    Assignment,
    Cluster,
    Elastic,
    Real,
    Sharing,
    State,
    Whole,
)
from control.scheduler.pollux import PolluxSettings

SHORT = {"pollux": PolluxSettings(population=16, generations=8)}
"""Settings under which a search is short: what holds for every plan needs no good one."""


def cluster(
    *servers: tuple[int, int], racks: list[int] | None = None, queues: int = 1, **more: Any
) -> Cluster:
    """A cluster of (type, GPUs) servers."""
    kinds = max(kind for kind, _ in servers) + 1
    return Cluster(
        tuple(f"type{kind}" for kind in range(kinds)),
        np.array([kind for kind, _ in servers]),
        np.array([gpus for _, gpus in servers]),
        np.array(racks or [0] * len(servers)),
        np.linspace(3.0, 1.0, kinds),
        more.get("queue_share", np.full(queues, 1 / queues)),
        more.get("queue_most", np.ones(queues)),
    )


def state(where: Cluster, gpus: list[int], **given: Any) -> State:
    """Jobs that were submitted one second after the other and never ran; steps are seconds on type 0."""
    n, kinds = len(gpus), len(where.types)
    ones = np.ones(n)
    submit_s = np.arange(n, dtype=float)
    throughput = given.pop("throughput", np.ones((n, kinds)))
    values: dict[str, Any] = {
        "now_s": float(n),
        "up": np.ones(where.server_gpus.size, np.bool_),
        "job": np.arange(n),
        "submit_s": submit_s,
        "gpus": np.array(gpus, np.int64),
        "queue": np.zeros(n, np.int64),
        "weight": ones,
        "deadline_s": np.full(n, np.inf),
        "left_steps": ones * 1000,
        "total_steps": ones * 1000,
        "throughput": np.repeat(np.asarray(throughput, float)[:, :, None], 2, axis=2),
        "together": np.zeros(n, np.bool_),
        "attained_gpu_s": np.zeros(n),
        "ran_s": np.zeros(n),
        "first_start_s": np.full(n, np.inf),
        "idle_since_s": submit_s,
        "starts_s": np.zeros(n),
        "held": NOTHING,
    }
    return State(**{**values, **given})


def after(before: State, given: Assignment, *, passes_s: float = 100.0) -> State:
    """The state after the assignment was in force for a while."""
    running = np.zeros(len(before), np.bool_)
    running[given.row] = True
    ran = running * passes_s
    return replace(
        before,
        now_s=before.now_s + passes_s,
        held=given,
        attained_gpu_s=before.attained_gpu_s + ran * before.gpus,
        ran_s=before.ran_s + ran,
        first_start_s=np.where(running, np.minimum(before.first_start_s, before.now_s), before.first_start_s),
        idle_since_s=np.where(before.running() & ~running, before.now_s, before.idle_since_s),
        left_steps=np.maximum(before.left_steps - ran, 1.0),
    )


def permuted(before: State, order: Whole) -> State:
    """Return the same state with its jobs in another order."""
    place = np.argsort(order)
    arrays = {
        field.name: getattr(before, field.name)[order]
        for field in fields(before)
        if field.name not in ("now_s", "up", "held", "sharing", "elastic")
    }
    held = before.held
    moved = Assignment(place[held.row], held.server, held.gpus, place[held.shared])
    return replace(before, **arrays, held=moved)


def lines(before: State, given: Assignment) -> set[tuple[int, int, int]]:
    """The assignment by job id: (job, server, GPUs)."""
    return set(zip(before.job[given.row].tolist(), given.server.tolist(), given.gpus.tolist(), strict=True))


def table(*rows: tuple[float, ...]) -> Real:
    """Steps per second, a row for each job."""
    return np.array(rows, float)


@st.composite
def worlds(draw: st.DrawFn, kinds: int = 3, *, elastic: bool = False) -> tuple[Cluster, State]:
    """A random cluster, whose servers may be down, and a random queue."""
    servers = draw(st.lists(st.tuples(st.integers(0, kinds - 1), st.integers(1, 8)), min_size=1, max_size=8))
    where = cluster(*servers, racks=[index // 3 for index in range(len(servers))], queues=2)
    n = draw(st.integers(0, 12))
    numbers = np.random.default_rng(draw(st.integers(0, 2**31)))
    r = len(where.types)
    throughput = numbers.uniform(0.1, 10, (n, r)) * (numbers.random((n, r)) < 0.9)
    before = state(
        where,
        numbers.choice([1, 1, 2, 3, 4, 8], n).tolist(),
        throughput=throughput,
        up=numbers.random(len(servers)) < 0.9,
        queue=numbers.integers(0, 2, n),
        weight=numbers.choice([1.0, 5.0], n),
        deadline_s=np.where(numbers.random(n) < 0.5, n + 2000.0, np.inf),
        left_steps=numbers.uniform(1, 1000, n),
        together=numbers.random(n) < 0.3,
        submit_s=np.sort(numbers.integers(0, n + 1, n)).astype(float),
        elastic=Elastic(numbers.integers(-1, 2, n), np.cumsum(numbers.random((2, 2, 17)), axis=2))
        if elastic
        else NOT_ELASTIC,
        sharing=Sharing(
            numbers.integers(0, 3, n), numbers.random((3, 3, r)) * (numbers.random((3, 3, r)) < 0.8)
        ),
    )
    return where, before
