import pytest

from lab.cli.reference_pages import ROOT, documents


@pytest.mark.slow
def test_generated_files_are_current():
    made = documents()
    kept = {path: (ROOT / path).read_text("utf-8") for path in made if (ROOT / path).is_file()}
    stale = [str(path) for path, text in made.items() if kept.get(path) != text]
    assert stale == [], "missing or stale: run python -m lab.cli.reference_pages"
