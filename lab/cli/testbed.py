"""`twinbed testbed doctor|status|down`: what this machine can do, what of ours is on it, and its removal.

For: the verbs. Not for: finding out (testbed.containers.doctor) nor removing (testbed.containers.leftovers).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, emit
from lab.formats import Column, Record, Result

if TYPE_CHECKING:
    from testbed.containers.leftovers import Run

_FOUND_A_PROBLEM = 1
_FINDINGS = (
    Column("feature", "Feature"),
    Column("status", "Status"),
    Column("found", "Found"),
    Column("meaning", "What it is for"),
    Column("cure", "What would mend it"),
)
_NEEDED = Column("needed", "Needed")
_RUNS = (
    Column("run", "Run"),
    Column("state", "State"),
    Column("process", "Process"),
    Column("groups", "Cgroups", decimals=0),
    Column("processes", "Processes inside", decimals=0),
    Column("networks", "Links and namespaces", decimals=0),
    Column("containers", "OCI bundles", decimals=0),
    Column("attached", "Limits to put back", decimals=0),
    Column("folders", "Temporary folders", decimals=0),
)

app = typer.Typer(
    help="The real testbed on this machine: what it can do, what is on it, and removing it.",
    no_args_is_help=True,
)


@app.command("doctor")
def doctor(form: FormatOption = Format.TABLE, no_progress: NoProgressOption = False) -> None:
    """Say what this machine can and cannot do for the testbed, and the one command that would mend it.

    Exit code 1 when something is missing without which containers cannot be run.
    """
    del no_progress
    from testbed.containers.doctor import can_run, examine, is_root

    findings = examine()
    rows = tuple(
        {
            "feature": each.feature,
            "status": each.status,
            "found": each.found,
            "meaning": each.meaning,
            "cure": each.cure or None,
            "needed": each.needed,
        }
        for each in findings
    )
    runs = can_run(findings)
    notes = ["The container testbed can run here." if runs else "The container testbed cannot run here."]
    if not is_root():
        notes.append("Looked at without root; with it more may be possible.")
    columns = _FINDINGS if form in (Format.TABLE, Format.MARKDOWN) else (*_FINDINGS, _NEEDED)
    emit(Result(columns, rows, notes=tuple(notes)), form)
    if not runs:
        raise typer.Exit(_FOUND_A_PROBLEM)


@app.command("status")
def status(form: FormatOption = Format.TABLE, no_progress: NoProgressOption = False) -> None:
    """List the runs that have anything on this machine: live ones, and what dead ones left.

    Exit code 1 when something was left.
    """
    del no_progress
    from testbed.containers.cgroups import detect
    from testbed.containers.leftovers import runs

    found = runs(detect())
    left = [each for each in found if not each.alive]
    notes = ("twinbed testbed down removes what is left over.",) if left else ()
    emit(Result(_RUNS, _rows(found), notes=notes), form)
    if left:
        raise typer.Exit(_FOUND_A_PROBLEM)


@app.command("down")
def down(
    everything: Annotated[
        bool, typer.Option("--all", help="Also end the runs that are live, and remove what they have.")
    ] = False,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Remove what runs left that were killed, and put back the limits that they changed.

    Works after kill -9. Nothing that does not carry the mark of twinbed is touched.
    """
    del no_progress
    from testbed.containers import leftovers
    from testbed.containers.cgroups import detect

    removed = leftovers.down(detect(), live=everything)
    notes = (f"{len(removed)} removed." if removed else "Nothing was left over.",)
    emit(Result(_RUNS, _rows(removed), notes=notes), form)


def _rows(found: Sequence[Run]) -> tuple[Record, ...]:
    return tuple(
        {
            "run": each.name,
            "state": "live" if each.alive else "left over",
            "process": each.pid,
            "groups": each.groups,
            "processes": each.processes,
            "networks": each.networks,
            "containers": each.containers,
            "attached": each.attached,
            "folders": each.folders,
        }
        for each in found
    )
