import contextlib
import io
import json
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is not installed: pip install 'twinbed[cloud]'")
pytest.importorskip("xgboost", reason="xgboost is not installed: pip install 'twinbed[cloud]'")

from control.jobs import Objective
from control.predictor.physical import Corrector, train_physical
from lab.cloud.run import model_file
from tests.made_up_jobs import examples
from twinbed import ScenarioError


@pytest.fixture(scope="module")
def trained():
    rows = examples(5)
    return {by: train_physical(by, rows, 0) for by in Objective}, rows


@pytest.fixture
def path(trained, tmp_path):
    file = tmp_path / "model.twinbed"
    model_file.write(trained[0][Objective.TIME], {"trained_at": "2026-01-01"}, file)
    return file


@pytest.mark.slow
def test_what_is_written_predicts_as_before(trained, tmp_path):
    models, rows = trained
    for by, model in models.items():
        file = tmp_path / f"{by}.twinbed"
        model_file.write(model, {"note": "ours"}, file)
        again, card = model_file.read(file)
        np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
        assert (again.by, card) == (by, {"note": "ours"})


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path, **changes):
    content = members(path)
    manifest = json.loads(content["manifest.json"]) | changes.pop("manifest", {})
    content |= {"manifest.json": json.dumps(manifest).encode(), **changes.pop("files", {})}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, each in content.items():
            archive.writestr(name, each)
    return path


def npy(values):
    content = io.BytesIO()
    np.save(content, values, allow_pickle=True)
    return content.getvalue()


class Evil:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"manifest": {"version": 1}}, "version 1, and this twinbed reads 2"),
        ({"manifest": {"format": "x"}}, "not a predictor's file"),
        ({"manifest": {"by": "power"}}, "incomplete or damaged"),
        ({"manifest": {"arrays": ["../etc"]}}, "incomplete or damaged"),
        ({"files": {"mean.npy": npy(np.array([Evil()], dtype=object))}}, "incomplete or damaged"),
        ({"files": {"mean.npy": pickle.dumps(Evil())}}, "incomplete or damaged"),
        ({"files": {"mean.npy": npy(np.ones(3))}}, "different lengths"),
        ({"files": {"known_weights.npy": npy(np.array([np.nan]))}}, "something else than numbers"),
        ({"files": {"big.bin": b"\0" * (257 << 20)}}, "larger than any"),
    ],
)
def test_another_version_and_hostile_files_are_refused(path, changes, message):
    with pytest.raises(ScenarioError, match=message):
        model_file.read(rewritten(path, **changes))


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(ScenarioError, match="no such file; twinbed predict train"):
        model_file.read(tmp_path / "gone")
    other = tmp_path / "other"
    other.write_bytes(b"not a zip")
    with pytest.raises(ScenarioError, match="not a predictor's file"):
        model_file.read(other)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_damage_goes_unnoticed_or_raises_anything_else(path, data):
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = path.with_name("damaged")
    damaged.write_bytes(bytes(content))
    with contextlib.suppress(ScenarioError):
        model_file.read(damaged)


def test_trees_are_among_what_is_stored(trained):
    assert {model.correction.corrector for model in trained[0].values()} <= set(Corrector)
