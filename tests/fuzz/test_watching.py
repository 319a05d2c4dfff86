"""The bound itself, and the process that watches it: a case that breaks the bound is found, kept and
named."""

from __future__ import annotations

import math
import sys
import warnings
from pathlib import Path

import pytest

from tests.fuzz.__main__ import Turn
from tests.fuzz.bound import TOO_MUCH, TOO_SLOW, problem
from tests.fuzz.readers import Reader
from twinbed import InvariantError, TraceError

_CHILD = """
import pathlib, sys, time
pathlib.Path(sys.argv[5], "case.x").write_text("the case")
print("ready", flush=True)
{}
"""


def raising(error: BaseException) -> Reader:
    def read(path: Path) -> object:
        raise error

    return Reader("made up", read)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TraceError("it.csv: line 3: wrong"), ""),
        (TraceError("two\nlines"), "not one printable line"),
        (TraceError("\x1b[31m"), "not one printable line"),
        (TraceError(""), "not one printable line"),
        (InvariantError("ours"), "InvariantError: ours"),
        (ValueError("further down"), "ValueError in "),
        (MemoryError(), "MemoryError in "),
        (RecursionError("deep"), "RecursionError in "),
    ],
)
def test_only_a_line_for_the_user_keeps_the_bound(error: BaseException, words: str, tmp_path: Path) -> None:
    found = problem(raising(error), tmp_path)
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_a_warning_breaks_the_bound(tmp_path: Path) -> None:
    reader = Reader("made up", lambda path: warnings.warn("overflow", RuntimeWarning, stacklevel=1))
    assert problem(reader, tmp_path).startswith("RuntimeWarning in ")


@pytest.mark.parametrize(
    ("does", "found"),
    [
        ("time.sleep(600)", TOO_SLOW),
        ("while True: pass", TOO_SLOW),
        ("held = bytearray(b'x' * 1_100_000_000); time.sleep(600)", TOO_MUCH),
        ("import os; os.abort()", "ends the process with -6"),
        ("print('bad ValueError in a.py:1: no', flush=True)", "ValueError in a.py:1"),
    ],
    ids=["waiting", "computing", "memory", "crash", "exception"],
)
def test_a_case_that_breaks_the_bound_is_kept(
    does: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if found == TOO_SLOW:
        monkeypatch.setattr("tests.fuzz.__main__.MOST_S", 0.2)
    reader = Reader("made up", lambda path: None, ".x")
    turn = Turn(reader, tmp_path / "found", (sys.executable, "-c", _CHILD.format(does)))
    turn.take(0.01, 9, 1)
    assert found in turn.findings
    assert turn.findings[found].read_text() == "the case"


def test_a_case_that_is_read_when_tried_again_is_no_fault_of_the_reader(tmp_path: Path) -> None:
    once = _CHILD.format(
        "if sys.argv[6:] != ['again']: import os; os.abort()\n"
        "assert pathlib.Path(sys.argv[5], 'case.x').exists()\n"
        "print('ok', flush=True)"
    )
    turn = Turn(Reader("made up", lambda path: None, ".x"), tmp_path / "found", (sys.executable, "-c", once))
    turn.take(math.inf, 1, 1)
    assert turn.findings == {}
    assert turn.cases == 1


def test_a_number_of_cases_ends_a_turn_and_a_dead_child_counts_as_one(tmp_path: Path) -> None:
    dying = _CHILD.format("sys.argv[6:] or print('ok', flush=True); import os; os.abort()")
    turn = Turn(Reader("made up", lambda path: None, ".x"), tmp_path / "found", (sys.executable, "-c", dying))
    turn.take(math.inf, 3, 1)
    assert turn.cases == 4
    assert list(turn.findings) == ["ends the process with -6"]
