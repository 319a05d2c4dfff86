"""`make mutants` on a toy module."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "mutants.py"
FILES = {
    "pyproject.toml": """
[tool.mutmut]
source_paths = ["toy"]
only_mutate = ["toy/*.py"]
pytest_add_cli_args = ["-p", "no:kmock"]
""",
    "toy/limits.py": """
def doubled(asked):
    return asked * 2

def halved(asked):
    return asked / 2
""",
    "toy/other.py": "def other():\n    return 1\n",
    "tests/toy/test_limits.py": """
from toy import limits

def test_doubled():
    assert limits.doubled(3) == 6
""",
}


def _commit(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for step in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "a"],
    ):
        subprocess.run(["git", *step], cwd=folder, check=True)


def _mutants(folder: Path, *arguments: str) -> tuple[int, str]:
    environment = {name: text for name, text in os.environ.items() if name != "TWINBED_MUTANTS"}
    command = [sys.executable, str(TOOL), *arguments, "toy.limits"]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return ended.returncode, ended.stdout + ended.stderr


def test_a_change_that_no_test_notices_is_listed_and_tried_again_when_a_test_is_there(tmp_path):
    pytest.importorskip("mutmut", reason="the extra mutants is not installed; see make mutants")
    _commit(tmp_path, FILES)
    code, printed = _mutants(tmp_path)
    few, total = map(int, re.search(r"^toy\.limits: (\d+) of (\d+) noticed$", printed, re.M).groups())
    listed = (tmp_path / "build" / "mutants.txt").read_text()
    assert (code, 0 < few < total) == (1, True), printed
    assert re.findall(r"^-    (.*)", listed, re.M) == ["return asked / 2"] * (total - few)

    more = "\n\ndef test_halved():\n    assert limits.halved(3) == 1.5\n"
    _commit(tmp_path, {"tests/toy/test_limits.py": FILES["tests/toy/test_limits.py"] + more})
    code, printed = _mutants(tmp_path)
    assert (code, f"toy.limits: {total} of {total} noticed" in printed) == (0, True), printed
    assert "toy.limits: 2 of 2 noticed" in _mutants(tmp_path, "--sample", "2", "--seed", "7")[1]
    assert (tmp_path / "build" / "mutants" / "toy" / "limits.py").read_text() == FILES["toy/limits.py"]
