"""`twinbed measurements`: the database of past runs for recommenders.

For: the group's options and tables. Not for: the database itself (lab.cloud.input.store).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, argument, emit, option
from lab.runs.formats import Column, Record, Result

app = typer.Typer(no_args_is_help=True, help="Import and list the past runs that recommenders learn from.")
_PathOption = Annotated[
    Path | None,
    option(
        "FILE.duckdb",
        "The database. Default: $TWINBED_MEASUREMENTS, else ~/.local/share/twinbed/measurements.duckdb.",
        "--measurements",
    ),
]
_COLUMNS = (
    Column("job", "job"),
    Column("runs", "runs"),
    Column("failed", "failed"),
    Column("configurations", "configurations"),
)

_IMPORTED = (
    Column("database", "Database"),
    Column("runs", "Runs", decimals=0),
    Column("added", "Added", decimals=0),
)


@app.command("import")
def import_(
    file: Annotated[Path, argument("FILE.csv", "One run per row.")],
    measurements: _PathOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Add the runs of a CSV file that the database has not yet, all or none.

    Columns: job, instance, workers, time_s, price_usd_h (of the whole cluster), vcpus and memory_gib (of one
    worker); optional: ok, batch, gpus, network_bps, cpu_speed, servers, server_instance, use_bps (bandwidth
    of the server's port that one worker uses alone), noise (noise scale of the gradients, samples), source
    (where the row comes from), parameter.NAME.
    """
    from lab.cloud.input.store import Measurements, read_csv

    database = Measurements(measurements)
    runs = read_csv(file)
    added = database.add_new(runs)
    row: Record = {"database": str(database.path), "runs": len(runs), "added": added}
    emit(Result(_IMPORTED, (row,)), form)


@app.command("list")
def list_(
    measurements: _PathOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """List the jobs that have runs."""
    from lab.cloud.input.store import Measurements

    database = Measurements(measurements)
    runs = database.runs()
    rows: list[Record] = []
    for job in sorted({run.job for run in runs}):
        mine = [run for run in runs if run.job == job]
        rows.append(
            {
                "job": job,
                "runs": len(mine),
                "failed": sum(not run.ok for run in mine),
                "configurations": len({run.key for run in mine}),
            }
        )
    emit(Result(_COLUMNS, tuple(rows), facts={"database": str(database.path)}), form)
