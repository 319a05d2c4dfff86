"""Runs scenarios on the twin: trace in, stored runs out.

For: the road from a RunSpec to a Run in the store, the trace loaded and refined once per seed for all policies. Not for: the
physics (twin), the metrics' meaning (lab.metrics), or files (lab.store).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lab.scenario import RunSpec, Scenario, build, with_overrides
from lab.store import Run, RunStore

Progress = Callable[[str, float], None]
"""progress(label, fraction): label is RunSpec.label, fraction of that run 0..1. May raise to cancel."""


def run(spec: RunSpec, store: RunStore, *, progress: Progress | None = None) -> Run:
    """Simulates one run and stores it. Raises TwinbedError for bad input; whatever `progress` raises, and
    KeyboardInterrupt, pass through with nothing stored of this run."""
    raise NotImplementedError


def run_scenario(scenario: Scenario, store: RunStore, *, progress: Progress | None = None) -> list[Run]:
    """All runs of a scenario, in `expand` order. Runs finished before a failure stay in the store."""
    raise NotImplementedError


def whatif(
    source: str | Path,
    policies: Sequence[str],
    *,
    store: RunStore,
    name: str | None = None,
    format: str | None = None,  # noqa: A002 - the trace's format, named as in traces.load
    options: dict[str, Any] | None = None,
    containers: Sequence[str] | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
    seed: int = 0,
    overrides: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[Run]:
    """Replays a trace (path or shipped recording) under each policy (text form) and stores the runs.

    name: begins the run ids (default: made from the source's name); overrides: `KEY=VALUE` as in
    `lab.scenario.with_overrides`. One Run per policy, in the order given.
    """
    raise NotImplementedError
