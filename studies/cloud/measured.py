"""The source's figures on our own table of measured jobs: rows left out, an unseen application, VGG's bills.

For: the experiments C1, C2 and C4, the page's part on that table, and the best accuracy that the noise of
repeated runs allows. Not for: judging predictors by cross-validation (lab.cloud.run.predicting) or measuring
(measuring.py).
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from control.jobs import Objective, Real
from control.predictor import evaluation
from control.predictor.baselines import Baseline
from control.predictor.examples import Examples
from lab.cloud.input import data_set
from lab.cloud.run import predicting
from lab.cloud.run.predicting import MODELS, NETWORK, NETWORK_CLASSIFIER, PHYSICAL, Judged, Protocol
from studies.cloud.measuring import AGAIN, JOBS, REGION
from studies.harness import table
from studies.judge import aim
from traces.catalogue.catalogue import load
from twin.cloud import pricing
from twinbed import ScenarioError

UNSEEN = "text_bag"
"""Our job that resembles AG News, which the source leaves out."""

VGG, NODES = "images_vgg", 3
SMALL, LARGE = "n1-standard-4", "e2-highmem-16"
_HELD_OUT = 0.2
_DRAWS = 200
_MEDIAN_OF_NORMAL = 0.6745
"""Median of the absolute value of a normal variable, in standard deviations."""

_ROW_MODELS: Mapping[Objective, tuple[str, ...]] = {
    Objective.COST: (NETWORK, Baseline.LINEAR, Baseline.FOREST, Baseline.XGBOOST, PHYSICAL),
    Objective.TIME: (NETWORK, Baseline.POISSON, Baseline.FOREST, Baseline.XGBOOST, PHYSICAL),
}
_QUICK = tuple(name for name in MODELS if name not in (NETWORK, NETWORK_CLASSIFIER))
_LEFT_OUT = {Protocol.ROWS: "a fifth of the rows", Protocol.APPLICATIONS: "one application"}


def rows() -> Examples:
    """Return the table that ships, with its jobs. Raises ScenarioError and TraceError as data_set.load."""
    return data_set.load(data_set.TABLE, JOBS, load())


@dataclass(frozen=True, slots=True)
class Again:
    """The noise of runs that were measured twice, and the best result of a predictor that knows only means.

    differences: |second / first − 1| of the time, float64[n].
    ceiling: R² of such a predictor on the whole table, by objective.
    told_well: number of applications whose top five such a predictor finds (Judged.good), by objective; mean
        over random noises as large as the median of the differences.
    """

    differences: Real
    ceiling: Mapping[Objective, float]
    told_well: Mapping[Objective, float]


def again() -> Again | None:
    """Return the noise by the second measurements; None if there are none. Raises as `rows`."""
    if not AGAIN.exists():
        return None
    known, second = rows(), data_set.load(AGAIN, JOBS, load())
    place = {key: row for row, key in enumerate(_keys(known))}
    pairs = [(place[key], row) for row, key in enumerate(_keys(second)) if key in place]
    first, other = np.array(pairs, np.int64).reshape(-1, 2).T
    differences = np.abs(second.time_s[other] / known.time_s[first] - 1)
    # The difference of two runs contains two noises. The difference of a run from its mean contains one.
    spread = float(np.median(differences)) / _MEDIAN_OF_NORMAL / np.sqrt(2)
    ceiling, told_well = {}, {}
    for by in Objective:
        values = known.objective(by)
        noise = np.mean((values[first] - second.objective(by)[other]) ** 2) / 2
        ceiling[by] = float(1 - noise / np.var(values))
        told_well[by] = _told_well(known, by, spread)
    return Again(differences, ceiling, told_well)


def _told_well(known: Examples, by: Objective, spread: float) -> float:
    """Return Again.told_well of an objective. spread: standard deviation of a run's logarithm."""
    random = np.random.default_rng(0)
    good = 0
    for _ in range(_DRAWS):
        noisy = known.objective(by) * np.exp(random.normal(0.0, spread, len(known)))
        for job in np.unique(known.job):
            own = known.job == job
            good += evaluation.selection(noisy[own], known.objective(by)[own]).good
    return good / _DRAWS


