"""The results page's part on our own measured table: predictors beside targets, C1–F4 beside the sources.

For: `python -m studies.cloud.results`. Not for: judging (predicting.py) or the experiments
(studies.experiments).
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from control.jobs import Objective
from lab.cloud.input import data_set
from lab.cloud.run import predicting
from lab.cloud.run.predicting import MODELS, NETWORK, NETWORK_CLASSIFIER, PHYSICAL, Judged, Protocol
from lab.runs.formats import markdown
from lab.runs.store import RunStore
from studies.cloud import measured_figures
from studies.experiments import present
from studies.experiments.catalogue import CLOUD
from studies.experiments.evaluate import evaluate
from studies.experiments.verdict import RULE

_TOLD = {Protocol.ROWS: "a fifth of the rows", Protocol.APPLICATIONS: "one application"}
SEED = 0
_QUICK = tuple(name for name in MODELS if name not in (NETWORK, NETWORK_CLASSIFIER))


def table(models: Sequence[str] = _QUICK) -> list[str]:
    """What predictors are worth on the table that ships; the corrected physics beside the targets."""
    rows = measured_figures.rows()
    judged = predicting.evaluate(rows, models, SEED)
    return [
        "## Predicting our own measured jobs",
        "",
        _collected(),
        "",
        "| of | target | left out | corrected physics | verdict |",
        "| --- | --- | --- | ---: | --- |",
        *_targets([each for each in judged if each.model == PHYSICAL], len({*rows.job.tolist()})),
        "",
        *_repeated(),
        "Told well: all but one at most of an application's top configurations (the five best within 1.5",
        "times the very best) are found, and no more than two are picked wrongly. The baselines, the same",
        "way (the networks: C1 and C2 below, or `twinbed predict evaluate --models network`):",
        "",
        "| model | of | left out | RMSE | R² | median error | AUC | found | picked wrongly |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(_row(each) for each in judged),
    ]


def experiments() -> list[str]:
    """C1 to F4, our figures beside the sources'."""
    lines = ["## The sources' experiments", "", f"{RULE} A ± B: half the 95 % interval over the seeds."]
    for each in CLOUD.values():
        # Computed experiments keep nothing in a store.
        found = present.result([evaluate(each, RunStore())])
        lines += ["", f"### {each.name}: {each.title}", "", f"`twinbed report --experiment {each.name}`", ""]
        lines += markdown(replace(found, facts={}, legend="", notes=())).strip().splitlines()
        for text in (each.method, *each.discussion):
            lines += ["", text]
    return lines


def _collected() -> str:
    with data_set.TABLE.open(newline="", encoding="utf-8") as file:
        runs = list(csv.DictReader(file))
    outcomes = Counter(run["outcome"] for run in runs)
    days = sorted({run["measured_at"][:10] for run in runs})
    machines = sorted({f"{run['cpu']}, {run['kernel']}" for run in runs})
    return (
        f"`lab/cloud/input/measured_jobs.csv`: {len(runs)} real runs, {outcomes['ok']} of which went well, "
        f"{' to '.join(dict.fromkeys((days[0], days[-1])))}, on {'; '.join(machines)}. A run is 20 steps "
        "after warming up, on types emulated at 1/48 (CPU quota, links, memory)."
    )


def _repeated() -> list[str]:
    found = measured_figures.again()
    if found is None:
        return []
    median, high = np.quantile(found.differences, (0.5, 0.9))
    ceiling = " and ".join(f"{found.ceiling[by]:.4f} ({by})" for by in Objective)
    told = " and ".join(f"{found.told[by]:.1f} ({by})" for by in Objective)
    return [
        f"Measured once more (`studies/cloud/measured_again.csv`), {len(found.differences)} runs took",
        f"{median:.1%} more or less time in the median, {high:.1%} at the 90th percentile. By that noise a",
        f"predictor that knew every run's average would have an R² of {ceiling},",
        f"and tell {told} applications well.",
        "",
    ]


def _targets(judged: Sequence[Judged], applications: int) -> Iterator[str]:
    by = {(each.by, each.protocol): each for each in judged}
    for quantity in Objective:
        unseen, rows = by[quantity, Protocol.APPLICATIONS], by[quantity, Protocol.ROWS]
        yield _target(quantity, "AUC of the top five > 0.95", unseen, f"{unseen.auc:.3f}", unseen.auc > 0.95)
        told = f"{unseen.good} of {applications}"
        yield _target(quantity, "applications told well: all", unseen, told, unseen.good == applications)
        r2 = rows.accuracy.r2 if rows.accuracy else float("nan")
        yield _target(quantity, "R² ≥ 0.99", rows, f"{r2:.4f}", r2 >= 0.99)
        for each in (rows, unseen):
            inside = 0.88 <= each.coverage <= 0.92
            yield _target(quantity, "90 % intervals hold 88–92 %", each, f"{each.coverage:.1%}", inside)


def _target(by: Objective, target: str, judged: Judged, value: str, reached: bool) -> str:
    said = "reached" if reached else "missed"
    return f"| {by} | {target} | {_TOLD[judged.protocol]} | {value} | {said} |"


def _row(each: Judged) -> str:
    accuracy = each.accuracy
    values = ["", "", ""]
    if accuracy is not None:
        unit = f"{accuracy.rmse / 3600:.2f} h" if each.by is Objective.TIME else f"{accuracy.rmse:.2f} $"
        values = [unit, f"{accuracy.r2:.3f}", f"{accuracy.median_error:.1%}"]
    return (
        f"| {each.model} | {each.by} | {_TOLD[each.protocol]} | {' | '.join(values)} | {each.auc:.3f} "
        f"| {each.hits} of {each.best} | {each.false_positives} |"
    )
