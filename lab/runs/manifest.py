"""The manifest of every run: its identity, its question, the versions that made it, and its metrics.

For: the runners of all kinds, which write manifests, and the store, which checks them. Not for: the fields
that a kind adds, nor files (lab.runs.store).
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import count
from math import isnan
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError
from pydantic_core import from_json

from lab.runs.code import code_sha256
from twinbed import StoreError, __version__
from twinbed.text import printable

if TYPE_CHECKING:
    from lab.ask.scenario import RunSpec
    from lab.runs.store import Run, RunStore

SCHEMA = 1

NOTHING_BEYOND: Mapping[str, Any] = MappingProxyType({})
_DIGITS = 10
"""Hex digits of the identity's hash in a run's id."""


def _time(text: str) -> str:
    """Return the text. Raises ValueError if it is not a time with a zone, because times are compared."""
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("has no time zone")
    return text


_TableName = Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$")]
"""The name of a table is part of a file's name, so it is a word."""


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


class _Input(_Part):
    """An input of the run. role: its purpose; sha256: hash of its content; source: where it came from."""

    role: str
    sha256: str
    source: str


class _Calibration(_Part):
    """The parameters of the machine. Readers of calibrations check the values."""

    name: str
    kernel: str
    cpu: str
    date: str
    sha256: str
    values: dict[str, dict[str, Any]]


class _Versions(_Part):
    """The versions that made the run."""

    twinbed: str


class Manifest(_Part):
    """The fields of every kind's manifest; docs/reference/runs.md describes them.

    A kind's own fields are kept unchanged. `created_at` is a time with its zone.
    """

    schema_: Literal[1] = Field(alias="schema")
    id: str = Field(min_length=1)
    identity_sha256: str
    name: str
    title: str
    question: str
    policy: str
    seed: int
    backend: str
    spec: dict[str, Any]
    inputs: list[_Input]
    calibration: _Calibration
    versions: _Versions
    notes: list[str]
    metrics: dict[str, FiniteFloat | None]
    censored: list[str] = []
    tables: dict[_TableName, str]
    bytes: int = Field(default=0, ge=0)
    created_at: Annotated[str, AfterValidator(_time)]
    wall_s: FiniteFloat


def checked(text: bytes) -> Mapping[str, Any]:
    """Return the content of a manifest's file. Raises StoreError that names the first wrong key."""
    try:
        content: Mapping[str, Any] = from_json(text)
        Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "its content"
        raise StoreError(printable(f"{key}: {first['msg']}")) from None
    except ValueError as error:
        raise StoreError(str(error).split("\n", 1)[0]) from None
    return content


def identified(
    spec: RunSpec, resolved: Mapping[str, Any], input_sha256: str, beyond: Mapping[str, Any] = NOTHING_BEYOND
) -> dict[str, Any]:
    """Return the manifest's schema, id, identity_sha256 and spec.

    resolved: the conditions, in JSON types; input_sha256: hash of the input's contents; beyond: further
    dependencies of the run, with `backend` if it is not the twin.
    """
    identity = {
        "spec": resolved,
        "input_sha256": input_sha256,
        "calibration_sha256": spec.calibration.sha256,
        "code_sha256": code_sha256(testbed="backend" in beyond),
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
    censored: Collection[str] = (),
) -> Run:
    """Store a finished run and return it, replacing an earlier run of the same id.

    identity: as of `identified`; about: the kind's fields, with `backend`, `inputs` and `notes`; values: the
    run's metrics, NaN if one does not apply; began: `time.perf_counter()` at its start; censored: keys of the
    metrics whose value is a lower bound.
    """
    calibration = spec.calibration
    manifest = {
        **identity,
        "name": spec.name,
        "title": spec.scenario.title,
        "question": spec.scenario.question,
        "policy": spec.policy.label,
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
            "code_sha256": code_sha256(testbed=about["backend"] != "twin"),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pyarrow": pa.__version__,
        },
        **about,
        "metrics": {key: None if isnan(value) else float(value) for key, value in values.items()},
        "censored": sorted(censored),
        "created_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "wall_s": round(time.perf_counter() - began, 3),
    }
    return store.publish(manifest, tables)


def one_by_one(
    specs: Sequence[RunSpec],
    store: RunStore,
    input_sha256: str,
    make: Callable[[RunSpec, Mapping[str, Any], float], Run],
    *,
    fresh: bool,
    progress: Callable[[str, float], None] | None,
) -> list[Run]:
    """Return the stored runs of specs on the twin, whose arguments are those of lab.ask.kind.Runner.

    input_sha256: as of `identified`. make: makes and stores a run; it gets the spec, the identity and
    `time.perf_counter()` at the start.
    """
    runs = []
    for spec in specs:
        identity = identified(spec, spec.resolved(), input_sha256)
        stored = None if fresh else store.find(identity["id"])
        runs.append(stored or make(spec, identity, time.perf_counter()))
        if progress is not None:
            progress(spec.label, 1.0)
    return runs


def completed(
    manifest: Mapping[str, Any], sums: Mapping[str, str], table_bytes: int
) -> tuple[dict[str, Any], bytes]:
    """Return the manifest with its tables' SHA-256 and the bytes of all files of its run, and its text."""
    full: dict[str, Any] = {**manifest, "tables": sums, "bytes": 0}

    def text() -> bytes:
        return (json.dumps(full, indent=1, allow_nan=False) + "\n").encode()

    # The number of bytes includes the digits of the number itself.
    others = table_bytes + len(text()) - len("0")
    full["bytes"] = next(others + digits for digits in count(1) if len(str(others + digits)) == digits)
    return full, text()
