"""Trained predictors as files: plain arrays in the safetensors format, with a manifest in their metadata.

For: `twinbed predict train`, and everybody who asks a trained predictor later. Not for: what is in one
(control.predictor). A file from elsewhere cannot execute anything: it is bounded in size, its content must
match its checksum, and every array is checked by the object that it becomes. The manifest holds the model's
card: what it was trained on, when, and its errors on rows that it had not seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from control.jobs import Objective
from control.predictor.features import Encoder
from control.predictor.physical import Correction, Corrector, Physical
from control.predictor.trees import Trees
from lab.runs.files import write_whole
from twinbed import ScenarioError
from twinbed.files import open_regular

VERSION = 3
_KEY = "twinbed.predictor"
"""Key of the manifest, a JSON text, in the file's metadata."""
_MOST_BYTES = 256 << 20
_TREES = ("left", "right", "feature", "threshold", "value")
_CORRECTIONS = ("correction", "known")
_ENCODER_TEXT = ("columns", "groups", "instances", "features")
_ENCODER_ARRAYS = ("mean", "scale", "series_mean", "series_scale")


def write(model: Physical, card: Mapping[str, Any], path: Path) -> int:
    """Write the file whole or not at all, and return its bytes. card: JSON values."""
    arrays = {name: getattr(model.encoder, name) for name in _ENCODER_ARRAYS}
    arrays |= {"job_errors": model.job_errors, "row_errors": model.row_errors}
    corrections = {}
    for which in _CORRECTIONS:
        correction = getattr(model, which)
        arrays[f"{which}_weights"] = correction.weights
        if correction.trees is not None:
            arrays |= {f"{which}_trees_{name}": getattr(correction.trees, name) for name in _TREES}
        corrections[which] = {
            "corrector": str(correction.corrector),
            "offset": correction.offset,
            "penalty": correction.penalty,
        }
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    manifest = {
        "version": VERSION,
        "by": str(model.by),
        "jobs": list(model.jobs),
        "level": model.level,
        "corrections": corrections,
        "encoder": {name: list(getattr(model.encoder, name)) for name in _ENCODER_TEXT},
        "card": dict(card),
    }
    manifest["sha256"] = content_checksum(manifest, arrays)
    content = save(arrays, {_KEY: json.dumps(manifest)})
    return write_whole(path, lambda file: file.write(content))


def read(path: Path) -> tuple[Physical, dict[str, Any]]:
    """Return the model and its card. Raises ScenarioError, naming the file, for other and damaged files."""
    if not path.exists():
        raise ScenarioError(f"{path}: no such file; twinbed predict train makes it")
    with open_regular(path, _MOST_BYTES) as file:
        if file.read(2) == b"PK":
            raise ScenarioError(f"{path}: written by an earlier twinbed; train it again")
    try:
        return _model(*_content(path))
    except (SafetensorError, OSError) as error:
        raise ScenarioError(f"{path}: not a predictor's file ({error})") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ScenarioError(f"{path}: incomplete or damaged: {error}; train it again") from error
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _content(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the file's manifest and arrays."""
    with safe_open(path, framework="numpy") as file:
        text = (file.metadata() or {}).get(_KEY)
        if text is None:
            raise ScenarioError("not a predictor's file")
        return json.loads(text), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)


def content_checksum(manifest: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of a model file's manifest and arrays, in hexadecimal."""
    digest = sha256(json.dumps(manifest, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def _model(manifest: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> tuple[Physical, dict[str, Any]]:
    if manifest["version"] != VERSION:
        raise ScenarioError(
            f"a predictor of version {manifest['version']}, and this twinbed reads {VERSION}; train it again"
        )
    if manifest.pop("sha256") != content_checksum(manifest, arrays):
        raise ScenarioError("incomplete or damaged: its checksum does not match; train it again")
    for name, array in arrays.items():
        if array.dtype.kind not in "fi" or not np.isfinite(array).all():
            raise ScenarioError(f"{name} holds something else than numbers")
    columns, groups, instances, features = (
        tuple(map(str, manifest["encoder"][name])) for name in _ENCODER_TEXT
    )
    scales = (arrays[name].astype(np.float64) for name in _ENCODER_ARRAYS)
    encoder = Encoder(columns, groups, instances, features, *scales)
    _check(encoder, arrays)
    unknown, known = (_correction(manifest["corrections"][which], arrays, which) for which in _CORRECTIONS)
    model = Physical(
        Objective(manifest["by"]),
        encoder,
        unknown,
        known,
        float(manifest["level"]),
        arrays["job_errors"],
        arrays["row_errors"],
        tuple(map(str, manifest["jobs"])),
    )
    return model, dict(manifest["card"])


def _correction(stored: Mapping[str, Any], arrays: Mapping[str, np.ndarray], which: str) -> Correction:
    corrector = Corrector(stored["corrector"])
    trees = None
    if corrector is Corrector.TREES:
        trees = Trees(*(arrays[f"{which}_trees_{name}"] for name in _TREES))
    weights = arrays[f"{which}_weights"]
    return Correction(corrector, float(stored["offset"]), weights, float(stored["penalty"]), trees)


def _check(encoder: Encoder, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise ScenarioError if columns, scales and weights do not fit together."""
    width = len(encoder.columns)
    if len(encoder.groups) != width or any(
        arrays[name].shape != (width,)
        for name in ("mean", "scale", *(f"{which}_weights" for which in _CORRECTIONS))
    ):
        raise ScenarioError("its columns, scales and weights are of different lengths")
    if (encoder.scale <= 0).any() or (encoder.series_scale <= 0).any():
        raise ScenarioError("a scale is not more than 0")
