"""The source's figures on our own table of measured jobs: splits by rows, an unseen application, VGG's bills.

For: the experiments C1, C2 and C4, and what runs measured twice leave any predictor to know. Not for: judging
all predictors by cross-validation (predicting.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from control.jobs import Objective, Real
from control.predictor import evaluation
from control.predictor.baselines import Baseline
from control.predictor.examples import Examples
from lab.cloud.input import data_set
from lab.cloud.run import predicting
from lab.cloud.run.predicting import NETWORK, NETWORK_CLASSIFIER, PHYSICAL
from studies.cloud import measure
from traces.catalogue.catalogue import load
from twin.cloud import pricing
from twinbed import ScenarioError

UNSEEN = "text_bag"
"""Our job in the manner of AG News, which the source leaves out."""
VGG, NODES = "images_vgg", 3
SMALL, LARGE = "n1-standard-4", "e2-highmem-16"
_HELD_OUT = 0.2
_DRAWS = 200
_MEDIAN_OF_NORMAL = 0.6745
"""Of the absolute value, in standard deviations."""
_ROW_MODELS: Mapping[Objective, tuple[str, ...]] = {
    Objective.COST: (NETWORK, Baseline.LINEAR, Baseline.FOREST, Baseline.XGBOOST, PHYSICAL),
    Objective.TIME: (NETWORK, Baseline.POISSON, Baseline.FOREST, Baseline.XGBOOST, PHYSICAL),
}


def rows() -> Examples:
    """The table that ships, with its jobs. Raises ScenarioError and TraceError as data_set.load."""
    return data_set.load(data_set.TABLE, measure.JOBS, load())


@dataclass(frozen=True, slots=True)
class Again:
    """Runs of the table that were measured twice. differences: float64[n], |second ÷ first − 1| of the time.
    What is left to who knows what a run takes on average, and cannot know its noise, on the whole table, per
    objective: ceiling, R²; told: of how many applications the top five are told well (as Judged.good), on
    average of noises drawn as large as the differences' median says."""

    differences: Real
    ceiling: Mapping[Objective, float]
    told: Mapping[Objective, float]


def again() -> Again | None:
    """What a run measured once more says of the noise; None where nothing was. Raises as `rows`."""
    if not measure.AGAIN.exists():
        return None
    known = rows()
    second = data_set.load(measure.AGAIN, measure.JOBS, load())
    place = {key: row for row, key in enumerate(_keys(known))}
    pairs = [(place[key], row) for row, key in enumerate(_keys(second)) if key in place]
    first, other = np.array(pairs, np.int64).reshape(-1, 2).T
    differences = np.abs(second.time_s[other] / known.time_s[first] - 1)
    # Two runs differ by two noises, a run from its mean by one.
    spread = float(np.median(differences)) / _MEDIAN_OF_NORMAL / np.sqrt(2)
    ceiling, told = {}, {}
    for by in Objective:
        values = known.objective(by)
        noise = np.mean((values[first] - second.objective(by)[other]) ** 2) / 2
        ceiling[by] = float(1 - noise / np.var(values))
        told[by] = _told(known, by, spread)
    return Again(differences, ceiling, told)


def _told(known: Examples, by: Objective, spread: float) -> float:
    """As Again's; spread: standard deviation of a run's logarithm."""
    random = np.random.default_rng(0)
    good = 0
    for _ in range(_DRAWS):
        said = known.objective(by) * np.exp(random.normal(0.0, spread, len(known)))
        here = (known.job == job for job in np.unique(known.job))
        picks = [evaluation.selection(said[rows], known.objective(by)[rows]) for rows in here]
        good += sum(each.good for each in picks)
    return good / _DRAWS


def _keys(examples: Examples) -> list[tuple[str, str, int, float]]:
    names = [examples.jobs[job].name for job in examples.job]
    each = examples.candidates
    return list(zip(names, each.name.tolist(), each.count.tolist(), each.batch.tolist(), strict=True))


def by_rows(seed: int) -> dict[str, float]:
    """C1: a fifth of the rows is left out. Keys QUANTITY_rmse (over the average, %), QUANTITY_unexplained
    (1 − R², %), and QUANTITY_MODEL (the model's RMSE against the network's, %)."""
    known = rows()
    order = np.random.default_rng(seed).permutation(len(known))
    split = round(_HELD_OUT * len(order))
    asked, learned = known.take(order[:split]), known.take(order[split:])
    found: dict[str, float] = {}
    for by, names in _ROW_MODELS.items():
        truth = asked.objective(by)
        errors = {
            name: evaluation.accuracy(predicting.make(name, by, learned, seed).predict(asked), truth)
            for name in names
        }
        network = errors.pop(NETWORK)
        found[f"{by}_rmse"] = 100 * network.rmse / float(truth.mean())
        found[f"{by}_unexplained"] = 100 * (1 - network.r2)
        found |= {f"{by}_{name}": 100 * (each.rmse / network.rmse - 1) for name, each in errors.items()}
    return found


def unseen(seed: int) -> dict[str, float]:
    """C2: the best configurations of UNSEEN, told from the other applications. Keys QUANTITY_auc (1 − AUC,
    %), QUANTITY_found, QUANTITY_wrong, of the network, and with `_forest` or `_physical` before the last."""
    known = rows()
    names = [job.name for job in known.jobs]
    if UNSEEN not in names:
        raise ScenarioError(f"the table of measured jobs has no run of {UNSEEN}")
    here = known.job == names.index(UNSEEN)
    learned, asked = known.take(~here), known.take(here)
    found: dict[str, float] = {}
    models = {"": NETWORK_CLASSIFIER, "_forest": Baseline.FOREST_CLASSIFIER, "_physical": PHYSICAL}
    for by in Objective:
        for label, name in models.items():
            said = predicting.make(name, by, learned, seed).predict(asked)
            likelihoods = name in predicting.CLASSIFIERS
            picked = evaluation.selection(said, asked.objective(by), likelihoods=likelihoods)
            found[f"{by}{label}_auc"] = 100 * (1 - picked.auc)
            found[f"{by}{label}_found"] = float(picked.hits)
            found[f"{by}{label}_wrong"] = float(picked.false_positives)
    return found


def bills() -> dict[str, float]:
    """C4: what Vertex bills for the source's hours, and what our VGG measured on the same two clusters."""
    catalogue = load()
    rules = data_set.rules_of(catalogue, "gcp")
    found = {}
    for key, kind, hours in (("bill_small", SMALL, 33.0), ("bill_large", LARGE, 7.5)):
        node = pricing.node_usd_h(catalogue.price(kind, measure.REGION).price_usd_h, rules)
        found[key] = float(pricing.cost_usd(3600 * hours, NODES * node, rules))
    known = rows()
    vgg = known.job == [job.name for job in known.jobs].index(VGG)
    three = vgg & (known.candidates.count == NODES)
    own = known.candidates.batch == known.candidates.batch[three].min()
    names = known.candidates.name
    small, large = (np.flatnonzero(three & own & (names == name))[0] for name in (SMALL, LARGE))
    for key, values in (("time", known.time_s), ("cost", known.cost_usd), ("expected", known.prior_time_s)):
        found[key] = 100 * (float(values[large]) / float(values[small]) - 1)
    return found
