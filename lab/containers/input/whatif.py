"""The question of `twinbed whatif`: one trace under several policies.

For: making a scenario of a trace and a few options. Not for: running it (lab.runs.runner).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.ask.scenario import Scenario, build, with_overrides
from traces.load import SELECTION

_SUFFIXES = re.compile(r"(\.(csv|tsv|parquet|pq|json|jsonl|ndjson|prom|txt))?(\.gz)?$", re.IGNORECASE)
"""What the end of a trace's file name says of its format. Other dots are part of its name, as in a date."""


def whatif_scenario(
    source: str | Path,
    policies: Sequence[str],
    *,
    name: str | None = None,
    format: str | None = None,  # noqa: A002 - the trace's format, named as in traces.load
    options: dict[str, Any] | None = None,
    containers: Sequence[str] | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
    seed: int = 0,
    overrides: Sequence[str] = (),
) -> Scenario:
    """Return the scenario that replays a trace, given by path or by a recording's name, under each policy.

    options: options of the trace's reader, and of traces.load.SELECTION.
    name: name of the scenario; None: made of the trace's name. overrides: `KEY=VALUE` texts as in
    lab.ask.scenario.with_overrides. Raises ScenarioError.
    """
    own = dict(options or {})
    if containers is None and (names := own.pop("containers", None)) is not None:
        containers = names.split(",") if isinstance(names, str) else names
    # These values are given as text, so that they are converted like every other override.
    overrides = [*(f"trace.{key}={own.pop(key)}" for key in SELECTION if key in own), *overrides]
    trace = {
        "source": str(source),
        "format": format,
        "options": own or None,
        "containers": None if containers is None else [text.strip() for text in containers],
        "start_s": start_s,
        "end_s": end_s,
    }
    raw = {
        "name": name or _name_of(str(source)),
        "trace": {key: value for key, value in trace.items() if value is not None},
        "policies": list(policies),
        "seeds": [seed],
    }
    return with_overrides(build(raw, "whatif"), overrides)


def _name_of(source: str) -> str:
    stem = _SUFFIXES.sub("", Path(source).name)
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")[:64] or "trace"
