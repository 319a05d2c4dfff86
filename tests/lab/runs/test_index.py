"""The index of a store on object storage that programs of different code share."""

from __future__ import annotations

import pytest

from lab.runs.stores import store_at
from tests.lab.sample_runs import publish

pytest.importorskip("fsspec", reason="the extra scale is not installed")


def test_what_one_code_has_indexed_is_listed_by_another(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.runs.remote.INDEX_FROM", 1)
    store = store_at(f"memory://runs/{tmp_path.name}")
    made = set()
    for seed, code in enumerate("abab"):
        monkeypatch.setattr("lab.runs.index.code_sha256", lambda code=code: code * 64)
        made.add(publish(store, seed=seed).id)
        assert set(store.list()["id"]) == made
        assert store.shelf(".said").names() == []
