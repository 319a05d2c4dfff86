"""What tells a run from every other, and the id made of it.

For: runs of containers (lab.runs.runner) and of fabrics (lab.fabric.run.runner). Not for: what a run
consists of.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from lab.ask.scenario import RunSpec
from lab.runs.store import SCHEMA
from twinbed import __version__

NOTHING_BEYOND: Mapping[str, Any] = MappingProxyType({})
_DIGITS = 10


def identified(
    spec: RunSpec, resolved: Mapping[str, Any], input_sha256: str, beyond: Mapping[str, Any] = NOTHING_BEYOND
) -> dict[str, Any]:
    """The manifest's schema, id, identity_sha256 and spec.

    resolved: the conditions, in JSON types; input_sha256: of the contents that went in; beyond: what else the
    run depends on.
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


def asked(spec: RunSpec) -> dict[str, Any]:
    """What the manifest says of every run: what was asked, under which calibration, by which versions."""
    calibration = spec.calibration
    return {
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
    }
