"""The terminal's output for errors that nothing else caught: one printable line, and exit code 3 for our
defects."""

import logging
import subprocess
import sys

import pytest

from lab.cli import main, options
from lab.cli.controller import log_to_standard_error
from lab.runs.formats import Column, Result
from twinbed import InvariantError, ScenarioError


def broken(monkeypatch, error: BaseException) -> None:
    def app(**_: object) -> None:
        raise error

    monkeypatch.setattr(main, "app", app)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("cpu"), "KeyError: 'cpu'"),
        (OverflowError("int too large"), "OverflowError: int too large"),
        (RecursionError(), "RecursionError"),
        (InvariantError("the sum is wrong"), "InvariantError: the sum is wrong"),
        (ValueError("two\nlines"), "ValueError: two lines"),
    ],
)
def test_a_defect_is_one_line_and_exit_code_3(twinbed, monkeypatch, error, said):
    monkeypatch.delenv("TWINBED_TRACEBACK", raising=False)
    broken(monkeypatch, error)
    ended = twinbed("policies")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == f"twinbed: a defect of twinbed: {said}; set TWINBED_TRACEBACK=1 to see where\n"


def test_a_defect_shows_where_it_is_if_that_is_wanted(twinbed, monkeypatch):
    monkeypatch.setenv("TWINBED_TRACEBACK", "1")
    broken(monkeypatch, KeyError("cpu"))
    ended = twinbed("policies")
    assert ended.code == 3
    assert ended.err.startswith("Traceback (most recent call last):\n")
    assert "in app\n" in ended.err
    assert ended.err.splitlines()[-1].startswith("twinbed: a defect of twinbed: KeyError: 'cpu'")


def test_a_message_cannot_steer_the_terminal(twinbed, monkeypatch):
    broken(monkeypatch, ScenarioError("a\x1b[31m\x9bm\u202eb.yaml:\nno \ud800"))
    assert twinbed("policies").err == "twinbed: a�[31m�m�b.yaml: no �\n"


def test_a_message_is_never_longer_than_a_page(twinbed, monkeypatch):
    broken(monkeypatch, ScenarioError("x" * 100_000))
    assert len(twinbed("policies").err) < 2_100


@pytest.mark.parametrize("form", list(options.Format))
def test_no_form_of_a_result_steers_the_terminal(form, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    options.emit(Result((Column("name", "name"),), ({"name": "w\x1b[2Jeb\x9b\x7f"},)), form)
    written = capsys.readouterr().out
    assert "eb" in written
    assert all(char.isprintable() or char == "\n" for char in written)


def test_csv_for_a_program_is_exact(capsys):
    options.emit(Result((Column("name", "name"),), ({"name": "w\x1beb"},)), options.Format.CSV)
    assert capsys.readouterr().out == "name\nw\x1beb\n"


def test_a_name_in_the_log_cannot_steer_the_terminal(capsys):
    logger = logging.getLogger("twinbed")
    before = logger.handlers[:]
    try:
        log_to_standard_error()
        logger.info("agent %s came", "h\x1b[31m\n1")
    finally:
        logger.handlers = before
    err = capsys.readouterr().err
    assert "agent h�[31m�1 came\n" in err


@pytest.mark.slow
def test_text_that_standard_output_cannot_encode_is_no_defect():
    done = subprocess.run(
        [sys.executable, "-m", "lab.cli.main", "policies"],
        env={"PYTHONIOENCODING": "ascii", "PATH": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("number", ["nan", "inf", "1e308"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["record", "--interval"],
        ["record", "--duration"],
        ["recommend", "mine.yaml", "--budget"],
        ["recommend", "mine.yaml", "--budget-per-hour"],
        ["profile", "mine.yaml", "--duration"],
        ["testbed", "capture", "h0", "--seconds"],
        ["testbed", "up", "--rate"],
    ],
)
def test_an_option_takes_usable_numbers_only(twinbed, arguments, number):
    option = arguments[-1]
    assert twinbed(*arguments, number).refused.startswith(f"Invalid value for '{option}': ")


def test_measurements_that_do_not_exist_are_not_read_as_none(twinbed, tmp_path):
    path = tmp_path / "none.duckdb"
    refused = twinbed("recommend", "images_vgg", "--measurements", path).refused
    assert refused == f"--measurements {path}: no such file; twinbed measurements import makes it"
    assert not path.exists()


@pytest.mark.parametrize("number", ["0", "-3"])
@pytest.mark.parametrize("option", ["--budget", "--budget-per-hour", "--cap"])
def test_a_bound_in_money_is_refused_by_its_option(twinbed, option, number):
    words = f"Invalid value for '{option}': {number} is not above 0"
    assert twinbed("recommend", "mine.yaml", option, number).refused.startswith(words)
