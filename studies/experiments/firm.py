"""E9 and E10: Firm beside a Kubernetes-like scaler, and beside Escra and Autopilot on E2's sixteen cells.

For: the definitions. Not for: training Firm (studies.firm), nor how a figure is computed (measures.py).
Source: Qiu et al., "FIRM", OSDI 2020. Its headline figures come from the abstract alone; it has no figure for
E10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from control.allocator.firm import FirmSettings
from control.services import RequestStatus
from studies.experiments.measures import Pick, change, largest, least_change
from studies.experiments.microservices import policy_figures
from studies.experiments.model import Case, Experiment, Figure, Measure, figures, written

SLO_S = FirmSettings().slo_p99_s
_OK = RequestStatus.OK.name.lower()
_FIRM, _SCALER = Pick("firm"), Pick("k8s-cpu")


def missed(case: Case) -> float:
    """Return the share of requests that were slower than the SLO or never answered, percent."""
    frame = case.run.frame("requests", ["latency_s", "status"])
    kept = (frame["status"] == _OK) & (frame["latency_s"] <= SLO_S)
    return 100.0 * (1.0 - float(kept.mean()))


def mean_missed(pick: Pick) -> Measure:
    """Return the mean of `missed` over the picked runs."""
    return lambda cases: float(np.mean([missed(case) for case in pick.of(cases)] or [np.nan]))


def _fewest(cases: Sequence[Case]) -> float:
    """Return the largest factor, over the cells, by which Firm misses the SLO less often; NaN if it never
    does."""
    factors = [
        missed(theirs) / ours
        for case in _FIRM.of(cases)
        for theirs in _SCALER.of(cases)
        if theirs.settings == case.settings and (ours := missed(case)) > 0.0
    ]
    return max(factors, default=float("nan"))


_CPU = "mean_reserved_cores"
_CUT = least_change(_CPU, _FIRM, [_SCALER])
_TAIL = largest("latency_p99_s", _FIRM, [_SCALER], lambda ours, theirs: theirs / ours)

E9 = Experiment(
    **written("E9", slo_s=SLO_S),
    scenario="E10.yaml",
    figures=figures(
        ("slo_missed", "Largest factor of requests that miss the SLO", "×", 1, _fewest),
        ("requested", "Largest cut of requested CPU", "%", 1, _CUT),
        ("tail", "Largest factor of p99 latency", "×", 1, _TAIL),
        ("missed_firm", "Requests that miss the SLO, Firm", "%", 2, mean_missed(_FIRM)),
        ("missed_k8s", "Requests that miss the SLO, k8s-cpu", "%", 2, mean_missed(_SCALER)),
        ("requested_mean", "Requested CPU, mean change", "%", 1, change(_CPU, _FIRM, _SCALER)),
    ),
)  # fmt: skip

RIVALS = ("firm", "escra", "autopilot:update_interval_s=1")


def _beside(policy: str) -> Iterator[Figure]:
    key = f"missed@{policy}"
    title = f"Requests slower than {SLO_S:g} s or not answered"
    yield Figure(key, title, "%", 2, mean_missed(Pick(policy)), policy)
    yield from policy_figures(policy, runs=16)


E10 = Experiment(
    **written("E10", slo_s=SLO_S),
    scenario="E10.yaml",
    figures=tuple(figure for policy in RIVALS for figure in _beside(policy)),
)


def answer(means: Mapping[str, float]) -> tuple[str, ...]:
    """Return the page's first sentences. means: means of both experiments' figures, by key."""
    firm, escra, autopilot = (
        [means[f"{key}@{policy}"] for key in ("missed", "reserved")] for policy in RIVALS
    )
    return (
        f"Firm reads spans and knows the SLO of {SLO_S:g} s. It leaves {firm[0]:.1f} % of the requests "
        f"slower than that or unanswered; Escra leaves {escra[0]:.1f} %, Autopilot {autopilot[0]:.1f} % and "
        f"the Kubernetes-like scaler {means['missed_k8s']:.1f} %.",
        f"It reserves {firm[1]:.1f} cores in the mean, Escra {escra[1]:.1f} and Autopilot "
        f"{autopilot[1]:.1f}.",
    )
