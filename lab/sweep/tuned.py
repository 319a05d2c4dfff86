"""The result of a tuning as a table, in words, and as a scenario file.

For: the output of `twinbed tune`. Not for: the search (tuning.py).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lab.ask import policy
from lab.ask.scenario import with_paths
from lab.runs.compare import INTERVALS, column, mean_ci95
from lab.runs.formats import Column, Result, Value, cell, grid
from lab.runs.metric import Metric
from lab.runs.runner import files_of
from lab.sweep.book import Tuning
from lab.sweep.result import currency_of
from lab.sweep.rules import unbeaten
from lab.sweep.tuning import Question, Trial, combinations, tuned_scenario
from lab.sweep.tuning import best as best_of
from twinbed.text import counted
from twinbed.writing import write_bytes


def result(
    question: Question,
    trials: Sequence[Trial],
    best: Trial | None,
    again: Trial | None,
    metrics: Sequence[Metric],
    *,
    everything: bool = False,
) -> Result:
    """Return the Pareto front of the trials with all seeds, the best first; with `everything`, all trials.

    best: None if no trial keeps the limits; again: the best with other seeds; metrics: those of the question.
    """
    distinct = _distinct(trials)
    front = sorted(_front(question, distinct), key=lambda trial: question.sign * trial.mean(question.metric))
    shown = [*([best] if best else []), *(trial for trial in front if trial is not best)]
    if everything:
        shown += [trial for trial in distinct if not any(trial is other for other in shown)]
    rows = []
    for trial in shown:
        row: dict[str, Any] = {"trial": trial.number, **trial.values}
        row["what"] = _what(question, trial, best, front)
        row["seeds"] = max((values.size for values in trial.figures.values()), default=0)
        for metric in metrics:
            values = trial.figures.get(metric.key, np.empty(0))
            row[metric.key], row[f"{metric.key}_ci95"] = mean_ci95(values) if values.size else (math.nan,) * 2
        rows.append(row)
    columns = [Column("trial", "Trial"), Column("what", "")]
    columns += [Column("seeds", "Seeds")] if everything else []
    columns += [Column(entry.key, entry.key) for entry in question.over]
    currency = currency_of(question.scenario)
    columns += [column(metric, currency, repeated=True) for metric in metrics]
    facts = {
        "trials": len(trials),
        **({"different trials": len(distinct)} if len(distinct) < len(trials) else {}),
        "seeds of each": len(question.seeds),
        "stopped early": sum(trial.pruned for trial in trials),
        "failed": sum(bool(trial.failure) for trial in trials),
    }
    notes = _notes(question, distinct, best, again, metrics)
    if len(distinct) < question.trials and len(distinct) == combinations(question.over):
        notes.insert(0, f"All {counted(len(distinct), 'combination')} of values were tried.")
    return Result(tuple(columns), tuple(rows), facts, "", tuple(notes))


def _what(question: Question, trial: Trial, best: Trial | None, front: Sequence[Trial]) -> str:
    """Return what became of a trial; "" for a trial of the Pareto front that keeps the limits."""
    if trial.failure or trial.pruned:
        return "failed" if trial.failure else "stopped early"
    if trial is best:
        return "best"
    if trial.excess(question.limits) > 0:
        return "beyond a limit"
    return "" if any(trial is other for other in front) else "beaten"


def scenario_text(question: Question, best: Trial) -> str:
    """Return a scenario file with the best trial's values. Its paths are absolute."""
    scenario = tuned_scenario(question, best)
    places = {path: str(Path(path).absolute()) for path in files_of(scenario)}
    raw = with_paths(scenario, places).model_dump(mode="json", exclude_unset=True)
    raw["policies"] = [policy.parse(text).with_file_at(places).text for text in scenario.policies]
    head = f"# Found by twinbed tune: {_about(question)}; {question.trials} trials.\n"
    return head + yaml.safe_dump(raw, sort_keys=False, allow_unicode=True)


def write(question: Question, best: Trial, path: Path) -> None:
    """Write a scenario file with the best trial's values."""
    write_bytes(path, scenario_text(question, best).encode())


def noted(
    question: Question,
    metrics: Sequence[Metric],
    trials: Sequence[Trial],
    again: Trial | None = None,
    *,
    ended: bool = False,
) -> Tuning:
    """Return the progress of a tuning, for the explorer. The arguments are those of `result`."""
    best = best_of(question, trials)
    shown = result(question, trials, best, again, metrics)
    header, _, lines = grid(shown)
    points: list[tuple[float, float, str, bool]] = []
    currency = currency_of(question.scenario)
    distinct = _distinct(trials)
    front = _front(question, distinct)
    if len(metrics) > 1:
        one, two = metrics[0].key, metrics[1].key
        for trial in distinct:
            if not trial.pruned and not trial.failure:
                on_front = any(trial is other for other in front)
                points.append((trial.mean(one), trial.mean(two), _values(trial), on_front))
    return Tuning(
        hashlib.sha256(repr(question).encode()).hexdigest()[:10],
        question.scenario.title or question.scenario.name,
        _about(question),
        len(trials),
        question.trials,
        ended,
        header,
        lines,
        shown.notes,
        [column(metric, currency, repeated=True).heading for metric in metrics[:2]] if points else [],
        points,
        [run for trial in (*trials, *([again] if again else [])) for run in trial.runs],
        {entry.key: entry.log for entry in question.over},
        column(metrics[0], currency, repeated=True).heading,
        list(_tried(question, distinct, best, front)),
    )


