"""Cases made by hand: a run is nothing but its metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from lab.runs.store import Run
from studies.experiments.model import Case


def case(
    policy: str = "escra",
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    censored: tuple[str, ...] = (),
    **metrics: float,
) -> Case:
    """A case whose run has these metrics and nothing else; censored: those that are lower bounds."""
    run = SimpleNamespace(
        metrics=metrics, censored=frozenset(censored), policy=policy, seed=seed, id=f"x-{policy}-{seed}"
    )
    return Case(settings or {}, policy, seed, cast(Run, run))
