"""The source's figures on our own table of measured jobs: splits by rows, an unseen application, VGG's bills.

For: the experiments C1, C2 and C4. Not for: judging all predictors by cross-validation (predicting.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from control.predictor import evaluation
from control.predictor.baselines import Baseline
from control.predictor.examples import Examples
from control.recommender.model import Objective
from lab.cloud import data_set, measure, predicting
from lab.cloud.predicting import NETWORK, NETWORK_CLASSIFIER, PHYSICAL
from traces.catalogue.catalogue import load
from twin.cloud import pricing
from twinbed import ScenarioError

UNSEEN = "text_bag"
"""Our job in the manner of AG News, which the source leaves out."""
VGG, NODES = "images_vgg", 3
SMALL, LARGE = "n1-standard-4", "e2-highmem-16"
_HELD_OUT = 0.2
_ROW_MODELS: Mapping[Objective, tuple[str, ...]] = {
    Objective.COST: (NETWORK, Baseline.LINEAR, Baseline.FOREST, Baseline.XGBOOST, PHYSICAL),
    Objective.TIME: (NETWORK, Baseline.POISSON, Baseline.FOREST, Baseline.XGBOOST, PHYSICAL),
}


def rows() -> Examples:
    """The table that ships, with its jobs. Raises ScenarioError and TraceError as data_set.load."""
    return data_set.load(measure.TABLE, measure.JOBS, load())


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
            found[f"{by}{label}_found"] = float(picked.found)
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
