"""The notebooks of docs/notebooks: stored without outputs, and each runs from its first cell to its last."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATHS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
each = pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])


def test_every_pillar_has_a_notebook():
    assert {"containers", "fabric", "cloud", "cluster"} <= {path.stem for path in PATHS}


@each
def test_a_notebook_is_stored_without_outputs(path):
    page = json.loads(path.read_text())
    assert (page["nbformat"], page["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in page["cells"]}) == len(page["cells"])
    code = [cell for cell in page["cells"] if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.slow
@each
def test_a_notebook_runs_and_shows_tables(path, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "tests.notebooks.run_notebook", path],
        cwd=ROOT,
        env=os.environ | {"TWINBED_STORE": str(tmp_path / "store")},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    code = [cell["id"] for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [line[5:-4] for line in ended.stdout.splitlines() if line.startswith("<!-- ")] == code
    assert ended.stdout.count("</table>") >= 2