def _tried(
    question: Question, trials: Sequence[Trial], best: Trial | None, front: Sequence[Trial]
) -> Iterator[tuple[list[Value], float, float | None, str]]:
    """Yield values, mean, half the interval, and what became of it, for each trial that has a mean."""
    for trial in trials:
        mean, half = mean_ci95(trial.figures.get(question.metric, np.empty(0)))
        if trial.failure or math.isnan(mean):
            continue
        what = _what(question, trial, best, front)
        if what in ("", "beaten"):
            what = "within the limits" if question.limits else "not the best"
        values = [trial.values[entry.key] for entry in question.over]
        yield values, mean, None if math.isnan(half) else half, what


def _about(question: Question) -> str:
    limits = "".join(f", {limit.text}" for limit in question.limits)
    return f"{'minimise' if question.sign > 0 else 'maximise'} {question.metric}{limits}"


def _distinct(trials: Sequence[Trial]) -> list[Trial]:
    """Return the first trial of each set of values: a search may propose a set again."""
    first: dict[tuple[Any, ...], Trial] = {}
    for trial in trials:
        first.setdefault(tuple(trial.values.values()), trial)
    return list(first.values())


def _front(question: Question, trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials with all seeds that no other beats in the metric and the limits' metrics together."""
    whole = [trial for trial in trials if not trial.pruned and not trial.failure]
    if not whole:
        return []
    signs = {limit.metric: limit.sign for limit in question.limits} | {question.metric: question.sign}
    costs = np.array([[signs[key] * trial.mean(key) for key in question.metrics] for trial in whole])
    return [trial for trial, kept in zip(whole, unbeaten(costs), strict=True) if kept]


def _notes(
    question: Question,
    trials: Sequence[Trial],
    best: Trial | None,
    again: Trial | None,
    metrics: Sequence[Metric],
) -> list[str]:
    reasons = list(dict.fromkeys(trial.failure for trial in trials if trial.failure))
    failed = [f"Failed: {reason}" for reason in reasons[:5]]
    if best is None:
        near = min(trials, key=lambda trial: trial.excess(question.limits), default=None)
        text = "No trial keeps the limits."
        ran = [trial for trial in trials if not trial.failure]
        absent = [key for key in question.metrics if ran and all(_is_absent(trial, key) for trial in ran)]
        if absent:
            text = (
                f"No run has a value of {' and '.join(absent)} that is more than a lower bound, so no "
                "trial can be judged by it."
            )
        elif near is not None and near.excess(question.limits) <= 0:
            text = f"No trial that keeps the limits has a value of {question.metric} for every seed."
        elif near is not None and math.isfinite(near.excess(question.limits)):
            text += f" The nearest is trial {near.number}, {_values(near)}."
        return [text, *failed]
    notes = [f"Best: {_values(best)}."]
    for limit in question.limits:
        values = best.figures[limit.metric]
        mean, half = mean_ci95(values)
        kept = sum(limit.excess(value) <= 0 for value in values)
        sure = not math.isnan(half) and limit.excess(mean + limit.sign * half) <= 0
        how = "with its whole 95 % interval" if sure else "on average, but not with its whole 95 % interval"
        notes.append(f"{limit.text} is kept {how}, and by {kept} of {len(values)} seeds.")
    notes.append(_rivals(question, trials, best))
    if question.limits and any(trial.pruned for trial in trials):
        notes.append(
            "Trials that were stopped early are not in the table, also if better in a limit's metric."
        )
    if again is not None and not again.failure:
        told = []
        for metric in metrics:
            mean, half = mean_ci95(again.figures[metric.key])
            shown = column(metric, currency_of(question.scenario), repeated=True)
            text = cell({metric.key: mean, shown.spread: half}, shown)
            unit = "%" if shown.percent else shown.unit
            told.append(f"{metric.key} {text}" + ("" if unit == "1" else f" {unit}"))
        holds = "keeps" if again.excess(question.limits) <= 0 else "does NOT keep"
        limits = f", and {holds} the limits" if question.limits else ""
        notes.append(
            f"With {counted(len(question.seeds), 'seed')} that the search did not see it has "
            f"{', '.join(told)}{limits}."
        )
    return [*notes, INTERVALS, *failed]


def _rivals(question: Question, trials: Sequence[Trial], best: Trial) -> str:
    """Return the number of other trials that the seeds cannot distinguish from the best."""
    close = 0
    for trial in trials:
        if trial is best or trial.pruned or trial.failure or trial.excess(question.limits) > 0:
            continue
        apart, half = mean_ci95(trial.figures[question.metric] - best.figures[question.metric])
        close += bool(math.isnan(half) or abs(apart) <= half)
    within = " within the limits" if question.limits else ""
    if not close:
        return f"The seeds distinguish it from every other trial{within}."
    return f"The seeds do not distinguish it from {counted(close, 'other trial')}{within}."


def _is_absent(trial: Trial, key: str) -> bool:
    """Return whether no seed of a trial has a value of a metric."""
    return bool(np.isnan(trial.figures[key]).all())


def _values(trial: Trial) -> str:
    return ", ".join(f"{key}={value}" for key, value in trial.values.items())
