import pytest

from lab.cli.reference_pages import ROOT, documents


@pytest.mark.slow
@pytest.mark.parametrize("path", documents(), ids=str)
def test_generated_files_are_current(path):
    target = ROOT / path
    assert target.is_file(), f"{path} is missing: run python -m lab.cli.reference_pages"
    current = target.read_text(encoding="utf-8")
    assert current == documents()[path], f"{path} is stale: run python -m lab.cli.reference_pages"
