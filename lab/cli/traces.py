"""`twinbed traces`: lists recordings and formats, inspects a trace, converts one; `import` is in
traces_import.py.

For: the verbs. Not for: reading and checking (traces).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lab.cli import stdin, traces_import
from lab.cli.options import (
    FillOption,
    Format,
    FormatOption,
    NoProgressOption,
    TraceArgument,
    TraceFormatOption,
    TraceOptionOption,
    argument,
    emit,
    reader_options,
)
from lab.runs.formats import Column, Record, Result
from twinbed import TraceError
from twinbed.text import counted

if TYPE_CHECKING:
    from traces.schema import UsageTrace

app = typer.Typer(help="List, inspect, convert and import traces.", no_args_is_help=True)
app.add_typer(traces_import.app, name="import")

_MIB = 1 << 20
_SHOWN = 30
"""Number of containers in the table for people. JSON and CSV have all containers."""


@app.command("list")
def list_(form: FormatOption = Format.TABLE, _no_progress: NoProgressOption = False) -> None:
    """List the recordings that ship with twinbed and the formats that it reads."""
    from traces.load import FORMATS, load, shipped

    rows = [{"kind": "recording", "name": name, "about": _about(load(name))} for name in shipped()]
    rows += [{"kind": "format", "name": entry.name, "about": entry.description} for entry in FORMATS.values()]
    columns = (Column("kind", "Kind"), Column("name", "Name"), Column("about", "Description"))
    emit(Result(columns, tuple(rows)), form)


@app.command()
def inspect(
    trace: TraceArgument,
    trace_format: TraceFormatOption = None,
    trace_option: TraceOptionOption = None,
    fill: FillOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Show a trace's shape, its usage per container, and the changes made to it on reading."""
    loaded = _load(trace, trace_format, reader_options(trace_option, fill))
    rows = _usage(loaded)
    notes = list(loaded.notes)
    columns = _USAGE
    if form in (Format.TABLE, Format.MARKDOWN):
        # A value that all containers share is in a note above the table.
        columns = tuple(
            column
            for column in _USAGE
            if column.key not in ("app", "present_s") or len({row[column.key] for row in rows}) > 1
        )
    if columns is not _USAGE and len(rows) > _SHOWN:
        notes.insert(
            0, f"The {_SHOWN} of {len(rows):,} containers with the largest mean CPU; --format csv has all."
        )
        rows = sorted(rows, key=lambda row: -float(row["cpu_mean_cores"] or 0))[:_SHOWN]
    emit(Result(columns, tuple(rows), _facts(stdin.named(trace), loaded), notes=tuple(notes)), form)


@app.command()
def convert(
    trace: TraceArgument,
    out: Annotated[Path, argument("OUT", "File to write: .parquet (a twinbed trace) or .csv (long form).")],
    trace_format: TraceFormatOption = None,
    trace_option: TraceOptionOption = None,
    fill: FillOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Convert a trace of any known format. The file is written whole or not at all.

    If the source tells owners and settings in force, .parquet gets them in a second file beside it.
    """
    if out.suffix not in (".parquet", ".csv"):
        raise TraceError(
            f"{out}: a trace is written as .parquet or .csv; give the file one of these suffixes"
        )
    from lab.runs.files import check_place
    from traces.load import load_history

    check_place(out, inputs=[trace])
    history = load_history(trace, format=trace_format, **reader_options(trace_option, fill))
    loaded, notes = history.trace, list[str]()
    owned = any(owner.pod for owner in history.owners)
    if out.suffix == ".csv":
        from lab.containers.input.trace_csv import write_long
        from twinbed.writing import write_whole

        write_whole(out, lambda file: write_long(loaded, file))
        lost = "metadata, notes, owners and settings" if owned else "metadata and notes"
        notes.append(f"CSV has no place for the trace's {lost}; .parquet keeps them.")
    elif owned:
        from traces.prometheus import kept

        kept.write(history, out)
        notes.append(f"Owners, settings and events are in {kept.beside(out)}.")
    else:
        from traces import parquet
        from traces.prometheus.kept import beside

        parquet.write(loaded, out)
        beside(out).unlink(missing_ok=True)  # It would tell settings of an older trace.
    columns = (Column("trace", "Trace"), Column("about", "Description"), Column("bytes", "Size", "bytes"))
    row: Record = {"trace": str(out), "about": _about(loaded), "bytes": out.stat().st_size}
    emit(Result(columns, (row,), notes=tuple(notes)), form)


_USAGE = (
    Column("container", "Container"),
    Column("app", "App"),
    Column("present_s", "Present", "s", 1),
    *(Column(f"cpu_{key}_cores", f"CPU {key}", "cores", 3) for key in ("mean", "p50", "p99", "max")),
    *(Column(f"memory_{key}_mib", f"Mem {key}", "MiB", 1) for key in ("mean", "p50", "p99", "max")),
)


def _load(source: str, trace_format: str | None, options: dict[str, Any]) -> UsageTrace:
    from traces.load import load

    return load(source, format=trace_format, **options)


def _usage(trace: UsageTrace) -> list[dict[str, str | float | None]]:
    """Return for each container the time for which it is present, and mean, quantiles and maximum of its use
    in that time."""
    import numpy as np

    rows = []
    memory_known = np.asarray(trace.memory_bytes.any(axis=0))
    for column, name in enumerate(trace.containers):
        present = trace.present[:, column]
        row: dict[str, str | float | None] = {
            "container": name,
            "app": trace.apps[column],
            "present_s": float(present.sum() * trace.interval_s),
        }
        for key, values, known in (
            ("cpu_{}_cores", trace.cpu_cores[present, column], True),
            ("memory_{}_mib", trace.memory_bytes[present, column] / _MIB, bool(memory_known[column])),
        ):
            figures: list[float | None] = [None] * 4
            if present.any() and known:
                figures = [float(values.mean()), *np.quantile(values, [0.5, 0.99, 1.0]).tolist()]
            row |= zip(map(key.format, ("mean", "p50", "p99", "max")), figures, strict=True)
        rows.append(row)
    return rows


def _facts(source: str, trace: UsageTrace) -> Record:
    carried = ["CPU"]
    carried += ["memory"] if trace.memory_bytes.any() else []
    carried += ["network"] if trace.rx_bytes is not None or trace.tx_bytes is not None else []
    carried += ["throttled time"] if trace.throttled_s is not None else []
    together = trace.cpu_cores.sum(axis=1)
    return {
        "trace": source,
        "shape": _about(trace),
        "has": ", ".join(carried),
        "all together": f"{together.mean():,.3f} cores mean, {together.max():,.3f} cores peak",
        **{key: stdin.named(value) for key, value in trace.metadata.items() if len(value) <= 200},
    }


def _about(trace: UsageTrace) -> str:
    apps = len(set(trace.apps))
    tenants = f" of {apps} apps" if apps > 1 else ""
    intervals = counted(len(trace.present), "interval")
    length = f"{intervals} of {trace.interval_s:g} s ({trace.duration_s:,g} s)"
    return f"{counted(len(trace.containers), 'container')}{tenants}, {length}"
