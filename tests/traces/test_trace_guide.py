"""The examples of docs/how-to/bring-your-own-trace.md load as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from traces.load import load
from traces.readers import plain_csv

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "bring-your-own-trace.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```csv\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=["wide", "long"])
def test_both_examples_are_the_same_use(tmp_path: Path, example: str) -> None:
    path = tmp_path / "my-trace.csv"
    path.write_text(example, encoding="utf-8")
    trace = load(path)
    assert (trace.containers, trace.shape, trace.interval_s) == (("web", "db"), (3, 2), 10.0)
    assert trace.cpu_cores[1:].tolist() == [[0.61, 0.12], [0.48, 0.55]]
    assert trace.memory_bytes[2].tolist() == [312 * 2**20, 1031 * 2**20]


def test_the_page_names_every_column_and_no_other() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {*plain_csv.TIME, *plain_csv.COLUMNS}


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my-trace.csv").write_text(EXAMPLES[0], encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    exec(compile(code, "the page", "exec"), {})
