"""Searches for the values of keys with the best value of a metric within limits.

For: `tune`. Not for: showing the result (tuned.py). Optuna proposes values (a tree-structured Parzen
estimator with constraints). All values of a batch are run with the same seeds, so that only the values differ
between them, not chance. The search is a function of the question: when repeated, it proposes the same
values, reuses the runs in the store, and continues. No values are tried twice while others are left.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import optuna
import pandas as pd
import scipy
from numpy.typing import NDArray

from lab import kinds
from lab.ask import guard
from lab.ask import policy as policies
from lab.ask.scenario import Scenario, names_policy, with_overrides
from lab.engine.ports import Engine
from lab.runs.formats import Value
from lab.runs.metric import censored_key
from lab.runs.store import RunStore
from lab.sweep.plan import SweepPlan
from lab.sweep.points import Point
from lab.sweep.rules import Limit
from lab.sweep.sweep import sweep
from twinbed import ScenarioError

BATCH = 8
"""Number of trials that are proposed together. It is not an option, because it changes the search."""
FIRST_SEEDS = 3
"""Number of seeds after which a clearly worse trial is ended: a test with fewer seeds has no power."""
WORSE = 0.05
"""Largest probability, of a paired one-sided t-test, at which a trial counts as clearly worse."""
_ROUNDING = 1e-9
"""Largest spread of differences, relative to them, that counts as rounding."""
_DIGITS = 4
"""Significant digits of a value: more have no meaning, and the values are for people."""
_PROPOSALS = 20
"""Number of times that Optuna may propose values that were tried, before others are drawn."""
_MOST_COMBINATIONS = 100_000
"""Number of combinations of values from which those that were not tried can be drawn."""
_NO_SETTINGS = ("name", "title", "question", "policies", "seeds", "vary")
"""Keys of a scenario that change no run, or that say which runs there are."""


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a key.

    choices: values without an order; if empty, the value is from low to high.
    log: whether the logarithm of the value is searched.
    whole: whether only whole numbers are proposed. `parse` sets it where both ends are whole.
    """

    key: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    choices: tuple[Value, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Range:
        """Return the range of a text `KEY=LOW:HIGH[:log]` or `KEY=A,B,C`. Raises ScenarioError."""
        key, _, values = text.partition("=")
        where = f"--over {text}"
        if key in (*_NO_SETTINGS, *kinds.words()):
            raise ScenarioError(
                f"{where}: {key} is no setting; give a key that changes what a run does, such as a policy's "
                "parameter (twinbed policies show NAME)"
            )
        if "," in values:
            choices = guard.parse(f"[{values}]", where)
            if key and all(isinstance(choice, str | int | float | bool) for choice in choices):
                return cls(key, choices=tuple(choices))
        low, _, rest = values.partition(":")
        high, _, scale = rest.partition(":")
        ends = [guard.parse(end, where) for end in (low, high) if end]
        if not key or scale not in ("", "log") or [type(end) in (int, float) for end in ends] != [True, True]:
            raise ScenarioError(f"{where}: expected KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=A,B,C")
        if ends[0] >= ends[1] or (scale and ends[0] <= 0):
            raise ScenarioError(f"{where}: LOW must be below HIGH{', and above 0 for log' if scale else ''}")
        whole = all(isinstance(end, int) for end in ends)
        return cls(key, float(ends[0]), float(ends[1]), scale == "log", whole)

    def fitted(self, scenario: Scenario) -> Range:
        """Return the range of a key of this scenario: whole numbers only if the key takes no others."""
        if not self.whole:
            return self
        try:
            with_overrides(scenario, [f"{self.key}={self.low + 0.5}"], "--over")
        except ScenarioError:
            return self
        return replace(self, whole=False)

    def values(self) -> Sequence[Value] | None:
        """Return all values of the range, or None if they cannot be counted."""
        if self.choices:
            return tuple(dict.fromkeys(self.choices))
        return range(int(self.low), int(self.high) + 1) if self.whole else None

    def proposed(self, trial: optuna.Trial) -> Value:
        """Return the value that a trial proposes."""
        if self.choices:
            return trial.suggest_categorical(self.key, self.choices)
        if self.whole:
            return trial.suggest_int(self.key, int(self.low), int(self.high), log=self.log)
        value = float(f"{trial.suggest_float(self.key, self.low, self.high, log=self.log):.{_DIGITS}g}")
        return min(max(value, self.low), self.high)


@dataclass(frozen=True, slots=True)
class Question:
    """The question of a tuning.

    scenario: scenario with one policy.
    metric: key of the metric to optimise.
    sign: 1 to minimise it, -1 to maximise it.
    limits: limits to keep.
    over: keys and their ranges.
    trials: number of trials.
    seeds: seeds of every trial.
    """

    scenario: Scenario
    metric: str
    sign: int
    limits: Sequence[Limit]
    over: Sequence[Range]
    trials: int
    seeds: Sequence[int]

    @property
    def metrics(self) -> list[str]:
        """The keys of the metrics that matter; the one to optimise comes first."""
        return list(dict.fromkeys([self.metric, *(limit.metric for limit in self.limits)]))


@dataclass(frozen=True)
class Trial:
    """A trial of values.

    number: number in the order of proposal.
    values: value by key.
    figures: metric → one value per seed that was run, as `figures` returns them.
    pruned: whether it was ended early because it was clearly worse.
    failure: error of a run, or "".
    runs: ids of its runs.
    """

    number: int
    values: Mapping[str, Value]
    figures: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    pruned: bool = False
    failure: str = ""
    runs: tuple[str, ...] = ()

    def mean(self, metric: str) -> float:
        """Return the metric's mean over the seeds; NaN if a run failed or has no such figure."""
        values = self.figures.get(metric, np.empty(0))
        return float(values.mean()) if values.size and not self.failure else math.nan

    def excess(self, limits: Sequence[Limit]) -> float:
        """Return the amount by which the worst limit is exceeded on average; 0 or less if all limits are
        kept."""
        return max((limit.excess(self.mean(limit.metric)) for limit in limits), default=0.0)


def single(scenario: Scenario, over: Sequence[Range]) -> Scenario:
    """Return the scenario with the policy to tune. Raises ScenarioError if it is not clear which."""
    named = {entry.key.partition(".")[0] for entry in over if names_policy(entry.key, scenario.policies)}
    fits = [text for text in scenario.policies if not named or policies.parse(text).name in named]
    if len(fits) != 1 or len(named) > 1:
        raise ScenarioError(
            f"{scenario.name}: one policy is tuned at a time, not {', '.join(named or scenario.policies)}; "
            "choose it with --set policies=[NAME]"
        )
    return with_overrides(scenario, [f"policies=[{fits[0]!r}]"])


def tune(
    question: Question,
    store: RunStore,
    engine: Engine,
    told: Callable[[int, int, int], None] | None = None,
    note: Callable[[Sequence[Trial]], None] | None = None,
) -> list[Trial]:
    """Return the trials, fewer than asked for if there are fewer combinations of values.

    told(done, failed, all): numbers of trials; note: takes the trials so far, after each batch. Raises as
    lab.sweep.sweep.sweep.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    trials: list[Trial] = []
    tried: set[tuple[Value, ...]] = set()
    most = int(min(question.trials, combinations(question.over)))
    while len(trials) < most:
        asked, proposed = [], []
        for number in range(len(trials), min(len(trials) + BATCH, most)):
            ask, values = _proposal(question.over, study, tried)
            tried.add(tuple(values.values()))
            asked.append(ask)
            proposed.append(Trial(number, values))
        for ask, trial in zip(
            asked, _run(question, proposed, best(question, trials), store, engine), strict=True
        ):
            trials.append(trial)
            for limit in question.limits:
                excess = limit.excess(trial.mean(limit.metric))
                ask.set_constraint(limit.text, excess if math.isfinite(excess) else 1e9)
            mean = trial.mean(question.metric)
            if math.isfinite(mean):
                study.tell(ask, question.sign * mean)
            else:
                study.tell(ask, state=optuna.trial.TrialState.FAIL)
        if note is not None:
            note(trials)
        if told is not None:
            told(len(trials), sum(bool(trial.failure) for trial in trials), most)
    return trials


def combinations(over: Sequence[Range]) -> float:
    """Return the number of combinations of the ranges' values, inf if it cannot be counted."""
    values = [entry.values() for entry in over]
    return math.inf if None in values else math.prod(len(some or ()) for some in values)


def _proposal(
    over: Sequence[Range], study: optuna.Study, tried: Set[tuple[Value, ...]]
) -> tuple[optuna.Trial, dict[str, Value]]:
    """Return a trial of Optuna and its values by key: values that were not tried, if they can be found."""
    for _ in range(_PROPOSALS):
        ask = study.ask()
        values = {entry.key: entry.proposed(ask) for entry in over}
        if tuple(values.values()) not in tried:
            return ask, values
        study.tell(ask, state=optuna.trial.TrialState.FAIL)
    if combinations(over) <= _MOST_COMBINATIONS:
        every = itertools.product(*(entry.values() or () for entry in over))
        left = [values for values in every if values not in tried]
        drawn = random.Random(len(tried)).choice(left)
        study.enqueue_trial({entry.key: value for entry, value in zip(over, drawn, strict=True)})
    ask = study.ask()
    return ask, {entry.key: entry.proposed(ask) for entry in over}


def best(question: Question, trials: Sequence[Trial]) -> Trial | None:
    """Return the best trial with all seeds that keeps the limits on average, or None."""
    fit = [trial for trial in trials if not trial.pruned and trial.excess(question.limits) <= 0]
    fit = [trial for trial in fit if math.isfinite(trial.mean(question.metric))]
    return min(fit, key=lambda trial: question.sign * trial.mean(question.metric), default=None)


def checked(question: Question, trial: Trial, store: RunStore, engine: Engine) -> Trial:
    """Run the trial with an equal number of seeds that did not choose it. Return it with their figures."""
    others = sorted({*range(2 * len(question.seeds))} - {*question.seeds})[: len(question.seeds)]
    return _measured(replace(question, seeds=others), [trial], others, store, engine)[0]


def _run(
    question: Question, trials: Sequence[Trial], rival: Trial | None, store: RunStore, engine: Engine
) -> list[Trial]:
    """Return a batch of trials with their figures; those worse than `rival` have few seeds."""
    first, others = question.seeds[:FIRST_SEEDS], question.seeds[FIRST_SEEDS:]
    begun = _measured(question, trials, first, store, engine)
    going = [trial for trial in begun if not trial.failure and not _worse(question, trial, rival)]
    whole = {}
    if others and going:
        whole = {trial.number: trial for trial in _measured(question, going, others, store, engine)}
    ended = []
    for trial in begun:
        more = whole.get(trial.number)
        if more is None:
            ended.append(replace(trial, pruned=bool(others) and not trial.failure))
        else:
            joined = {key: np.append(trial.figures[key], more.figures[key]) for key in trial.figures}
            runs = (*trial.runs, *more.runs)
            ended.append(replace(trial, figures=joined, failure=more.failure, runs=runs))
    return ended


def _worse(question: Question, trial: Trial, rival: Trial | None) -> bool:
    """Return whether a trial is clearly worse than another on the same seeds."""
    if rival is None or len(question.seeds) <= FIRST_SEEDS:
        return False
    own = trial.figures[question.metric]
    less = question.sign * (own - rival.figures[question.metric][: own.size])
    if less.size < 2 or not np.isfinite(less).all():
        return False
    if np.ptp(less) <= _ROUNDING * np.abs(less).max():
        return bool(less[0] > 0)
    return bool(scipy.stats.ttest_1samp(less, 0.0, alternative="greater").pvalue < WORSE)


def _measured(
    question: Question, trials: Sequence[Trial], seeds: Sequence[int], store: RunStore, engine: Engine
) -> list[Trial]:
    """Return the trials with their figures for these seeds, in the seeds' order."""
    asked = [with_overrides(question.scenario, _assigned(trial), "--over") for trial in trials]
    points = [Point(trial.values, scenario) for trial, scenario in zip(trials, asked, strict=True)]
    plan = SweepPlan(question.scenario.name, points, seeds)
    swept = sweep(plan, store, engine, resume=True, noted=False)
    return [
        replace(trial, **about)
        for trial, about in zip(trials, _figures(question, trials, swept), strict=True)
    ]


def _figures(question: Question, trials: Sequence[Trial], swept: Any) -> Iterator[dict[str, Any]]:
    keys = swept.plan.keys
    for trial in trials:
        wanted = list(trial.values.values())
        rows = swept.frame[(swept.frame[keys] == wanted).all(axis=1)].drop_duplicates("seed")
        failed = swept.failures[(swept.failures[keys] == wanted).all(axis=1)]
        reason = "" if failed.empty else str(failed["reason"].iloc[0])
        yield {"figures": figures(question, rows), "failure": reason, "runs": tuple(rows["run"])}


def figures(question: Question, rows: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Return the values of the metrics that matter in these rows of a sweep.

    A lower bound is NaN where only the unknown value would tell: in a metric to minimise, and below a limit
    of the form METRIC <= BOUND. A lower bound above such a limit is enough to break it.
    """
    found = {}
    for key in question.metrics:
        values, flag = rows[key].to_numpy(np.float64), censored_key(key)
        bounds = [limit.bound for limit in question.limits if limit.metric == key and limit.sign > 0]
        bounds += [math.inf] if key == question.metric and question.sign > 0 else []
        if flag in rows and bounds:
            values = np.where(rows[flag].to_numpy(np.bool_) & (values <= max(bounds)), np.nan, values)
        found[key] = values
    return found


def _assigned(trial: Trial) -> list[str]:
    return [f"{key}={value}" for key, value in trial.values.items()]


def tuned_scenario(question: Question, trial: Trial) -> Scenario:
    """Return the scenario with a trial's values and the seeds of the tuning."""
    return with_overrides(question.scenario, [*_assigned(trial), f"seeds={list(question.seeds)}"])
