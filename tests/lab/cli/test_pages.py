"""Every command that a page of the documentation shows has the verbs and options that twinbed has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from lab.cli.main import app
from tests.pages import HOW_TOS, ROOT, blocks, commands

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])


def unknown(words: list[str]) -> str:
    """Return the first verb or option that does not exist, "" if all do."""
    command = typer.main.get_command(app)
    for place, word in enumerate(words):
        if word == "--":
            break
        if word.startswith("--"):
            names = {name for own in command.params for name in (*own.opts, *own.secondary_opts)}
            if word.partition("=")[0] not in {*names, "--help"}:
                return word
        elif hasattr(command, "commands"):
            if word not in command.commands:
                # In prose a group stands for its verbs: `twinbed runs …`.
                return "" if word == "…" else " ".join(words[: place + 1])
            command = command.commands[word]
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_exists(page: Path) -> None:
    assert [words for words in commands(page) if unknown(words)] == []


def test_what_an_error_or_a_help_names_exists() -> None:
    groups = {
        name: group.commands
        for name, group in typer.main.get_command(app).commands.items()
        if hasattr(group, "commands")
    }
    named = re.compile(rf"twinbed ({'|'.join(groups)}) ([a-z-]+)")
    rooms = ("lab", "control", "traces", "twin", "testbed", "kernel", "twinbed")
    files = [file for room in rooms for file in (ROOT / room).rglob("*.py")]
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    wrong = {
        (file.name, group, verb)
        for file, text in texts.items()
        for group, verb in named.findall(text)
        if verb not in groups[group]
    }
    assert wrong == set()


def test_a_verb_or_option_that_is_not_there_is_found() -> None:
    assert unknown(["whatif", "x", "--polcy", "escra"]) == "--polcy"
    assert unknown(["runs", "lst"]) == "runs lst"
    assert unknown(["record", "--out", "x", "--", "ls", "--all"]) == ""


@pytest.mark.parametrize("page", sorted(HOW_TOS.glob("*.md")), ids=lambda page: page.stem)
def test_every_command_of_a_how_to_stands_in_a_block_that_says_where_it_runs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^    (?:sudo|twinbed|python) .*", text, re.MULTILINE) == []
    fences = re.findall(r"^```.*", text, re.MULTILINE)[::2]
    assert all(re.fullmatch(r"```\w+", fence) for fence in fences)
    for block in blocks(page):
        if block.language == "sh":
            assert "sudo " not in block.text
