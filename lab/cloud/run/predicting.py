"""Training, judging and explaining predictors on a table of measured jobs.

For: `twinbed predict`. Not for: the predictors (control.predictor), nor the table (data_set.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from control.jobs import Objective, Real
from control.predictor import evaluation, explanation, intervals
from control.predictor.baselines import Baseline, fit
from control.predictor.examples import Examples, folds_of_jobs, folds_of_rows
from control.predictor.networks import Kind
from control.predictor.physical import Physical, train_physical
from control.predictor.ports import Tried
from control.predictor.training import train
from control.predictor.tried_network import TriedNetwork, train_network
from lab.ask.kind import Progress
from twinbed import ScenarioError, __version__

FOLDS = 5
PHYSICAL, NETWORK, NETWORK_CLASSIFIER = "physical", "network", "network-classifier"
MODELS = (PHYSICAL, *map(str, Baseline), NETWORK, NETWORK_CLASSIFIER)
TRAINED = (PHYSICAL, NETWORK)
"""Models that can be stored."""
CLASSIFIERS = (NETWORK_CLASSIFIER, *(str(name) for name in Baseline if name.classifies))


class Protocol(StrEnum):
    """The rows that a fold leaves out: a fifth of all rows, or all rows of one application."""

    ROWS = "rows"
    APPLICATIONS = "applications"


@dataclass(frozen=True, slots=True)
class Judged:
    """One model, judged on one quantity by one protocol.

    by, model, protocol: the quantity, the model's name and what its folds leave out.
    accuracy: errors of its values, None for a classifier.
    auc: mean area under the ROC curve over the applications.
    hits, best, false_positives: sums over the applications of picking their best configurations.
    good: number of applications with at most one miss and at most two wrong picks.
    coverage: share of the outcomes in their 90 % intervals; NaN if the model has no intervals.
    """

    by: Objective
    model: str
    protocol: Protocol
    accuracy: evaluation.Accuracy | None
    auc: float
    hits: int
    best: int
    false_positives: int
    good: int
    coverage: float


def check_models(names: Sequence[str]) -> None:
    """Raise ScenarioError for an unknown model."""
    for name in names:
        if name not in MODELS:
            raise ScenarioError(f"no model {name!r}; there are {', '.join(MODELS)}")


def evaluate(
    rows: Examples, models: Sequence[str], seed: int, told: Progress = lambda _, __: None
) -> list[Judged]:
    """Judge every model on cost and time by both protocols. told: function called with a label and the share
    done."""
    check_models(models)
    folds = {
        Protocol.ROWS: folds_of_rows(len(rows), FOLDS, np.random.default_rng(seed)),
        Protocol.APPLICATIONS: folds_of_jobs(rows.job),
    }
    judged = []
    for name in models:
        for by in Objective:
            for protocol, parts in folds.items():
                label = f"{name}, {by}, {protocol}"
                predicted, covered = _left_out(name, by, rows, parts, seed, label, told)
                judged.append(_judged(name, by, protocol, rows, predicted, covered))
    return judged


def _left_out(
    name: str, by: Objective, rows: Examples, folds: Sequence[Any], seed: int, label: str, told: Progress
) -> tuple[Real, float]:
    inside: list[bool] = []

    def made_of(learned: Examples) -> Any:
        made = make(name, by, learned, seed)
        return _Covering(made, inside) if isinstance(made, Physical) else made

    predicted = evaluation.cross_validated(made_of, rows, folds, lambda done, of: told(label, done / of))
    return predicted, float(np.mean(inside)) if inside else float("nan")


def make(name: str, by: Objective, learned: Examples, seed: int) -> Any:
    """Return the predictor of a name, trained on rows. Raises ScenarioError as its training does."""
    if name == PHYSICAL:
        return train_physical(by, learned, seed)
    if name == NETWORK:
        return train(Kind.COST if by is Objective.COST else Kind.TIME, learned, seed)
    if name == NETWORK_CLASSIFIER:
        return train(Kind.TOP_COST if by is Objective.COST else Kind.TOP_TIME, learned, seed)
    return fit(Baseline(name), by, learned, seed)


@dataclass(slots=True)
class _Covering:
    """A physical model that records which of its intervals hold the true value. inside: the record."""

    model: Physical
    inside: list[bool]

    def predict(self, asked: Examples) -> Real:
        predicted = self.model.predict(asked)
        low, high = interval(self.model, asked, predicted)
        truth = asked.objective(self.model.by)
        self.inside += ((low <= truth) & (truth <= high)).tolist()
        return predicted


def interval(model: Tried, asked: Examples, predicted: Real) -> tuple[Real, Real]:
    """Return the ends of 90 % intervals. They are wider for applications that the model does not know."""
    known = np.array([job.name in model.jobs for job in asked.jobs])[asked.job]
    factors = np.where(known, intervals.factor(model.row_errors), intervals.factor(model.job_errors))
    return predicted / factors, predicted * factors


def _judged(
    name: str, by: Objective, protocol: Protocol, rows: Examples, predicted: Real, covered: float
) -> Judged:
    truth = rows.objective(by)
    classifies = name in CLASSIFIERS
    picks = [
        evaluation.selection(predicted[of_job], truth[of_job], likelihoods=classifies)
        for of_job in folds_of_jobs(rows.job)
    ]
    return Judged(
        by,
        name,
        protocol,
        None if classifies else evaluation.accuracy(predicted, truth),
        float(np.nanmean([pick.auc for pick in picks])),
        sum(pick.hits for pick in picks),
        sum(pick.best for pick in picks),
        sum(pick.false_positives for pick in picks),
        sum(pick.good for pick in picks),
        covered,
    )


def train_with_card(
    name: str, rows: Examples, by: Objective, seed: int, table: Path, told: Progress = lambda _, __: None
) -> tuple[Physical | TriedNetwork, Mapping[str, Any]]:
    """Return a model of TRAINED, trained on all rows, and its card: data, date, errors on left-out rows.

    told: function called with a label and the share that is done. Raises ScenarioError for another model.
    """
    model: Physical | TriedNetwork
    if name == PHYSICAL:
        model = train_physical(by, rows, seed)
        corrector = f"{model.known.corrector}, {model.correction.corrector}"
    elif name == NETWORK:
        model = train_network(by, rows, seed, on_part=lambda done, of: told(f"{name}, {by}", done / of))
        corrector = ""
    else:
        raise ScenarioError(f"no model {name!r} can be stored; there are {', '.join(TRAINED)}")
    card = {
        "model": name, "predicts": str(by), "rows": len(rows), "applications": list(model.jobs),
        "table": table.name, "table_sha256": hashlib.sha256(table.read_bytes()).hexdigest(),
        "corrector": corrector, "median_error_rows": float(np.expm1(np.median(model.row_errors))),
        "median_error_applications": float(np.expm1(np.median(model.job_errors))),
        "interval_factor_rows": intervals.factor(model.row_errors),
        "interval_factor_applications": intervals.factor(model.job_errors), "seed": seed,
        "trained_at": datetime.now(UTC).isoformat(timespec="seconds"), "twinbed_version": __version__,
        "not_for": "other machines than the table's, GPUs, and configurations far from those in it",
    }  # fmt: skip
    return model, card


def check_table(model: Path, card: Mapping[str, Any], table: Path) -> None:
    """Raise ScenarioError if the model's card names another table of runs, which is not its background."""
    if card.get("table_sha256") != hashlib.sha256(table.read_bytes()).hexdigest():
        own = f"its own ({card.get('table')}) by --runs"
        raise ScenarioError(f"{model}: trained on another table than {table}; give {own}, or train again")


