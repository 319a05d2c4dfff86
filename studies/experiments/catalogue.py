"""All experiments by name. For: choosing one. Not for: any definition."""

from __future__ import annotations

import difflib

from studies.experiments import cloud, escra, fabric, firm, fleets, microservices
from studies.experiments.model import Experiment
from studies.experiments.serverless import E5
from twinbed import ScenarioError


def _named(*experiments: Experiment) -> dict[str, Experiment]:
    return {experiment.name: experiment for experiment in experiments}


CONTAINERS = _named(
    escra.E1,
    microservices.E2,
    microservices.E2_SOURCE,
    microservices.E3,
    escra.E4,
    E5,
    escra.E6,
    escra.E7,
    microservices.E8,
    microservices.PROFILING,
    microservices.BEYOND,
    escra.DELAY,
    escra.LOSS,
)
RIVALS = _named(microservices.DUEL)
FIRM = _named(firm.E9, firm.E10)
FABRIC = _named(fabric.T1, fabric.T2, fabric.T3, fabric.T4, fabric.T5, fleets.FLEET, fleets.INTERVALS)
CLOUD = _named(cloud.C1, cloud.C2, cloud.C4, cloud.F1, cloud.F2, cloud.F3, cloud.F4)
EXPERIMENTS = CONTAINERS | RIVALS | FIRM | FABRIC | CLOUD


def experiment(name: str) -> Experiment:
    """Return the experiment of this name, in any case. Raises ScenarioError with the nearest name."""
    by_lower = {known.lower(): known for known in EXPERIMENTS}
    if name.lower() in by_lower:
        return EXPERIMENTS[by_lower[name.lower()]]
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f"did you mean {by_lower[close[0]]!r}?" if close else f"there are {', '.join(EXPERIMENTS)}"
    raise ScenarioError(f"experiment {name!r}: there is no such experiment; {hint}")
