"""Simulate a synchronous job on a fleet for months, failure by failure: detection, spares, restarts,
checkpoint tiers.

For: effective training time, and GPU-hours by their use, under a plan for failures. Not for: single
iterations and the edge's links (fleet.py), because a job of this size has millions of them. Compiled code
walks the failures of all nodes as one Poisson process. So the cost of a run depends on the number of
failures, and not on the number of GPUs. A failure while the job is down begins detection again, with the
larger need of both failures. While the job waits for nodes or a switch no process runs, so only nodes and
switches fail, which lengthens the wait. Saves are spread evenly over the work between them, whatever fails
meanwhile. Each ends at the same time as if it were one block. A failed node returns after its repair, first
to the warm pool, then to the cold one. A tier's save is safe at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from twin.containers.compiled import kernel
from twin.fabric.model import Floats, Whole
from twinbed import ScenarioError


class Loss(IntEnum):
    """The damage of a failure. A checkpoint tier survives the loss that it names, and all smaller ones.

    PROCESS: the processes end, but the node's memory stays. REBOOT: the node returns with its disk. NODE: the
    node is lost. PEERS: the node and the one with its copy are lost, or the state itself is wrong.
    """

    PROCESS = 0
    REBOOT = 1
    NODE = 2
    PEERS = 3


class Action(IntEnum):
    """The action that ends a failure. UPDATE: restart in place (hot update). REPLACE: take another node.
    WAIT: wait for the repair, as when a switch fails."""

    UPDATE = 0
    REPLACE = 1
    WAIT = 2


@dataclass(frozen=True, slots=True)
class Failure:
    """A cause of failures.

    per_s: failures of the whole fleet per second. detect_s: time until a failure is known and located, s.
    loss: its damage. action: the action that ends it. repair_s: time until the node or switch works again, s.
    stalls_s: times for which a failure that the fabric survives holds up the job, s, drawn with replacement
    (inf: the job dies; empty: it always dies).
    """

    name: str
    per_s: float
    detect_s: float
    loss: Loss
    action: Action
    repair_s: float
    stalls_s: tuple[float, ...] = ()

    @property
    def deaths_per_s(self) -> float:
        """Number of those failures per second that end the job."""
        return self.per_s * (float(np.isinf(self.stalls_s).mean()) if self.stalls_s else 1.0)


@dataclass(frozen=True, slots=True)
class Tier:
    """A kind of checkpoint. interval_s: work between two saves, s. save_s: time that the job waits for a
    save, s. restore_s: time to load one, s. survives: greatest loss that it survives."""

    name: str
    interval_s: float
    save_s: float
    restore_s: float
    survives: Loss


NO_LAST_TIER = "tiers: a failure can destroy every checkpoint; add one that survives `peers`: a remote store"
NO_PROGRESS = (
    "failures_per_node_day: the job makes no progress; give fewer failures, more spares, or shorter "
    "detection, restarts and saves"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """A fleet and its plan for failures.

    nodes, gpus_per_node: nodes of the job, and GPUs of each. duration_s: simulated time, s. warm, cold:
    numbers of further nodes, initialised and not.
    update_s, standby_s, reschedule_s, requeue_s: time of a restart in place, with warm nodes, with cold
    nodes, and after a lack of nodes, s.
    start_fails: probability that a start fails and is repeated, as when all nodes read one store at once.
    updates_per_s, update_within_s: code changes per second that need a restart, and the longest time that a
    change waits for a failure, to use its restart, s.
    """

    nodes: int
    gpus_per_node: int
    duration_s: float
    failures: tuple[Failure, ...]
    tiers: tuple[Tier, ...]
    warm: int = 0
    cold: int = 0
    update_s: float = 0.0
    standby_s: float = 0.0
    reschedule_s: float = 0.0
    requeue_s: float = 0.0
    start_fails: float = 0.0
    updates_per_s: float = 0.0
    update_within_s: float = 86_400.0

    @property
    def working_share(self) -> float:
        """Share of the running time that saves leave to work."""
        return 1 / (1 + sum(tier.save_s / tier.interval_s for tier in self.tiers))

    def __post_init__(self) -> None:
        """Raise ScenarioError, which names the wrong value."""
        if not self.tiers or max(tier.survives for tier in self.tiers) < Loss.PEERS:
            raise ScenarioError(NO_LAST_TIER)
        if min(self.nodes, self.gpus_per_node) < 1 or min(self.warm, self.cold) < 0:
            raise ScenarioError("give nodes of 1 or more, and spares of zero or more")
        if not 0 <= self.start_fails < 1 or not 0 < self.duration_s < np.inf:
            raise ScenarioError("give start_fails from 0 to below 1, and a finite duration")
        for tier in self.tiers:
            if not tier.interval_s > 0 or min(tier.save_s, tier.restore_s) < 0:
                raise ScenarioError(f"tier {tier.name}: give interval_s above 0, save_s and restore_s from 0")
        for failure in self.failures:
            if not 0 <= failure.per_s < np.inf or min(failure.detect_s, failure.repair_s) < 0:
                raise ScenarioError(f"failure {failure.name}: give a rate and times of zero or more")


BINS = ("productive", "rework", "checkpoint", "detect", "replace", "restore", "stall", "queue", "idle_spare")
"""Uses of GPU-hours. rework: work that was lost. queue: waiting for nodes. idle_spare: spares, and nodes in
repair."""
_PRODUCTIVE, _REWORK, _CHECKPOINT, _DETECT, _REPLACE, _RESTORE, _STALL, _QUEUE = range(8)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The use of a plan's time.

    gpu_h: float64[9], GPU-hours by BINS. Their sum is all GPUs times the duration. by_cause_h: float64[causes
    + 1, 8], GPU-hours by cause (the last row: code changes). interruptions, stalls: int64[causes + 1],
    numbers of deaths and of survived failures by cause.
    """

    gpu_h: Floats
    by_cause_h: Floats
    interruptions: Whole
    stalls: Whole

    @property
    def ettr_queue(self) -> float:
        """Productive share of the job's time."""
        return float(self.gpu_h[0] / self.gpu_h[:-1].sum())

    @property
    def ettr(self) -> float:
        """Productive share of the job's time without the time in the queue."""
        return float(self.gpu_h[0] / max(self.gpu_h[:-1].sum() - self.gpu_h[_QUEUE], 1e-300))


