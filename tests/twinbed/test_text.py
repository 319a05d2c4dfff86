"""Numbers in sentences."""

from __future__ import annotations

import pytest

from twinbed.text import are, continued, counted


@pytest.mark.parametrize(
    ("number", "nouns", "text"),
    [
        (0, "", "0 samples"),
        (1, "", "1 sample"),
        (2, "", "2 samples"),
        (1.0, "", "1 sample"),
        (0.5, "", "0.5 samples"),
        (12_345_678, "", "12,345,678 samples"),
        (2, "of these", "2 of these"),
    ],
)
def test_a_noun_follows_its_number(number: float, nouns: str, text: str) -> None:
    assert counted(number, "sample", nouns) == text


def test_so_does_the_verb() -> None:
    assert [are(number) for number in (0, 1, 2)] == ["are", "is", "are"]


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("Input should be 'GiB'", "input should be 'GiB'"),
        ("Invalid JSON: EOF", "invalid JSON: EOF"),
        ("", ""),
    ],
)
def test_after_a_colon_a_sentence_keeps_its_names(text: str, after: str) -> None:
    assert continued(text) == after
