"""`python -m studies NAME`: makes a results page again, or prints an experiment or a measurement.

For: the one command line of the studies. Not for: the table of tasks (tasks.py) or their work. An expected
failure ends it with one line and exit code 2.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.cli.options import Format
from studies.harness import Asked
from studies.tasks import listing, task
from twinbed import ScenarioError, TwinbedError

OPTIONS: dict[str, dict[str, Any]] = {
    "data": {"type": Path, "metavar": "FOLDER", "help": "the public data sets (default: $TWINBED_DATA)"},
    "store": {"type": Path, "metavar": "FOLDER", "help": "runs or measurements (default: by the code)"},
    "out": {"type": Path, "metavar": "FOLDER", "help": "where pages are written (default: docs/results)"},
    "minutes": {"type": float, "metavar": "N", "help": "start nothing after N minutes"},
    "only": {"nargs": "+", "metavar": "WHAT", "help": "parts, settings, cells, tables or gaps, by the task"},
    "repeats": {"type": int, "metavar": "N", "help": "runs of each cell on the testbed"},
    "duration": {"type": float, "metavar": "S", "help": "seconds of a run"},
    "page-only": {"action": "store_true", "help": "write the page and measure nothing"},
    "note": {"metavar": "TEXT", "help": "sentence on the page from now on: the machine's other work"},
    "again": {"action": "store_true", "help": "repeat runs of the table of measured jobs"},
    "recommenders": {"nargs": "+", "metavar": "NAME", "help": "only these recommenders"},
    "programs": {"action": "store_true", "help": "leave out past jobs of the same program, too"},
    "few": {"type": int, "metavar": "N", "help": "draw N past jobs or loads, and leave out the others"},
    "seeds": {"type": int, "metavar": "N", "help": "searches of each job (default: 5)"},
    "past": {"nargs": "+", "metavar": "TABLE", "help": "tables whose jobs are past jobs, too"},
    "jobs": {"action": "store_true", "help": "print a line for each job, too"},
    "timeout": {"type": int, "metavar": "N", "help": "exponent of the ACK timeout"},
    "sensitivity": {"action": "store_true", "help": "show how the figures move when one assumption changes"},
    "html": {"type": Path, "metavar": "FILE", "help": "write the experiment as one HTML page, too"},
    "format": {"dest": "form", "choices": list(Format), "help": "how the experiment is printed"},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the task that the command line names, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m studies",
        description="Makes a results page again, or prints an experiment or a measurement.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a task or an experiment; --list shows them")
    parser.add_argument("--list", action="store_true", help="list the tasks and what they need")
    for option, settings in OPTIONS.items():
        parser.add_argument(f"--{option}", **settings)
    given = vars(parser.parse_args(arguments))
    if given.pop("list", False) or "name" not in given:
        sys.stdout.write(listing())
        return 0
    try:
        name, row = task(given.pop("name"))
        for option in given:
            if option not in ("out", *row.options):
                raise ScenarioError(
                    f"{name}: takes no --{option.replace('_', '-').replace('form', 'format')}"
                )
        if folder := os.environ.get("TWINBED_DATA"):
            given = {"data": Path(folder)} | given
        return row.run(Asked(name, **given))
    except TwinbedError as error:
        sys.stderr.write(f"studies: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("studies: stopped; the same command continues\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
