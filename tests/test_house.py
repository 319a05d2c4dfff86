"""The house rules that import-linter cannot see: the entry page, the package list, the layout."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def imported_roots(path: Path) -> set[str]:
    roots: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            roots.add(node.module.partition(".")[0])
    return roots


def test_the_entry_page_imports_lab_and_streamlit_only():
    assert imported_roots(ROOT / "app.py") <= {"lab", "streamlit", "__future__"}


def pinned(file: str) -> list[str]:
    lines = (ROOT / file).read_text().splitlines()
    return [line for line in lines if line and not line.startswith(("#", " "))]


def test_every_name_in_the_constraints_is_pinned_exactly():
    assert [line for line in pinned("constraints.txt") if "==" not in line or "/" in line] == []


def test_the_lock_file_has_every_pin_of_the_constraints_and_a_checksum_for_each():
    locked = {line.split(" ")[0].lower().replace("_", "-") for line in pinned("requirements.lock")}
    assert {line.lower().replace("_", "-") for line in pinned("constraints.txt")} <= locked
    assert [line for line in pinned("requirements.lock") if not line.endswith("\\")] == []


def test_the_licence_of_every_package_in_the_constraints_is_listed():
    page = (ROOT / "docs" / "reference" / "licences.md").read_text().lower().replace("_", "-")
    names = [line.partition("==")[0].lower().replace("_", "-") for line in pinned("constraints.txt")]
    assert [name for name in names if f"\n| {name} |" not in page] == []


def test_every_file_of_tests_that_make_runs_is_there():
    named = re.findall(r"\btests/[\w/.]+", (ROOT / "Makefile").read_text())
    assert len(named) > 1
    assert [path for path in named if not (ROOT / path).exists()] == []
