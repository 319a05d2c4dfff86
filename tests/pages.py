"""The shell commands of the documentation's pages, as they stand there.

A block ```sh needs nothing but an installed twinbed and the files that its page names. A block ```bash needs
root or what only root can make, ```shell what no test has: other machines, hours, a user's own files.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOW_TOS = ROOT / "docs" / "how-to"
TUTORIAL = ROOT / "docs" / "tutorial.md"
SHELLS = ("sh", "bash", "shell")

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(twinbed [^`]+)`")
_ENDS = ("|", "&&", ";", "&", ">", ">>", "#")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block with its language."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return [Block(*parts) for parts in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words after `twinbed` of each such command in shell blocks and in inline code."""
    for block in blocks(page):
        if block.language in SHELLS:
            yield from _commands(block.text)
    for text in _INLINE.findall(page.read_text(encoding="utf-8")):
        yield from _commands(" ".join(text.split()))


def run(texts: Iterable[str], folder: Path) -> None:
    """Run blocks of bash in a folder, with a store in it. Fails with what a block printed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    here = os.environ | {"PATH": path, "TWINBED_STORE": str(folder / "store")}
    for text in texts:
        command = ["bash", "-euo", "pipefail", "-c", text]
        ended = subprocess.run(command, cwd=folder, env=here, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{text}\n{ended.stdout}\n{ended.stderr}"


def _commands(text: str) -> Iterator[list[str]]:
    lines = text.replace("\\\n", " ").splitlines()
    while lines:
        line = lines.pop(0)
        while True:
            try:
                words = shlex.split(line, comments=True)
                break
            except ValueError:
                # A quoted text goes on in the next line.
                line += "\n" + lines.pop(0)
        for place, word in enumerate(words):
            if word == "twinbed":
                rest = words[place + 1 :]
                stops = [index for index, other in enumerate(rest) if other in _ENDS]
                yield rest[: min(stops, default=len(rest))]
                break