class _Numbers(NamedTuple):
    rate: Floats
    detect_s: Floats
    loss: Whole
    action: Whole
    repair_s: Floats
    first: Whole
    stalls_s: Floats
    interval_s: Floats
    restore_s: Floats
    survives: Whole


def simulate(plan: Plan, seed: np.random.SeedSequence) -> Outcome:
    """Run the job. The same seed gives the same result to the bit."""
    causes, tiers = plan.failures, plan.tiers
    first = np.cumsum([0, *(len(cause.stalls_s) for cause in causes)])
    numbers = _Numbers(
        np.array([cause.per_s for cause in causes], np.float64),
        np.array([*(cause.detect_s for cause in causes), 0.0]),
        np.array([*(cause.loss for cause in causes), Loss.PROCESS], np.int64),
        np.array([*(cause.action for cause in causes), Action.UPDATE], np.int64),
        np.array([*(cause.repair_s for cause in causes), 0.0]),
        first,
        np.array([stall for cause in causes for stall in cause.stalls_s], np.float64),
        np.array([min(tier.interval_s, 1e300) for tier in tiers]),
        np.array([tier.restore_s for tier in tiers]),
        np.array([tier.survives for tier in tiers], np.int64),
    )
    spent_s = np.zeros((len(causes) + 1, 8))
    counts = np.zeros((2, len(causes) + 1), np.int64)
    _walk(
        numbers,
        np.array([plan.update_s, plan.standby_s, plan.reschedule_s, plan.requeue_s]),
        np.array([plan.warm, plan.cold], np.int64),
        plan.working_share,
        plan.nodes,
        plan.duration_s,
        plan.start_fails,
        np.array([plan.updates_per_s, plan.update_within_s]),
        np.random.default_rng(seed),
        spent_s,
        counts,
    )
    gpus = plan.nodes * plan.gpus_per_node
    idle_h = (plan.warm + plan.cold) * plan.gpus_per_node * plan.duration_s / 3600
    by_cause_h = spent_s * gpus / 3600
    return Outcome(np.append(by_cause_h.sum(axis=0), idle_h), by_cause_h, counts[0], counts[1])


