"""Checkpoint and restart: what a job that dies loses, and how often it should save.

For: a synchronous job that saves at a fixed interval and, when it dies, starts again from its last save: by
closed form and by walking through given deaths. Not for: which faults kill a job (jobs.py, fleet.py).

Sources: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17(9), 1974; J. T.
Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3), 2006.
Intervals are of work between two saves, without the save.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twin.containers.compiled import kernel
from twin.fabric.model import Floats, Whole
from twinbed import ScenarioError

_PROGRESS = 1e-9
"""Seconds: work that is nearer than this to a save's end is saved; sums of intervals round."""


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """interval_s: of work between two saves; save_s: the job waits so long for one.

    detect_s: a death until the framework ends what is left of the job (its timeout); init_s: from starting
    the processes until they compute again from the last save.
    """

    interval_s: float
    save_s: float
    detect_s: float
    init_s: float

    def __post_init__(self) -> None:
        """Raises ScenarioError for an interval that is not above zero or for a time below zero."""
        if not self.interval_s > 0:
            raise ScenarioError(
                f"interval_s is {self.interval_s}, expected above zero: a job saves after work"
            )
        for name in ("save_s", "detect_s", "init_s"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ScenarioError(f"{name} is {getattr(self, name)}, expected seconds, zero or above")

    @property
    def restart_s(self) -> float:
        """A death until the job computes again, if nothing delays it."""
        return self.detect_s + self.init_s


@dataclass(frozen=True, slots=True)
class Lives:
    """A job's lives, from the first step after a start to its death or its end; one row each.

    begin_s, end_s: float64[n]; from_s: float64[n], work done when it began, in seconds of work; saves:
    int64[n], finished in it; kept_s, lost_s: float64[n], work done in it that the next life has, and has not;
    finished: whether the last life did all the work.
    """

    begin_s: Floats
    end_s: Floats
    from_s: Floats
    saves: Whole
    kept_s: Floats
    lost_s: Floats
    finished: bool

    @property
    def end_of_job_s(self) -> float:
        """When all the work was done; inf if it was not."""
        return float(self.end_s[-1]) if self.finished else np.inf


def young_s(save_s: float, mtbf_s: float) -> float:
    """Young's interval of work between saves, √(2 · save_s · mtbf_s)."""
    return float(np.sqrt(2 * save_s * mtbf_s))


def daly_s(save_s: float, mtbf_s: float) -> float:
    """Daly's higher-order interval of work between saves; mtbf_s where a save takes two of those or more."""
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    half = save_s / (2 * mtbf_s)
    return float(young_s(save_s, mtbf_s) * (1 + np.sqrt(half) / 3 + half / 9) - save_s)


def expected_ratio(plan: Checkpointing, mtbf_s: float) -> float:
    """Daly's share of time that is kept work, for a job much longer than mtbf_s (> 0, seconds).

    Exact for deaths of a Poisson process that also strike saves and restarts.
    """
    segment_s = plan.interval_s + plan.save_s
    return float(plan.interval_s / (mtbf_s * np.exp(plan.restart_s / mtbf_s) * np.expm1(segment_s / mtbf_s)))


def measured_ratio(plan: Checkpointing, mtbf_s: float, lives: int, seed: int) -> tuple[float, float]:
    """(the share of time that is kept work, half of its 95 % confidence interval), by simulation.

    lives: how many are drawn, each exponential with mtbf_s; the interval is that of a ratio of means.
    """
    apart_s = np.random.default_rng(seed).exponential(mtbf_s, lives)
    deaths_s = np.cumsum(apart_s)
    found = run(plan, np.inf, deaths_s, deaths_s, until_s=float(deaths_s[-1]))
    kept_s = np.zeros(lives)
    kept_s[np.searchsorted(deaths_s, found.end_s)] = found.kept_s
    ratio = float(kept_s.sum() / apart_s.sum())
    spread = np.std(kept_s - ratio * apart_s, ddof=1) / (mtbf_s * np.sqrt(lives))
    return ratio, float(1.96 * spread)


def run(
    plan: Checkpointing, work_s: float, deaths_s: Floats, back_s: Floats, *, until_s: float = np.inf
) -> Lives:
    """Walks a job of work_s seconds of work through its deaths.

    deaths_s: float64[m], ascending, when something that the job needs breaks; back_s: float64[m], when the
    machines could run it again (repaired, or replaced by spares). It starts again at the later of detection
    and back_s, and a death while it starts makes it start again. A save is not made at the end of the
    work. until_s: nobody looks further. Raises ScenarioError for deaths that are not in order.
    """
    if len(deaths_s) != len(back_s) or np.any(np.diff(deaths_s) < 0) or np.any(back_s < deaths_s):
        raise ScenarioError(
            "deaths_s and back_s: expected ascending deaths, each with a return not before it"
        )
    if np.isinf(work_s) and np.isinf(until_s):
        raise ScenarioError("work_s and until_s: at least one must have an end")
    rows, whole, used, finished = _walk(
        plan.interval_s, plan.save_s, plan.detect_s, plan.init_s, work_s, deaths_s, back_s, until_s
    )
    begin_s, end_s, from_s, kept_s, lost_s = (rows[:used, column].copy() for column in range(5))
    return Lives(begin_s, end_s, from_s, whole[:used].copy(), kept_s, lost_s, bool(finished))


@kernel
def _walk(
    interval_s: float,
    save_s: float,
    detect_s: float,
    init_s: float,
    work_s: float,
    deaths_s: Floats,
    back_s: Floats,
    until_s: float,
) -> tuple[Floats, Whole, int, bool]:
    """Rows (begin, end, from, kept, lost) and saves of each life, how many, and whether the work was done."""
    rows = np.zeros((len(deaths_s) + 1, 5))
    saves = np.zeros(len(deaths_s) + 1, np.int64)
    done_s, begin_s, used = 0.0, 0.0, 0
    for index in range(len(deaths_s) + 1):
        end_s = until_s
        if index < len(deaths_s):
            end_s = min(deaths_s[index], until_s)
        if end_s > begin_s:
            left_s = work_s - done_s
            # The last part needs no save: work that ends with an interval saves one less.
            most = np.ceil(left_s / interval_s - _PROGRESS) - 1.0
            needed_s = left_s + most * save_s
            if begin_s + needed_s <= end_s:
                rows[used] = begin_s, begin_s + needed_s, done_s, left_s, 0.0
                saves[used] = int(most)
                return rows, saves, used + 1, True
            whole = min(np.floor((end_s - begin_s + _PROGRESS) / (interval_s + save_s)), most)
            kept_s = whole * interval_s
            over_s = end_s - begin_s - whole * (interval_s + save_s)
            rows[used] = begin_s, end_s, done_s, kept_s, min(max(over_s, 0.0), interval_s)
            saves[used] = int(whole)
            used += 1
            done_s += kept_s
        if end_s >= until_s or index == len(deaths_s):
            break
        # A death while the job is down or starting delays it, but never brings the start forward.
        begin_s = max(begin_s, max(deaths_s[index] + detect_s, back_s[index]) + init_s)
    return rows, saves, used, False


def progress(plan: Checkpointing, lives: Lives) -> tuple[Floats, Floats]:
    """(at_s, done_s), float64[k] each: the corners of the work done over time, straight between them.

    It rises while the job computes, is level while it saves or starts, and falls back where it dies.
    """
    at_s, done_s = [np.zeros(1)], [np.zeros(1)]
    for row in range(len(lives.begin_s)):
        steps = np.arange(lives.saves[row] + 1)
        begin_s = lives.begin_s[row] + steps * (plan.interval_s + plan.save_s)
        work_s = np.full(len(steps), plan.interval_s)
        work_s[-1] = lives.kept_s[row] + lives.lost_s[row] - lives.saves[row] * plan.interval_s
        before_s = lives.from_s[row] + steps * plan.interval_s
        worked_s = np.minimum(begin_s + work_s, lives.end_s[row])
        at_s += [np.column_stack([begin_s, worked_s]).ravel(), lives.end_s[row : row + 1]]
        done_s += [np.column_stack([before_s, before_s + work_s]).ravel(), before_s[-1:] + work_s[-1:]]
        if not (lives.finished and row == len(lives.begin_s) - 1):
            at_s.append(lives.end_s[row : row + 1])
            done_s.append(lives.from_s[row : row + 1] + lives.kept_s[row])
    return np.concatenate(at_s), np.concatenate(done_s)
