"""`python -m studies.fidelity_containers`: runs what the store lacks, and writes the results page.

For: `make results-fidelity-containers`. Not for: the page's text (results.py). Runs are kept, one store per
version of the code that makes them, so that what was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from pathlib import Path

from lab.containers.validate.both import Cell, validate
from lab.containers.validate.rule import LEAST_REPEATS
from lab.runs.files import write_whole
from lab.runs.store import RunStore
from studies.fidelity_containers import loop_figures, matrix
from studies.fidelity_containers.results import document
from twinbed import TwinbedError

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results" / "fidelity-containers.md"
STORES = ROOT / "build" / "fidelity"
_CODE = (
    "control/allocator",
    "testbed/containers",
    "twin/containers",
    "lab/real",
    "lab/services",
    "scenarios/apps",
)
"""What a run depends on besides the scenario and the calibration, which are in the run's id."""


def main(arguments: list[str] | None = None) -> int:
    """Exit code 2 with one line where it cannot be done."""
    options = _options(arguments)
    try:
        return _measure_loop() if options.loop else _make(options)
    except TwinbedError as error:
        sys.stderr.write(f"lab.containers.validate: {error}\n")
        return 2


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m studies.fidelity_containers", description=__doc__)
    parser.add_argument("--part", action="append", default=[], help=f"only: {', '.join(matrix.PARTS)}")
    parser.add_argument("--repeats", type=int, default=LEAST_REPEATS, help="runs of each cell on the testbed")
    parser.add_argument("--duration", type=float, help="seconds of each run of services and of the job")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page is written")
    parser.add_argument("--loop", action="store_true", help="measure the control loop alone, and print it")
    return parser.parse_args(arguments)


def _make(options: argparse.Namespace) -> int:
    questions = matrix.scenarios(options.part, options.duration)
    took = matrix.estimate_s(questions, options.repeats)
    _say(f"about {took / 60:.0f} minutes on the testbed if nothing is stored yet")
    store = store_of_this_code()
    cells: list[Cell] = []
    for question in questions:
        began = time.monotonic()
        cells += validate(question, store, repeats=options.repeats, progress=_Tell(), fresh=False)
        _say(f"{question.name}: {time.monotonic() - began:.0f} s")
    loop = None if options.part else loop_figures.measure()
    spent_s = sum(float(run.manifest["wall_s"]) for cell in cells for run in (*cell.testbed, *cell.disturbed))
    options.page.parent.mkdir(parents=True, exist_ok=True)
    text = document(cells, loop, spent_s, options.part or ())
    write_whole(options.page, lambda file: file.write(text.encode()))
    return 0


def _measure_loop() -> int:
    found = loop_figures.measure()
    for name in found.__slots__:
        sys.stdout.write(f"{name} = {getattr(found, name):.6g}\n")
    return 0


def store_of_this_code() -> RunStore:
    """Stores of other versions are left alone: what a kernel did in an hour is not thrown away."""
    digest = hashlib.sha256()
    for part in _CODE:
        for file in sorted((ROOT / part).rglob("*")):
            if file.suffix in (".py", ".yaml"):
                digest.update(file.read_bytes())
    root = STORES / digest.hexdigest()[:10]
    root.mkdir(parents=True, exist_ok=True)
    return RunStore(root)


class _Tell:
    """One line per finished run."""

    def __init__(self) -> None:
        self._done = 0

    def __call__(self, label: str, fraction: float) -> None:
        if fraction >= 1.0:
            self._done += 1
            _say(f"{self._done}: {label}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