@kernel
def _next(rng: np.random.Generator, rate: float) -> float:
    return rng.exponential(1.0 / rate) if rate > 0.0 else np.inf


@kernel
def _drawn(rng: np.random.Generator, rate: Floats) -> int:
    at = rng.random() * rate.sum()
    for cause in range(len(rate)):
        at -= rate[cause]
        if at < 0.0:
            return cause
    return len(rate) - 1


@kernel
def _take(
    pools: Whole, returns: Floats, used: int, warm: int, now_s: float, need: int
) -> tuple[int, int, int, float, int]:
    """Take `need` nodes at now_s. Returns the numbers from the warm pool, from the cold pool and of missing
    nodes, the time at which the last missing node is available, and the number of `returns` used. pools:
    int64[2], warm and cold nodes now. warm: size of the warm pool."""
    kept = 0
    for row in range(used):
        if returns[row] <= now_s:
            pools[0 if pools[0] < warm else 1] += 1
        else:
            returns[kept] = returns[row]
            kept += 1
    from_warm = min(need, pools[0])
    from_cold = min(need - from_warm, pools[1])
    missing = need - from_warm - from_cold
    pools[0] -= from_warm
    pools[1] -= from_cold
    back_s = now_s
    for _ in range(missing):
        if kept == 0:
            break
        soonest = np.argmin(returns[:kept])
        back_s = max(back_s, returns[soonest])
        kept -= 1
        returns[soonest] = returns[kept]
    # A cold node is initialised while the job runs, and is warm for the next failure.
    moved = min(warm - pools[0], pools[1])
    pools[0] += moved
    pools[1] -= moved
    return from_warm, from_cold, missing, back_s, kept