def _keys(examples: Examples) -> list[tuple[str, str, int, float]]:
    names = [examples.jobs[job].name for job in examples.job]
    types = examples.candidates
    return list(zip(names, types.name.tolist(), types.count.tolist(), types.batch.tolist(), strict=True))


def by_rows(seed: int) -> dict[str, float]:
    """Return C1's figures: a fifth of the rows is left out.

    Keys: QUANTITY_rmse (over the average, %), QUANTITY_unexplained (1 − R², %) and QUANTITY_MODEL (the
    model's RMSE against the network's, %).
    """
    known = rows()
    order = np.random.default_rng(seed).permutation(len(known))
    split = round(_HELD_OUT * len(order))
    asked, learned = known.take(order[:split]), known.take(order[split:])
    values: dict[str, float] = {}
    for by, names in _ROW_MODELS.items():
        truth = asked.objective(by)
        errors = {
            name: evaluation.accuracy(predicting.make(name, by, learned, seed).predict(asked), truth)
            for name in names
        }
        network = errors.pop(NETWORK)
        values[f"{by}_rmse"] = 100 * network.rmse / float(truth.mean())
        values[f"{by}_unexplained"] = 100 * (1 - network.r2)
        values |= {f"{by}_{name}": 100 * (error.rmse / network.rmse - 1) for name, error in errors.items()}
    return values


def unseen(seed: int) -> dict[str, float]:
    """Return C2's figures: the best configurations of UNSEEN, predicted from the other applications.

    Keys: QUANTITY_auc (1 − AUC, %), QUANTITY_found and QUANTITY_wrong of the network; with `_forest` or
    `_physical` after QUANTITY of the others.
    """
    known = rows()
    names = [job.name for job in known.jobs]
    if UNSEEN not in names:
        raise ScenarioError(f"the table of measured jobs has no run of {UNSEEN}")
    own = known.job == names.index(UNSEEN)
    learned, asked = known.take(~own), known.take(own)
    values: dict[str, float] = {}
    models = {"": NETWORK_CLASSIFIER, "_forest": Baseline.FOREST_CLASSIFIER, "_physical": PHYSICAL}
    for by in Objective:
        for label, name in models.items():
            predicted = predicting.make(name, by, learned, seed).predict(asked)
            likelihoods = name in predicting.CLASSIFIERS
            picked = evaluation.selection(predicted, asked.objective(by), likelihoods=likelihoods)
            values[f"{by}{label}_auc"] = 100 * (1 - picked.auc)
            values[f"{by}{label}_found"] = float(picked.hits)
            values[f"{by}{label}_wrong"] = float(picked.false_positives)
    return values


def bills(_seed: int = 0) -> dict[str, float]:
    """Return C4's figures: Vertex's bill for the source's hours, and our VGG on the same two clusters."""
    catalogue = load()
    rules = data_set.rules_of(catalogue, "vertex")
    values = {}
    for key, kind, hours in (("bill_small", SMALL, 33.0), ("bill_large", LARGE, 7.5)):
        node = pricing.node_usd_h(catalogue.price(kind, REGION).price_usd_h, rules)
        values[key] = float(pricing.cost_usd(3600 * hours, NODES * node, rules))
    known = rows()
    vgg = known.job == [job.name for job in known.jobs].index(VGG)
    three = vgg & (known.candidates.count == NODES)
    own = known.candidates.batch == known.candidates.batch[three].min()
    names = known.candidates.name
    small, large = (np.flatnonzero(three & own & (names == name))[0] for name in (SMALL, LARGE))
    for key, column in (("time", known.time_s), ("cost", known.cost_usd), ("expected", known.prior_time_s)):
        values[key] = 100 * (float(column[large]) / float(column[small]) - 1)
    return values


def section(models: Sequence[str] = _QUICK, seed: int = 0) -> Iterator[str]:
    """Yield the page's part: accuracy of predictors on the table that ships, beside their targets."""
    known = rows()
    judged = predicting.evaluate(known, models, seed)
    physical = [item for item in judged if item.model == PHYSICAL]
    yield "## Predicting our own measured jobs"
    heads = ("of", "target", "left out", "corrected physics", "verdict")
    yield table(heads, _aims(physical, len({*known.job.tolist()})), left=3)
    yield "The baselines, judged the same way (the networks: C1 and C2 below):"
    figures = ("RMSE", "R²", "median error", "AUC", "found", "picked wrongly")
    yield table(("model", "of", "left out", *figures), map(_row, judged), left=3)
    yield _beside_baselines(judged)
    yield (
        "Predicted well: at most one of an application's top configurations (the five best within 1.5 times "
        "the best) is not found, and at most two are picked wrongly. `twinbed predict evaluate --models "
        "network` judges the networks."
    )
    yield from repeated()
    yield _collected()


