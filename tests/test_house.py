"""The house rules that import-linter cannot see: the entry page, the package list, the layout."""

import ast
import tomllib
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


def test_every_package_of_the_house_is_listed_for_installation():
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    ours = {"control", "kernel", "lab", "testbed", "traces", "twin", "twinbed"}
    there = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for root in ours
        for init in (ROOT / root).rglob("__init__.py")
    }
    assert listed == there


def test_every_name_in_the_constraints_is_pinned_exactly():
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert [line for line in lines if "==" not in line or "/" in line] == []
