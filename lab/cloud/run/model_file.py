"""Trained predictors as files: plain arrays in the safetensors format, with a manifest in their metadata.

For: `twinbed predict train`, and later use of a trained predictor. Not for: the predictors
(control.predictor). A file from an untrusted source cannot execute code: it is bounded in size, its content
must match its checksum, and every array is checked by the object that is built from it. The manifest holds
the model's card: what it was trained on, when, and its errors on rows that it had not seen.
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
from control.predictor.features import SERIES_COLUMNS, Encoder
from control.predictor.networks import Kind, as_arrays, from_arrays
from control.predictor.physical import Correction, Corrector, Physical
from control.predictor.training import Trained
from control.predictor.trees import Trees
from control.predictor.tried_network import TriedNetwork
from twinbed import ScenarioError
from twinbed.files import open_regular
from twinbed.writing import write_bytes

VERSION = 5
_KEY = "twinbed.predictor"
"""Key of the manifest, a JSON text, in the file's metadata."""
_MOST_BYTES = 256 << 20
_TREES = ("left", "right", "feature", "threshold", "value")
_NETWORK = "network."
"""Beginning of the names of a network's arrays."""
_CORRECTIONS = ("correction", "known")
_ENCODER_TEXT = ("columns", "groups", "instances", "features", "optimisers")
_ENCODER_ARRAYS = ("mean", "scale", "series_mean", "series_scale")


def write(model: Physical | TriedNetwork, card: Mapping[str, Any], path: Path) -> int:
    """Write the file whole or not at all, and return its bytes. card: JSON values."""
    arrays = {name: getattr(model.encoder, name) for name in _ENCODER_ARRAYS}
    arrays |= {"job_errors": model.job_errors, "row_errors": model.row_errors}
    if isinstance(model, TriedNetwork):
        arrays |= {_NETWORK + name: array for name, array in as_arrays(model.trained.network).items()}
        own: dict[str, Any] = {"model": "network", "unit": model.trained.unit}
    else:
        own = {"model": "physical", "level": model.level, "corrections": _corrections(model, arrays)}
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    manifest = {
        "version": VERSION,
        "by": str(model.by),
        "jobs": list(model.jobs),
        **own,
        "encoder": {name: list(getattr(model.encoder, name)) for name in _ENCODER_TEXT},
        "card": dict(card),
    }
    manifest["sha256"] = content_checksum(manifest, arrays)
    return write_bytes(path, save(arrays, {_KEY: json.dumps(manifest)}))


def _corrections(model: Physical, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Add the corrections' arrays to `arrays`, and return the manifest's part about them."""
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
    return corrections


def read(path: Path) -> tuple[Physical | TriedNetwork, dict[str, Any]]:
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
        raise ScenarioError(f"{path}: {error}; train it again") from None


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


def _model(
    manifest: dict[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[Physical | TriedNetwork, dict[str, Any]]:
    if manifest["version"] != VERSION:
        raise ScenarioError(f"its version is {manifest['version']}, and this twinbed reads {VERSION}")
    if manifest.pop("sha256") != content_checksum(manifest, arrays):
        raise ScenarioError("incomplete or damaged: its checksum does not match")
    for name, array in arrays.items():
        if array.dtype.kind not in "fi" or not np.isfinite(array).all():
            raise ScenarioError(f"{name} holds values that are not finite numbers")
    text = {name: tuple(map(str, manifest["encoder"][name])) for name in _ENCODER_TEXT}
    scales = {name: arrays[name].astype(np.float64) for name in _ENCODER_ARRAYS}
    encoder = Encoder(**text, **scales)  # type: ignore[arg-type]
    _check(encoder)
    make = _network if manifest["model"] == "network" else _physical
    return make(manifest, encoder, arrays), dict(manifest["card"])


def _physical(manifest: Mapping[str, Any], encoder: Encoder, arrays: Mapping[str, np.ndarray]) -> Physical:
    width = len(encoder.columns)
    if any(arrays[f"{which}_weights"].shape != (width,) for which in _CORRECTIONS):
        raise ScenarioError("its columns, scales and weights are of different lengths")
    unknown, known = (_correction(manifest["corrections"][which], arrays, which) for which in _CORRECTIONS)
    return Physical(
        Objective(manifest["by"]),
        encoder,
        unknown,
        known,
        float(manifest["level"]),
        arrays["job_errors"],
        arrays["row_errors"],
        tuple(map(str, manifest["jobs"])),
    )


def _network(manifest: Mapping[str, Any], encoder: Encoder, arrays: Mapping[str, np.ndarray]) -> TriedNetwork:
    kind = Kind.COST if Objective(manifest["by"]) is Objective.COST else Kind.TIME
    own = {name.removeprefix(_NETWORK): array for name, array in arrays.items() if name.startswith(_NETWORK)}
    trained = Trained(kind, encoder, from_arrays(kind, len(encoder.columns), own), float(manifest["unit"]))
    errors = arrays["job_errors"], arrays["row_errors"]
    return TriedNetwork(trained, *errors, tuple(map(str, manifest["jobs"])))


def _correction(stored: Mapping[str, Any], arrays: Mapping[str, np.ndarray], which: str) -> Correction:
    corrector = Corrector(stored["corrector"])
    trees = None
    if corrector is Corrector.TREES:
        trees = Trees(*(arrays[f"{which}_trees_{name}"] for name in _TREES))
    weights = arrays[f"{which}_weights"]
    return Correction(corrector, float(stored["offset"]), weights, float(stored["penalty"]), trees)


def _check(encoder: Encoder) -> None:
    """Raise ScenarioError if columns and scales do not fit together, or belong to other series than ours."""
    width = len(encoder.columns)
    if len(encoder.groups) != width or any(
        getattr(encoder, name).shape != (width,) for name in ("mean", "scale")
    ):
        raise ScenarioError("its columns, scales and weights are of different lengths")
    if any(getattr(encoder, name).shape != (SERIES_COLUMNS,) for name in ("series_mean", "series_scale")):
        raise ScenarioError(f"its series are not the {SERIES_COLUMNS} that this twinbed reads")
    if (encoder.scale <= 0).any() or (encoder.series_scale <= 0).any():
        raise ScenarioError("a scale is not above 0")