def _beside_baselines(judged: Sequence[Judged]) -> str:
    """Return how often corrected physics errs least, in words."""
    errors: dict[tuple[Objective, Protocol], dict[str, float]] = {}
    for item in judged:
        if item.accuracy is not None:
            errors.setdefault((item.by, item.protocol), {})[item.model] = item.accuracy.rmse
    first = sum(min(own, key=own.__getitem__) == PHYSICAL for own in errors.values())
    return (
        f"Corrected physics has the smallest RMSE in {first} of {len(errors)} comparisons: of cost and time, "
        "with a fifth of the rows or one application left out."
    )


def _collected() -> str:
    with data_set.TABLE.open(newline="", encoding="utf-8") as file:
        runs = list(csv.DictReader(file))
    outcomes = Counter(run["outcome"] for run in runs)
    days = sorted({run["measured_at"][:10] for run in runs})
    machines = sorted({f"{run['cpu']}, {run['kernel']}" for run in runs})
    return (
        f"`lab/cloud/input/measured_jobs.csv` holds {len(runs)} real runs, {outcomes['ok']} of which went "
        f"well, {' to '.join(dict.fromkeys((days[0], days[-1])))}, on {'; '.join(machines)}. A run is 20 "
        "steps after warming up, on types emulated at 1/48 (CPU quota, links, memory)."
    )


def repeated() -> Iterator[str]:
    """Yield a paragraph on the noise of repeated measurements, if the table of repeats ships."""
    noise = again()
    if noise is not None:
        median, high = np.quantile(noise.differences, (0.5, 0.9))
        ceiling = " and ".join(f"{noise.ceiling[by]:.4f} ({by})" for by in Objective)
        told_well = " and ".join(f"{noise.told_well[by]:.1f} ({by})" for by in Objective)
        yield (
            f"{len(noise.differences)} of these runs were measured once more "
            f"(`studies/cloud/measured_again.csv`). Their time differed by {median:.1%} in the median and by "
            f"{high:.1%} at the 90th percentile. With that noise a predictor that knew every run's mean "
            f"would have an R² of {ceiling}, and predict {told_well} applications well."
        )


def _aims(judged: Sequence[Judged], applications: int) -> Iterator[list[str]]:
    by = {(item.by, item.protocol): item for item in judged}
    for quantity in Objective:
        left, rows = by[quantity, Protocol.APPLICATIONS], by[quantity, Protocol.ROWS]
        r2 = rows.accuracy.r2 if rows.accuracy else float("nan")
        good = f"{left.good} of {applications}"
        wanted: list[tuple[str, Judged, str, bool]] = [
            ("AUC of the top five > 0.95", left, f"{left.auc:.3f}", left.auc > 0.95),
            ("applications predicted well: all", left, good, left.good == applications),
            ("R² ≥ 0.99", rows, f"{r2:.4f}", r2 >= 0.99),
        ]
        for item in (rows, left):
            inside = 0.88 <= item.coverage <= 0.92
            wanted.append(("90 % intervals hold 88–92 %", item, f"{item.coverage:.1%}", inside))
        for target, item, value, reached in wanted:
            yield [str(quantity), target, _LEFT_OUT[item.protocol], value, aim(reached)]


def _row(item: Judged) -> list[str]:
    accuracy = item.accuracy
    values = ["", "", ""]
    if accuracy is not None:
        unit = f"{accuracy.rmse / 3600:.2f} h" if item.by is Objective.TIME else f"{accuracy.rmse:.2f} $"
        values = [unit, f"{accuracy.r2:.3f}", f"{accuracy.median_error:.1%}"]
    picked = [f"{item.auc:.3f}", f"{item.hits} of {item.best}", str(item.false_positives)]
    return [str(item.model), str(item.by), _LEFT_OUT[item.protocol], *values, *picked]
