"""Lengths of time and moments of the command line."""

import pytest

from lab.ask.times import duration_s, moment_s
from twinbed import ScenarioError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30), ("7d", 604_800), ("1h30m", 5400), ("250ms", 0.25), ("1.5h", 5400), ("2w", 1_209_600),
        (" 2d ", 172_800), ("6h", 21_600), ("90m", 5400), ("1.5d", 129_600), ("1.5m", 90),
    ],
)  # fmt: skip
def test_a_length_of_time_is_read(text, seconds):
    assert duration_s(text, "--since") == seconds


@pytest.mark.parametrize(
    "text", ["", "7", "d", "7 d", "7y", "-7d", "0s", "7d!", "1e3s", "٧d", "6 hours", "9" * 400 + "s"]
)
def test_what_is_no_length_of_time_is_told(text):
    with pytest.raises(ScenarioError, match=f"^--since {text}: expected a "):
        duration_s(text, "--since")


def test_no_time_at_all_is_a_length_only_where_it_has_a_meaning():
    assert duration_s("0s", "--older", zero=True) == 0.0
    with pytest.raises(ScenarioError, match="--older 0: expected a number and a unit"):
        duration_s("0", "--older", zero=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1714557600", 1714557600),
        ("2024-05-01T10:00:00Z", 1714557600),
        ("2024-05-01T12:00:00+02:00", 1714557600),
    ],
)
def test_a_moment_is_read(text, seconds):
    assert moment_s(text, "--until") == seconds


@pytest.mark.parametrize("text", ["", "now", "nan", "inf", "-1", "1e300", "2024-13-01", "9999999999999"])
def test_what_is_no_moment_is_told(text):
    with pytest.raises(ScenarioError, match=r"--until .*expected a time such as"):
        moment_s(text, "--until")
