"""All experiments by name. For: choosing one. Not for: any definition."""

from __future__ import annotations

import difflib

from studies.experiments.beyond import BEYOND
from studies.experiments.c import C1, C2, C4
from studies.experiments.e1 import E1
from studies.experiments.e2 import E2, E3, E8
from studies.experiments.e4 import E4
from studies.experiments.e5 import E5
from studies.experiments.e6 import E6
from studies.experiments.e7 import E7
from studies.experiments.f import F1, F2, F3, F4
from studies.experiments.fleet import FLEET
from studies.experiments.intervals import INTERVALS
from studies.experiments.model import Experiment
from studies.experiments.profiling import PROFILING
from studies.experiments.t1 import T1
from studies.experiments.t2 import T2
from studies.experiments.t3 import T3
from studies.experiments.t4 import T4
from studies.experiments.t5 import T5
from studies.experiments.telemetry import DELAY, LOSS
from twinbed import ScenarioError

CONTAINERS: dict[str, Experiment] = {
    each.name: each for each in (E1, E2, E3, E4, E5, E6, E7, E8, PROFILING, BEYOND, DELAY, LOSS)
}
FABRIC: dict[str, Experiment] = {each.name: each for each in (T1, T2, T3, T4, T5, FLEET, INTERVALS)}
CLOUD: dict[str, Experiment] = {each.name: each for each in (C1, C2, C4, F1, F2, F3, F4)}
EXPERIMENTS = CONTAINERS | FABRIC | CLOUD


def experiment(name: str) -> Experiment:
    """The experiment of this name, in whatever case; ScenarioError with the nearest name otherwise."""
    by_lower = {each.lower(): each for each in EXPERIMENTS}
    if name.lower() in by_lower:
        return EXPERIMENTS[by_lower[name.lower()]]
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f"did you mean {by_lower[close[0]]!r}?" if close else f"there are {', '.join(EXPERIMENTS)}"
    raise ScenarioError(f"experiment {name!r}: there is no such experiment; {hint}")
