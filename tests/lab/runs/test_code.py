"""The hash of the code that can influence a result."""

import pytest

from lab.ask.scenario import build, expand
from lab.runs import code
from lab.runs.manifest import identified


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A small installation, whose hash is computed at every call."""
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "a.py").write_text("x = 1\n")
    (tmp_path / "lab" / "cli").mkdir(parents=True)
    (tmp_path / "testbed").mkdir()
    monkeypatch.setattr(code, "_ROOT", tmp_path)
    monkeypatch.setattr(code, "_TWIN", ("control",))
    monkeypatch.setattr(code, "_TESTBED", ("testbed",))
    return tmp_path


def sha256(**options):
    return code.code_sha256.__wrapped__(**options)


def test_it_changes_with_what_makes_runs_and_with_its_names(tree):
    first = sha256()
    (tree / "lab" / "cli" / "b.py").write_text("")
    (tree / "testbed" / "c.py").write_text("")
    (tree / "control" / "notes.md").write_text("")
    assert sha256() == first
    assert sha256(testbed=True) != first
    (tree / "control" / "a.py").rename(tree / "control" / "b.py")
    renamed = sha256()
    (tree / "control" / "b.py").write_text("x = 2\n")
    assert len({first, renamed, sha256()}) == 3


def test_every_part_that_is_named_and_installed_has_files():
    assert len(code.code_sha256()) == 64
    for part in (
        "control",
        "lab/ask",
        "lab/containers",
        "lab/fabric",
        "lab/kinds.py",
        "twin",
        "twinbed",
        "testbed",
    ):
        assert (code._ROOT / part).exists()


def test_a_run_of_other_code_has_another_id(monkeypatch):
    spec = expand(build({"name": "t", "trace": {"source": "x"}}))[0]
    ids = [identified(spec, {}, "")["id"]]
    monkeypatch.setattr("lab.runs.manifest.code_sha256", lambda testbed: "0" * 64)
    ids.append(identified(spec, {}, "")["id"])
    assert len(set(ids)) == 2
