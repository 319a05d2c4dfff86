"""What every run's manifest says: its identity, what was asked, by which versions, and what it amounts to.

For: the runners of all kinds. Not for: what a kind adds to the manifest, nor for files (lab.runs.store).
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from math import isnan
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from lab.ask.scenario import RunSpec
from lab.runs.store import SCHEMA, Run, RunStore
from twinbed import __version__

NOTHING_BEYOND: Mapping[str, Any] = MappingProxyType({})
_DIGITS = 10
"""Hex digits of the identity's hash in a run's id."""


def identified(
    spec: RunSpec, resolved: Mapping[str, Any], input_sha256: str, beyond: Mapping[str, Any] = NOTHING_BEYOND
) -> dict[str, Any]:
    """Return the manifest's schema, id, identity_sha256 and spec.

    resolved: the conditions, in JSON types; input_sha256: hash of the contents that went in; beyond: what
    else the run depends on.
    """
    identity = {
        "spec": resolved,
        "input_sha256": input_sha256,
        "calibration_sha256": spec.calibration.sha256,
        "twinbed": __version__,
        **beyond,
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return {
        "schema": SCHEMA,
        "id": f"{spec.name}-{spec.policy.name}-{digest[:_DIGITS]}",
        "identity_sha256": digest,
        "spec": resolved,
    }


def store_run(
    spec: RunSpec,
    store: RunStore,
    identity: Mapping[str, Any],
    about: Mapping[str, Any],
    values: Mapping[str, float],
    tables: Mapping[str, pa.Table],
    began: float,
) -> Run:
    """Store a finished run and return it, replacing an earlier run of the same id.

    identity: as of `identified`; about: what the kind says of the run, with `backend`, `inputs` and `notes`;
    values: the run's metrics, NaN where one has no meaning; began: `time.perf_counter()` at its start.
    """
    calibration = spec.calibration
    manifest = {
        **identity,
        "name": spec.name,
        "title": spec.scenario.title,
        "question": spec.scenario.question,
        "policy": spec.policy.text,
        "seed": spec.seed,
        "calibration": {
            "name": calibration.name,
            "kernel": calibration.kernel,
            "cpu": calibration.cpu,
            "date": calibration.date,
            "sha256": calibration.sha256,
            "values": {key: asdict(value) for key, value in calibration.values.items()},
        },
        "versions": {
            "twinbed": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pyarrow": pa.__version__,
        },
        **about,
        "metrics": {key: None if isnan(value) else float(value) for key, value in values.items()},
        "created_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "wall_s": round(time.perf_counter() - began, 3),
    }
    return store.publish(manifest, tables)
