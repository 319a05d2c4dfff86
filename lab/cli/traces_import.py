"""`twinbed traces import prometheus`: reads a cluster's history from a server into a trace file.

For: the verb. Not for: asking the server (lab.connect.prometheus), nor what series mean (traces.prometheus).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, emit, usable
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
def prometheus(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="Address of Prometheus, Thanos or VictoriaMetrics, e.g. http://localhost:9090.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="File to write (.parquet).", show_default=False)
    ],
    selector: Annotated[
        str,
        typer.Option(
            "--selector",
            metavar="MATCHERS",
            help='Which containers, as in PromQL: namespace="shop",pod=~"web-.*". Default: all.',
            show_default=False,
        ),
    ] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="How far back to begin: 7d, 12h, 90m.")
    ] = "7d",
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="MOMENT",
            help="End of the history: 2024-05-01T10:00:00Z or seconds since 1970. Default: one step ago.",
            show_default=False,
        ),
    ] = None,
    step: Annotated[
        str,
        typer.Option("--step", metavar="TIME", help="Length of an interval; not below the scrape interval."),
    ] = "30s",
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="File with a bearer token.", show_default=False),
    ] = None,
    token_env: Annotated[
        str | None,
        typer.Option(
            "--token-env",
            metavar="NAME",
            help="Environment variable with a bearer token.",
            show_default=False,
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="NAME", help="User, for basic authentication.", show_default=False),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file", metavar="FILE", help="File with the user's password.", show_default=False
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(
            "--ca-file",
            metavar="FILE",
            help="Certificates (PEM) that sign the server's. Default: the system's.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="S",
            min=0.1,
            callback=usable,
            help="Longest wait for the next bytes of an answer.",
        ),
    ] = 60.0,
    replica_label: Annotated[
        list[str] | None,
        typer.Option(
            "--replica-label",
            metavar="NAME",
            help="Label by which replicas of one Prometheus differ. Repeatable. "
            "Default: prometheus_replica, replica, __replica__.",
            show_default=False,
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Read a cluster's history: usage into FILE, and what was in force (requests, limits, restarts, OOM
    events, throttling) into a second file beside it. Both are written whole or not at all."""
    from lab.ask.times import duration_s, moment_s
    from lab.cli.progress import Bar
    from lab.connect.http import Access, authorization
    from lab.connect.prometheus import Question, fetch
    from traces.prometheus import kept
    from traces.prometheus.series import REPLICA_LABELS

    _check_out(out)
    step_s = duration_s(step, "--step")
    end_s = time.time() - step_s if until is None else moment_s(until, "--until")
    question = Question(
        selector=selector,
        start_s=end_s - duration_s(since, "--since"),
        end_s=end_s,
        step_s=step_s,
        replica_labels=tuple(replica_label or REPLICA_LABELS),
    )
    access = Access(url, authorization(token_file, token_env, user, password_file), ca_file, timeout)
    with Bar(1, wanted=not no_progress, preparing="asking for the containers") as bar:
        history = fetch(access, question, lambda done: bar("reading", done))
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
