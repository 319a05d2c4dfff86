import contextlib
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is not installed: pip install 'twinbed[cloud]'")
pytest.importorskip("safetensors", reason="safetensors is not installed: pip install 'twinbed[cloud]'")
pytest.importorskip("xgboost", reason="xgboost is not installed: pip install 'twinbed[cloud]'")

from safetensors import safe_open
from safetensors.numpy import save

from control.jobs import Objective
from control.predictor.physical import Corrector, train_physical
from control.predictor.training import Schedule
from control.predictor.tried_network import train_network
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


@pytest.mark.slow
@pytest.mark.parametrize("by", list(Objective))
def test_a_network_that_is_written_predicts_as_before(by, tmp_path):
    rows = examples(3)
    model = train_network(by, rows, 1, schedule=Schedule(epochs=3))
    assert (model.by, model.jobs) == (by, ("job-0", "job-1", "job-2"))
    assert len(model.row_errors) == len(model.job_errors) == len(rows)
    file = tmp_path / "network.twinbed"
    model_file.write(model, {"note": "ours"}, file)
    again, card = model_file.read(file)
    np.testing.assert_allclose(again.predict(rows), model.predict(rows), rtol=1e-6)
    np.testing.assert_array_equal(again.row_errors, model.row_errors)
    assert (again.by, again.jobs, card) == (by, model.jobs, {"note": "ours"})
    wrong = rewritten(file, arrays={"network.static.0.weight": np.ones((2, 2))})
    with pytest.raises(ScenarioError, match="another shape"):
        model_file.read(wrong)


def rewritten(path, manifest=None, arrays=None, *, checksum=True):
    """Write the file again with changes to manifest and arrays, with a new checksum or with the old one."""
    with safe_open(path, framework="numpy") as file:
        content = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
        content |= arrays or {}
        stated = json.loads(file.metadata()["twinbed.predictor"]) | (manifest or {})
    if checksum:
        stated.pop("sha256")
        stated["sha256"] = model_file.content_checksum(stated, content)
    path.write_bytes(save(content, {"twinbed.predictor": json.dumps(stated)}))
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"manifest": {"version": 1}}, "its version is 1, and this twinbed reads 5"),
        ({"manifest": {"version": 4}}, "its version is 4, and this twinbed reads 5; train it again"),
        ({"manifest": {"by": "power"}}, "incomplete or damaged"),
        ({"arrays": {"series_mean": np.ones(4)}}, "train it again"),
        ({"manifest": {"encoder": {}}}, "incomplete or damaged"),
        ({"manifest": {"level": 1.0}, "checksum": False}, "checksum does not match"),
        ({"arrays": {"level": np.ones(3)}, "checksum": False}, "checksum does not match"),
        ({"arrays": {"mean": np.ones(3)}}, "different lengths"),
        ({"arrays": {"mean": np.ones(3, dtype=np.bool_)}}, "not finite numbers"),
        ({"arrays": {"known_weights": np.array([np.nan])}}, "not finite numbers"),
    ],
)
def test_another_version_and_hostile_files_are_refused(path, changes, message):
    with pytest.raises(ScenarioError, match=message):
        model_file.read(rewritten(path, **changes))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a model", "not a predictor's file"),
        (save({"mean": np.ones(3)}), "not a predictor's file"),
        (b"PK\x03\x04 a zip of NumPy arrays", "written by an earlier twinbed; train it again"),
        (pickle.dumps(print), "not a predictor's file"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    with pytest.raises(ScenarioError, match="no such file; twinbed predict train"):
        model_file.read(tmp_path / "gone")
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(ScenarioError, match=message):
        model_file.read(tmp_path / "other")


def test_a_file_that_is_too_large_is_not_read(path):
    with path.open("r+b") as file:
        file.truncate(257 << 20)
    with pytest.raises(ScenarioError, match="larger than 256 MiB"):
        model_file.read(path)


@settings(max_examples=60)
@given(st.data())
def test_no_damage_goes_unnoticed_or_raises_anything_else(path, data):
    whole = path.read_bytes()
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = path.with_name("damaged")
    damaged.write_bytes(bytes(content))
    with contextlib.suppress(ScenarioError):
        model_file.write(*model_file.read(damaged), damaged)
        assert damaged.read_bytes() == whole


def test_trees_are_among_what_is_stored(trained):
    assert {model.correction.corrector for model in trained[0].values()} <= set(Corrector)
