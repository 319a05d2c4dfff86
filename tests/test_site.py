"""The documentation site is built, and no link on it leads nowhere."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("mkdocs") is None or find_spec("mkdocstrings") is None,
    reason="the extra docs is not installed; see make site",
)
def test_the_site_is_built_without_a_warning(tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-2000:]
    home = (tmp_path / "site" / "index.html").read_text()
    assert home.count("<img") >= 3
    assert "recommend" in (tmp_path / "site" / "reference" / "ports" / "index.html").read_text()
