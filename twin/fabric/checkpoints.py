"""Checkpoint and restart: the loss of a job that dies, and the best interval between saves.

For: a synchronous job that saves at a fixed interval and restarts from its last save after a death, by closed
form and by a walk through given deaths. Not for: which faults kill a job (jobs.py, fleet.py). An interval is
the work between two saves; the save itself is not part of it. Source: J. W. Young, A first order
approximation to the optimum checkpoint interval, CACM 17(9), 1974; J. T. Daly, A higher order estimate of the
optimum checkpoint interval for restart dumps, FGCS 22(3), 2006.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twin.containers.compiled import kernel
from twin.fabric.model import Floats, Whole
from twinbed import ScenarioError

_PROGRESS = 1e-9
"""Tolerance, s: work that misses an interval's end by less is saved, because sums are rounded."""


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """The times of a job's saves and restarts.

    interval_s: work between two saves, s; inf: it never saves.
    save_s: time that the job waits for a save, s.
    detect_s: time from a death until the framework has ended the rest of the job (its timeout), s.
    init_s: time from starting the processes until they compute again from the last save, s.
    """

    interval_s: float
    save_s: float
    detect_s: float
    init_s: float

    def __post_init__(self) -> None:
        """Raise ScenarioError for an interval that is not above zero or a time below zero."""
        if not self.interval_s > 0:
            raise ScenarioError(
                f"interval_s is {self.interval_s}, expected above zero, since a job saves after work"
            )
        for name in ("save_s", "detect_s", "init_s"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ScenarioError(f"{name} is {getattr(self, name)}, expected seconds, zero or above")

    @property
    def restart_s(self) -> float:
        """Time from a death until the job computes again if nothing delays it, s."""
        return self.detect_s + self.init_s


@dataclass(frozen=True, slots=True)
class Lives:
    """A job's lives, one row each. A life lasts from the first step after a start until the job dies or ends.

    begin_s, end_s: float64[n], begin and end of the life, s.
    from_s: float64[n], work that was done before the life, s.
    saves: int64[n], number of saves finished in the life.
    kept_s, lost_s: float64[n], work of the life that the next life has, and that it has not, s.
    finished: whether the last life completed the work.
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
        """Time at which all work was done, s; inf if it was not."""
        return float(self.end_s[-1]) if self.finished else np.inf


def young_s(save_s: float, mtbf_s: float) -> float:
    """Return Young's interval of work between saves, √(2 · save_s · mtbf_s), s."""
    return float(np.sqrt(2 * save_s * mtbf_s))


def daly_s(save_s: float, mtbf_s: float) -> float:
    """Return Daly's higher-order interval of work between saves, s; mtbf_s if save_s ≥ 2 · mtbf_s."""
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    half = save_s / (2 * mtbf_s)
    return float(young_s(save_s, mtbf_s) * (1 + np.sqrt(half) / 3 + half / 9) - save_s)


def expected_ratio(plan: Checkpointing, mtbf_s: float) -> float:
    """Return Daly's share of time that is kept work, for a job much longer than mtbf_s (above 0, s).

    It is exact if deaths are a Poisson process that also strikes saves and restarts.
    """
    interval_s = _finite_s(plan.interval_s)
    with np.errstate(over="ignore"):
        segments = np.expm1((interval_s + plan.save_s) / mtbf_s)
        return float(interval_s / (mtbf_s * np.exp(plan.restart_s / mtbf_s) * segments))


def run(
    plan: Checkpointing, work_s: float, deaths_s: Floats, back_s: Floats, *, until_s: float = np.inf
) -> Lives:
    """Walk a job of work_s seconds of work through its deaths.

    deaths_s: float64[m], ascending, times at which something that the job needs breaks, s.
    back_s: float64[m], times at which the machines can run the job again (repaired, or replaced by spares),
    s.
    until_s: end of the observation, s.
    The job restarts as soon as the death is detected and the machines are back. A death during a restart
    makes it restart again. The end of the work needs no save. Raises ScenarioError for deaths that are not in
    order.
    """
    if len(deaths_s) != len(back_s) or np.any(np.diff(deaths_s) < 0) or np.any(back_s < deaths_s):
        raise ScenarioError(
            "deaths_s and back_s: expected ascending deaths, and for each a return that is not before it"
        )
    if np.isinf(work_s) and np.isinf(until_s):
        raise ScenarioError("work_s and until_s: at least one must be finite")
    rows, saves, used, finished = _walk(
        _finite_s(plan.interval_s), plan.save_s, plan.detect_s, plan.init_s, work_s, deaths_s, back_s, until_s
    )
    begin_s, end_s, from_s, kept_s, lost_s = (rows[:used, column].copy() for column in range(5))
    return Lives(begin_s, end_s, from_s, saves[:used].copy(), kept_s, lost_s, bool(finished))


def _finite_s(interval_s: float) -> float:
    """Return the interval, s, as a finite number, so that its product with zero saves is zero."""
    return min(interval_s, float(np.finfo(np.float64).max))


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
    """Return each life's (begin, end, from, kept, lost) and saves, the number of lives, and whether the work
    was done."""
    rows = np.zeros((len(deaths_s) + 1, 5))
    saves = np.zeros(len(deaths_s) + 1, np.int64)
    done_s, begin_s, used = 0.0, 0.0, 0
    for index in range(len(deaths_s) + 1):
        end_s = until_s
        if index < len(deaths_s):
            end_s = min(deaths_s[index], until_s)
        if end_s > begin_s:
            left_s = work_s - done_s
            # The last part needs no save, so work that ends with an interval needs one save less.
            saves_needed = max(np.ceil(left_s / interval_s - _PROGRESS) - 1.0, 0.0)
            needed_s = left_s + saves_needed * save_s
            if begin_s + needed_s <= end_s:
                rows[used] = begin_s, begin_s + needed_s, done_s, left_s, 0.0
                saves[used] = int(saves_needed)
                return rows, saves, used + 1, True
            intervals = min(np.floor((end_s - begin_s + _PROGRESS) / (interval_s + save_s)), saves_needed)
            kept_s = intervals * interval_s
            over_s = end_s - begin_s - intervals * (interval_s + save_s)
            rows[used] = begin_s, end_s, done_s, kept_s, min(max(over_s, 0.0), interval_s)
            saves[used] = int(intervals)
            used += 1
            done_s += kept_s
        if end_s >= until_s or index == len(deaths_s):
            break
        # A death while the job is down or starting delays it, but never brings the start forward.
        begin_s = max(begin_s, max(deaths_s[index] + detect_s, back_s[index]) + init_s)
    return rows, saves, used, False


def progress(plan: Checkpointing, lives: Lives) -> tuple[Floats, Floats]:
    """Return (at_s, done_s), float64[k] each: the corners of work done over time, which is linear between
    them.

    Work done rises while the job computes, stays level while it saves or restarts, and falls back when the
    job dies.
    """
    interval_s = _finite_s(plan.interval_s)
    at_s, done_s = [np.zeros(1)], [np.zeros(1)]
    for row in range(len(lives.begin_s)):
        steps = np.arange(lives.saves[row] + 1)
        begin_s = lives.begin_s[row] + steps * (interval_s + plan.save_s)
        work_s = np.full(len(steps), interval_s)
        work_s[-1] = lives.kept_s[row] + lives.lost_s[row] - lives.saves[row] * interval_s
        before_s = lives.from_s[row] + steps * interval_s
        worked_s = np.minimum(begin_s + work_s, lives.end_s[row])
        at_s += [np.column_stack([begin_s, worked_s]).ravel(), lives.end_s[row : row + 1]]
        done_s += [np.column_stack([before_s, before_s + work_s]).ravel(), before_s[-1:] + work_s[-1:]]
        if not (lives.finished and row == len(lives.begin_s) - 1):
            at_s.append(lives.end_s[row : row + 1])
            done_s.append(lives.from_s[row : row + 1] + lives.kept_s[row])
    return np.concatenate(at_s), np.concatenate(done_s)