@dataclass(frozen=True, slots=True)
class Explained:
    """A prediction explained.

    value, low, high: the prediction and its 90 % interval, s or US$.
    outside: whether the row is unlike all training rows.
    contributions: what each group of features adds.
    """

    value: float
    low: float
    high: float
    outside: bool
    contributions: explanation.Contribution


def importance(
    name: str, rows: Examples, by: Objective, seed: int, told: Progress = lambda _, __: None
) -> explanation.Importance:
    """Return how much a model's accuracy on left-out rows depends on each group of features.

    It is the mean over FOLDS models, each judged on the rows that it was not trained on. Raises ScenarioError
    for a classifier.
    """
    check_models([name])
    if name in CLASSIFIERS:
        raise ScenarioError(f"{name} predicts a class; importance needs one of {', '.join(TRAINED)}")
    random = np.random.default_rng(seed)
    losses: dict[str, list[float]] = {}
    for done, fold in enumerate(folds_of_rows(len(rows), FOLDS, random)):
        others = np.setdiff1d(np.arange(len(rows)), fold)
        model = make(name, by, rows.take(others), seed)
        part = explanation.importance(model, by, rows.take(fold), random)
        for group, loss in zip(part.group, part.loss.tolist(), strict=True):
            losses.setdefault(group, []).append(loss)
        told(f"{name}, {by}", (done + 1) / FOLDS)
    mean = {group: sum(values) / FOLDS for group, values in losses.items()}
    ranked = sorted(mean, key=lambda group: -mean[group])
    return explanation.Importance(tuple(ranked), np.array([mean[group] for group in ranked]))


def explain(model: Tried, asked: Examples, background: Examples, seed: int) -> Explained:
    """Explain the one row of `asked` against the rows that the model was trained on."""
    predicted = model.predict(asked)
    low, high = interval(model, asked, predicted)
    domain = intervals.Domain.of(model.encoder.encode(background))
    return Explained(
        float(predicted[0]),
        float(low[0]),
        float(high[0]),
        bool(domain.outside(model.encoder.encode(asked))[0]),
        explanation.contributions(model, asked, background, np.random.default_rng(seed)),
    )
