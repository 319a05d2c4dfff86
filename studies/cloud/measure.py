"""`python -m studies.cloud.measure`: adds runs to the table of measured jobs, for as long as it is given.

For: whoever has a quiet machine for an hour; as root. Not for: a user's jobs (`twinbed profile`).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from lab.ask import shipped
from lab.cloud.input import job_file
from lab.cloud.input.data_set import TABLE
from lab.cloud.input.listed import instance_type
from studies.cloud import grid
from traces.catalogue.catalogue import load
from twinbed import TwinbedError

AGAIN = Path(__file__).with_name("measured_again.csv")
"""Some of its runs once more."""
TYPES = (
    "n1-standard-4", "n1-standard-8", "e2-standard-16", "n1-highcpu-16", "n1-highcpu-32", "e2-highmem-8",
    "e2-highmem-16",
)  # fmt: skip
"""Those of the source (SPEC §3.1)."""
JOBS = shipped.FOLDERS["job"]
REGION = "us-central1"
WORKERS = (1, 2, 3, 4)
BATCHES = (1, 2)


def all_cells(seed: int = 0) -> list[grid.Cell]:
    """Of the shipped jobs on the source's types, in the seed's order."""
    listed = load().types(REGION)
    types = [instance_type(listed[name]) for name in TYPES]
    jobs = [job_file.load(path) for path in sorted(JOBS.glob("*.yaml"))]
    return grid.cells(jobs, types, WORKERS, BATCHES, seed=seed)


def main() -> int:
    """Measures what the table lacks, most minutes long, and prints where it stands."""
    parser = argparse.ArgumentParser(prog="python -m studies.cloud.measure", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="start nothing after so long")
    parser.add_argument("--out", type=Path, help="the table; what it holds is not run again")
    parser.add_argument(
        "--again", action="store_true", help="the other table, in another order: what a run once more says"
    )
    given = parser.parse_args()
    out = given.out or (AGAIN if given.again else TABLE)
    until = time.monotonic() + 60 * given.minutes

    def show(done: int, of: int, what: str) -> None:
        print(f"{done} of {of}  {what}", file=sys.stderr, flush=True)

    try:
        there = grid.collect(
            all_cells(int(given.again)), JOBS, out, on_run=show, going_on=lambda: time.monotonic() < until
        )
    except TwinbedError as error:
        print(f"measure: {error}", file=sys.stderr)
        return 2
    print(f"{there} runs in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
