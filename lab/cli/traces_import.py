"""`twinbed traces import prometheus`: reads a cluster's history from a server into a trace file.

For: the verb. Not for: its options about the server (lab.cli.prometheus), nor what series mean
(traces.prometheus).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, argument, emit, option
from lab.cli.prometheus import DEFAULTS, Asked, asking, fetched
from lab.runs.formats import Column, Record, Result
from twinbed import BackendError, TraceError

if TYPE_CHECKING:
    from traces.prometheus.history import ClusterHistory

app = typer.Typer(help="Read traces from other people's systems.", no_args_is_help=True)

_COLUMNS = (
    Column("trace", "Trace"),
    Column("containers", "Containers", decimals=0),
    Column("workloads", "Workloads", decimals=0),
    Column("intervals", "Intervals", decimals=0),
    Column("interval_s", "Interval", "s"),
    Column("restarts", "Restarts", decimals=0),
    Column("oom_events", "OOM events", decimals=0),
    Column("without_cpu_limit", "Without CPU limit", decimals=0),
    Column("bytes", "Size", "bytes", decimals=0),
)


@app.callback()
def _group() -> None:
    """Read traces from other people's systems."""


@app.command()
@asking
def prometheus(
    url: Annotated[
        str, argument("URL", "Address of Prometheus, Thanos or VictoriaMetrics, e.g. http://localhost:9090.")
    ],
    out: Annotated[Path, option("FILE", "File to write (.parquet).")],
    asked: Asked = DEFAULTS,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Read a cluster's history: usage into FILE, and what was in force (requests, limits, restarts, OOM
    events, throttling) into a second file beside it. Both are written whole or not at all."""
    from traces.prometheus import kept

    _check_out(out)
    history = fetched(url, asked, progress=not no_progress)
    kept.write(history, out)
    emit(Result(_COLUMNS, (_row(history, out),), notes=history.trace.notes), form)


def _check_out(out: Path) -> None:
    """Raise before anything is asked if the file could not be written."""
    if out.suffix != ".parquet":
        raise TraceError(f"{out}: a history is written as .parquet; give the file this suffix")
    if not out.parent.is_dir():
        raise BackendError(f"{out}: cannot be written, there is no folder {out.parent}")


def _row(history: ClusterHistory, out: Path) -> Record:
    from traces.prometheus.kept import beside

    owners = history.owners
    return {
        "trace": str(out),
        "containers": len(owners),
        "workloads": len({(own.namespace, own.kind, own.workload) for own in owners}),
        "intervals": len(history.trace.present),
        "interval_s": history.trace.interval_s,
        "restarts": float(history.total("restarts").sum()),
        "oom_events": float(history.total("oom_events").sum()),
        "without_cpu_limit": int((history.in_force("cpu_limit_cores") == 0).sum()),
        "bytes": out.stat().st_size + beside(out).stat().st_size,
    }
