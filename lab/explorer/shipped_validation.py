"""The comparisons of twin and testbed that ship with this version, for the page "Validation".

For: reading them, and finding them in the results page. Not for: judging (lab.containers.validate), nor for
measuring and writing the file (`python -m studies fidelity-containers`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from lab.containers.validate.rule import Verdict

FILE = Path(__file__).with_name("shipped_validation.csv")
_MARKS = {"✓": Verdict.LIMIT, "≈": Verdict.SPREAD, "✗": Verdict.OUTSIDE, "✗!": Verdict.ONE_SIDED}
_CELL = re.compile(r"(\S+) / (\S+) \((\S+?)–(\S+)\) (✗!|✓|≈|✗)$")
_HEADING = re.compile(r"(.+) \((.+)\)$")


def comparisons() -> pd.DataFrame:
    """Return a row per comparison.

    Columns: scenario, load, policy, quantity, unit ("" for a share), twin and testbed (medians), low and high
    (the testbed's least and most), verdict (words of Verdict).
    """
    return pd.read_csv(FILE, keep_default_na=False, na_values={"twin": [""], "testbed": [""]})


def of_page(text: str) -> pd.DataFrame:
    """Return the comparisons of the section "All cells" of a results page, as `comparisons` does."""
    section = text.partition("## All cells")[2].partition("\n## ")[0]
    return pd.DataFrame(row for part in section.split("\n### ")[1:] for row in _rows(part))


def _rows(part: str) -> Iterator[dict[str, object]]:
    scenario, *lines = part.splitlines()
    table = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if line[:1] == "|"]
    for load, policy, *cells in table[2:]:
        for heading, cell in zip(table[0][2:], cells, strict=True):
            if found := _CELL.match(cell):
                parted = _HEADING.match(heading)
                quantity, unit = parted.groups() if parted else (heading, "")
                yield {
                    "scenario": scenario.removeprefix("validation-"),
                    "load": "" if load == "–" else load,
                    "policy": policy,
                    "quantity": quantity,
                    "unit": unit,
                    **dict(
                        zip(("twin", "testbed", "low", "high"), map(_number, found.groups()[:4]), strict=True)
                    ),
                    "verdict": str(_MARKS[found[5]]),
                }


def _number(text: str) -> float | None:
    return None if text == "–" else float(text.replace(",", ""))