@kernel
def _walk(
    numbers: _Numbers,
    times_s: Floats,
    pools: Whole,
    paid: float,
    nodes: int,
    end_s: float,
    start_fails: float,
    updates: Floats,
    rng: np.random.Generator,
    spent_s: Floats,
    counts: Whole,
) -> None:
    """Fill spent_s (float64[causes + 1, 8]) and counts (int64[2, causes + 1]: deaths, stalls)."""
    rate, size = numbers.rate.sum(), pools[0]
    planned = len(numbers.rate)
    saved = np.zeros(len(numbers.interval_s))  # work that each tier has, s
    returns, used = np.zeros(64), 0
    work = 0.0
    now_s, fails_s, change_s = 0.0, _next(rng, rate), _next(rng, updates[0])
    while now_s < end_s:
        # The job runs, with stalls, until a failure or a change ends it.
        free_s, cause, staller = now_s, planned, 0
        while True:
            # A change may have waited its time out while the job was down.
            at_s = max(min(fails_s, change_s + updates[1], end_s), now_s)
            ran_s = max(at_s - max(now_s, free_s), 0.0)
            spent_s[staller, _STALL] += max(at_s - now_s, 0.0) - ran_s
            work += ran_s * paid
            spent_s[planned, _CHECKPOINT] += ran_s * (1.0 - paid)
            now_s = at_s
            if at_s >= end_s or at_s < fails_s:
                break
            fails_s = now_s + _next(rng, rate)
            cause = _drawn(rng, numbers.rate)
            first, last = numbers.first[cause], numbers.first[cause + 1]
            stall_s = numbers.stalls_s[rng.integers(first, last)] if last > first else np.inf
            if stall_s == np.inf:
                break
            counts[1, cause] += 1
            if now_s + stall_s > free_s:
                free_s, staller = now_s + stall_s, cause
            cause = planned
        if now_s >= end_s:
            break
        for tier in range(len(saved)):
            # An interval goes on where a failure left it, because it counts work.
            steps = np.floor((work - saved[tier]) / numbers.interval_s[tier] + 1e-9)
            saved[tier] += steps * numbers.interval_s[tier]
        if cause == planned:
            saved[:] = work  # the job saves before a planned stop
        if change_s <= now_s:
            change_s = now_s + _next(rng, updates[0])
        counts[0, cause] += 1
        loss, need, lasts_s, open_s, done_s = 0, 0, times_s[0], now_s, now_s
        opener = cause  # cause whose repair the job waits for, even if other failures follow
        stage = 0
        restarted = True
        while now_s < end_s:
            if restarted:
                loss = max(loss, numbers.loss[cause])
                if numbers.action[cause] == 1:
                    need += 1
                    if used == len(returns):
                        longer = np.zeros(2 * used)
                        for k in range(used):
                            longer[k] = returns[k]
                        returns = longer
                    returns[used] = now_s + numbers.repair_s[cause]
                    used += 1
                elif numbers.action[cause] == 2:
                    open_s, opener = max(open_s, now_s + numbers.repair_s[cause]), cause
                stage, done_s = _DETECT, now_s + numbers.detect_s[cause]
                restarted = False
            at_s = min(done_s, fails_s, end_s)
            spent_s[opener if stage == _QUEUE else cause, stage] += at_s - now_s
            now_s = at_s
            if now_s >= end_s:
                break
            if fails_s < done_s:
                fails_s = now_s + _next(rng, rate)
                more = _drawn(rng, numbers.rate)
                waits = stage == _QUEUE
                if numbers.first[more + 1] > numbers.first[more] or (waits and numbers.action[more] == 0):
                    continue  # the fabric survives it, or no process runs; the job is down anyway
                # The second node may hold the first one's copy.
                if loss == 2 and numbers.loss[more] == 2 and rng.random() < 1.0 / max(nodes - 1, 1):
                    loss = 3
                cause = more
                if not waits:
                    counts[0, cause] += 1
                restarted = True
            elif stage in (_DETECT, _QUEUE):
                if now_s < open_s:
                    stage, done_s = _QUEUE, open_s
                    continue
                warm, cold, missing, back_s, used = _take(pools, returns, used, size, now_s, need)
                if warm > 0:
                    lasts_s = max(lasts_s, times_s[1])
                if cold > 0:
                    lasts_s = max(lasts_s, times_s[2])
                need = 0
                if missing > 0:
                    lasts_s, open_s, opener = max(lasts_s, times_s[3]), max(back_s, now_s), cause
                    stage, done_s = _QUEUE, open_s
                    continue
                stage, done_s = _REPLACE, now_s + lasts_s
            elif stage == _REPLACE:
                best, cost = 0, np.inf
                for tier in range(len(saved)):
                    lost = work - saved[tier] + numbers.restore_s[tier]
                    if numbers.survives[tier] >= loss and lost < cost:
                        best, cost = tier, lost
                spent_s[cause, _REWORK] += work - saved[best]
                work = saved[best]
                for tier in range(len(saved)):
                    saved[tier] = min(saved[tier], work)
                stage, done_s = _RESTORE, now_s + numbers.restore_s[best]
            elif rng.random() < start_fails:
                stage, done_s = _REPLACE, now_s + times_s[3]
            else:
                break
    spent_s[planned, _PRODUCTIVE] = work
