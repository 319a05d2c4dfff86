"""Damaged input: what once broke a reader, and a few examples more. `python -m tests.fuzz` tries many."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.bound import problem
from tests.fuzz.mutations import damaged
from tests.fuzz.readers import READERS

FILES = [(reader, path) for reader in READERS.values() for path in reader.corpus()]


@pytest.mark.parametrize(
    ("reader", "path"), FILES, ids=[f"{reader.name}/{path.name}" for reader, path in FILES]
)
def test_a_file_of_the_corpus_is_read_or_refused_in_one_line(reader, path, tmp_path) -> None:
    case = tmp_path / f"case{reader.suffix}"
    case.write_bytes(path.read_bytes())
    assert problem(reader, case) == ""
    if path.name.startswith("valid-"):
        assert reader.read(case) is not None


@pytest.mark.parametrize("name", READERS)
def test_damaged_input_is_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    case = tmp_path / f"case{reader.suffix}"

    @settings(
        max_examples=15,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(data=damaged(reader.seeds()))
    def tried(data: bytes) -> None:
        case.write_bytes(data)
        assert problem(reader, case) == ""

    tried()
