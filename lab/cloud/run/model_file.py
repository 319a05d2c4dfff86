"""Trained predictors as files: a zip of a manifest and plain arrays, in which nothing can be executed.

For: `twinbed predict train`, and everybody who asks a trained predictor later. Not for: what is in one
(control.predictor). A file from elsewhere is data and no more: no pickle, sizes are bounded before anything
is read, and every array is checked by the object that it becomes. The manifest holds the model's card: what
it was trained on, when, and how well it did on what it had not seen.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from control.jobs import Objective
from control.predictor.features import Encoder
from control.predictor.physical import Correction, Corrector, Physical
from control.predictor.trees import Trees
from lab.runs.files import write_whole
from twinbed import ScenarioError

VERSION = 2
_FORMAT = "twinbed.predictor"
_MANIFEST = "manifest.json"
_MOST_BYTES = 256 << 20
_MOST_MEMBERS = 64
_DAMAGE = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    SyntaxError,
    MemoryError,
    OverflowError,
    struct.error,
    zlib.error,
)
"""What zip, JSON and NumPy raise for content that is not what it claims to be."""
_TREES = ("left", "right", "feature", "threshold", "value")
_CORRECTIONS = ("correction", "known")
_ENCODER_TEXT = ("columns", "groups", "instances", "features")
_ENCODER_ARRAYS = ("mean", "scale", "series_mean", "series_scale")


def write(model: Physical, card: Mapping[str, Any], path: Path) -> int:
    """Writes the file whole or not at all; card: JSON values. Returns its bytes."""
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
    manifest = {
        "format": _FORMAT,
        "version": VERSION,
        "by": str(model.by),
        "jobs": list(model.jobs),
        "level": model.level,
        "corrections": corrections,
        "encoder": {name: list(getattr(model.encoder, name)) for name in _ENCODER_TEXT},
        "arrays": sorted(arrays),
        "card": dict(card),
    }

    def fill(file: Any) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_MANIFEST, json.dumps(manifest, indent=1))
            for name, each in arrays.items():
                content = io.BytesIO()
                np.lib.format.write_array(content, np.ascontiguousarray(each), allow_pickle=False)
                archive.writestr(f"{name}.npy", content.getvalue())

    return write_whole(path, fill)


def read(path: Path) -> tuple[Physical, dict[str, Any]]:
    """The model and its card. Raises ScenarioError, naming the file, for anything else than one of ours."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _model(archive)
    except FileNotFoundError:
        raise ScenarioError(f"{path}: no such file; twinbed predict train makes it") from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise ScenarioError(f"{path}: not a predictor's file ({error})") from error
    except _DAMAGE as error:
        raise ScenarioError(f"{path}: incomplete or damaged: {error}; train it anew") from error
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _model(archive: zipfile.ZipFile) -> tuple[Physical, dict[str, Any]]:
    members = archive.infolist()
    if len(members) > _MOST_MEMBERS or sum(each.file_size for each in members) > _MOST_BYTES:
        raise ScenarioError("larger than any predictor of ours; not read")
    manifest = json.loads(_content(archive, _MANIFEST))
    if manifest.get("format") != _FORMAT:
        raise ScenarioError("not a predictor's file")
    if manifest["version"] != VERSION:
        raise ScenarioError(
            f"a predictor of version {manifest['version']}, and this twinbed reads {VERSION}; train it anew"
        )
    arrays = {name: _array(archive, name) for name in manifest["arrays"]}
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


def _correction(given: Mapping[str, Any], arrays: Mapping[str, np.ndarray], which: str) -> Correction:
    corrector = Corrector(given["corrector"])
    trees = None
    if corrector is Corrector.TREES:
        trees = Trees(*(arrays[f"{which}_trees_{name}"] for name in _TREES))
    weights = arrays[f"{which}_weights"]
    return Correction(corrector, float(given["offset"]), weights, float(given["penalty"]), trees)


def _content(archive: zipfile.ZipFile, name: str) -> bytes:
    """No more of a member than the archive's limit, whatever its header says."""
    with archive.open(name) as member:
        content = member.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ScenarioError("larger than any predictor of ours; not read")
    return content


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    content = io.BytesIO(_content(archive, f"{name}.npy"))
    found: np.ndarray = np.lib.format.read_array(content, allow_pickle=False)
    if found.dtype.kind not in "fi" or (found.dtype.kind == "f" and not np.isfinite(found).all()):
        raise ScenarioError(f"{name} holds something else than numbers")
    return found


def _check(encoder: Encoder, arrays: Mapping[str, np.ndarray]) -> None:
    """Columns, scales and weights must fit to each other."""
    width = len(encoder.columns)
    if len(encoder.groups) != width or any(
        arrays[name].shape != (width,)
        for name in ("mean", "scale", *(f"{which}_weights" for which in _CORRECTIONS))
    ):
        raise ScenarioError("its columns, scales and weights are of different lengths")
    if (encoder.scale <= 0).any() or (encoder.series_scale <= 0).any():
        raise ScenarioError("a scale is not more than 0")
