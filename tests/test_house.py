"""The house rules that import-linter cannot see: the entry page, the package list, the layout."""

import ast
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


def test_every_name_in_the_constraints_is_pinned_exactly():
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert [line for line in lines if "==" not in line or "/" in line] == []
