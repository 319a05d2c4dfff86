"""Lengths of time and moments of the command line."""

import pytest

from lab.ask.times import duration_s, moment_s
from twinbed import ScenarioError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("7d", 604_800), ("1h30m", 5400), ("250ms", 0.25), ("1.5h", 5400), ("2w", 1_209_600)],
)
def test_a_length_of_time_is_read(text, seconds):
    assert duration_s(text, "--since") == seconds


@pytest.mark.parametrize(
    "text", ["", "7", "d", "7 d", "7y", "-7d", "0s", "7d!", "1e3s", "٧d", "9" * 400 + "s"]
)
def test_what_is_no_length_of_time_is_told(text):
    with pytest.raises(ScenarioError, match="--since"):
        duration_s(text, "--since")


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
