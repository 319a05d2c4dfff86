"""C1, C2, C4 and F1 to F4: cost and time of configurations, VGG's bill, and what Scala-Opt chooses.

For: the definitions. Not for: computing the figures (studies.cloud.measured, studies.cloud.scala_opt).
Source: C1, C2 and C4: chapter 4 of the doctoral thesis; F1 to F4: FC² (Ta, Cluster Computing 22, 2019) §8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from studies.cloud import scala_opt
from studies.experiments.model import Compute, Experiment, Figure, figures, written
from traces.catalogue.catalogue import load

_SEEDS = (0, 1, 2, 3, 4)
_NAMES = {
    "linear": "linear regression",
    "poisson": "Poisson regression",
    "forest": "random forest",
    "xgboost": "XGBoost",
    "physical": "physics corrected (ours)",
}


def _measured(name: str) -> Compute:
    """Return a function of studies.cloud.measured, which is imported late: torch is optional and slow."""

    def compute(seed: int) -> Mapping[str, float]:
        from studies.cloud import measured

        values: Mapping[str, float] = getattr(measured, name)(seed)
        return values

    return compute


def _rows() -> Iterator[Figure]:
    for by, first in (("cost", "linear"), ("time", "poisson")):
        title = by.capitalize()
        yield Figure(f"{by}_rmse", f"{title}: the network's RMSE over the average", "%", 1)
        yield Figure(f"{by}_unexplained", f"{title}: variance that it leaves, 1 - R²", "%", 2)
        for name in (first, "forest", "xgboost", "physical"):
            yield Figure(f"{by}_{name}", f"{title}: RMSE of {_NAMES[name]} against the network's", "%", 0)


def _unseen() -> Iterator[Figure]:
    models = {"": "network", "_forest": "random forest", "_physical": "physics corrected (ours)"}
    for by in ("cost", "time"):
        for label, name in models.items():
            head = f"{by.capitalize()}, {name}"
            yield Figure(f"{by}{label}_auc", f"{head}: 1 - AUC of the top configurations", "%", 1)
            yield Figure(f"{by}{label}_found", f"{head}: found", "1", 1)
            yield Figure(f"{by}{label}_wrong", f"{head}: false positives", "1", 1)


C1 = Experiment(
    **written("C1"), scenario="", figures=tuple(_rows()), compute=_measured("by_rows"), seeds=_SEEDS
)
C2 = Experiment(
    **written("C2"), scenario="", figures=tuple(_unseen()), compute=_measured("unseen"), seeds=_SEEDS
)
C4 = Experiment(
    **written("C4"),
    scenario="",
    figures=figures(
        ("bill_small", "33 h on 3 n1-standard-4", "$", 2),
        ("bill_large", "7.5 h on 3 e2-highmem-16", "$", 2),
        ("time", "Ours: time on e2-highmem-16 against n1-standard-4", "%", 1),
        ("cost", "Ours: cost on e2-highmem-16 against n1-standard-4", "%", 1),
        ("expected", "Ours: the same time by the twin alone", "%", 1),
    ),
    compute=_measured("bills"),
)

_ASKED = {
    "type": ("the source's type is taken (1: yes)", "1"),
    "choice": ("type and count are the source's (1: yes)", "1"),
    "count": ("workers", "1"),
    "cost": ("cost against Time-Opt", "%"),
    "time": ("time against Time-Opt", "%"),
    "time_opt_cost": ("Time-Opt's cost against Scala-Opt's", "%"),
    "time_opt_time": ("Time-Opt's time against Scala-Opt's", "%"),
    "as_cost_opt": ("the choice is Cost-Opt's (1: yes)", "1"),
}


def _scala_opt(name: str, *asked: str) -> Experiment:
    rows = [row for row in scala_opt.CHOICES if row.experiment == name]

    def compute(_seed: int) -> dict[str, float]:
        listings = load(scala_opt.PRICES).types(scala_opt.REGION)
        return {
            f"{key}_{row.batch}": value
            for row in rows
            for key, value in scala_opt.figures(row, listings).items()
        }

    shown = [
        (f"{key}_{row.batch}", f"Batch {row.batch}: {_ASKED[key][0]}", _ASKED[key][1], 0)
        for row in rows
        for key in asked
    ]
    return Experiment(**written(name), scenario="", figures=figures(*shown), compute=compute)


F1 = _scala_opt("F1", "choice", "type", "count", "cost", "time")
F2 = _scala_opt("F2", "choice", "type", "count", "cost", "time")
F3 = _scala_opt("F3", "choice", "type", "count", "time_opt_cost", "time_opt_time")
F4 = _scala_opt("F4", "count", "as_cost_opt", "cost")
