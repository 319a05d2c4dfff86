"""`twinbed traces import`: a cluster's history, a training job's trace, output of nccl-tests.

For: the verbs. Not for: options about a server (lab.cli.prometheus), the meaning of series
(traces.prometheus), nor the scenario of a traced job (lab.fabric.traced).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, argument, emit, option
from lab.cli.prometheus import DEFAULTS, Asked, asking, fetched
from lab.runs.formats import Column, Record, Result
from twinbed import TraceError

if TYPE_CHECKING:
    from traces.prometheus.history import ClusterHistory
    from traces.readers.job_trace import TrainingTrace

app = typer.Typer(help="Read traces from other people's systems.", no_args_is_help=True)

ScenarioOut = Annotated[Path, option("FILE.yaml", "Scenario to write.", "--out")]
IterationsOption = Annotated[
    int, option("N", "Iterations of the job in the scenario.", "--iterations", min=1)
]
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
    events, throttling) into a second file beside it. Either file is written whole or not at all."""
    from traces.prometheus import kept

    _check_out(out)
    history = fetched(url, asked, progress=not no_progress)
    kept.write(history, out)
    emit(Result(_COLUMNS, (_row(history, out),), notes=history.trace.notes), form)


@app.command()
def kineto(
    trace: Annotated[Path, argument("TRACE.json[.gz]", "Trace of one rank, exported by PyTorch's profiler.")],
    out: ScenarioOut,
    iterations: IterationsOption = 1000,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Read a data-parallel training job from a trace, and write a scenario that runs it on the twin's fabric.

    The trace is that of `torch.profiler`, with `record_shapes=True` and `step()` after each step.
    """
    from lab.runs.files import check_place
    from traces.readers.kineto import read

    check_place(out, inputs=[trace])
    _job(read(trace), out, iterations, form)


@app.command()
def chakra(
    trace: Annotated[
        Path, argument("TRACE.et[.gz]", "A Chakra execution trace of one rank, or chakra_jsonizer's JSON.")
    ],
    out: ScenarioOut,
    ranks: Annotated[
        int | None,
        option("N", "Number of ranks of the job. Default: the size of the trace's process groups.", min=1),
    ] = None,
    iterations: IterationsOption = 1000,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Read a data-parallel training job from a Chakra execution trace (MLCommons), and write a scenario.

    Without begin times, dependencies decide when a node begins. Without ProfilerStep, it is one iteration.
    """
    from lab.runs.files import check_place
    from traces.readers.chakra import read

    check_place(out, inputs=[trace])
    _job(read(trace, ranks), out, iterations, form)


def _job(job: TrainingTrace, out: Path, iterations: int, form: Format) -> None:
    """Write the job's scenario, and say what a step of it does."""
    from lab.fabric import traced
    from twinbed.writing import write_bytes

    text = traced.scenario(job, out.stem, iterations)
    write_bytes(out, text.encode())
    note = f"twinbed run {out} asks the twin. The sizes on links are those of rings."
    emit(replace(traced.table(job), notes=(note,)), form)


@app.command(name="nccl-tests")
def nccl_tests(
    printed: Annotated[Path, argument("OUTPUT.txt", "Output of all_reduce_perf, alltoall_perf …")],
    out: Annotated[Path, option("FILE.toml", "Calibration to write.")],
    operation: Annotated[str, option("NAME", "The operation, if the output does not name it.")] = "",
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Fit the latency of a step and the rate of a rank to measured collectives, as a fabric's calibration.

    A scenario uses the file by `calibration:`. All other values are those that ship.
    """
    from lab.fabric import traced
    from lab.runs.files import check_place
    from traces.readers.nccl_tests import read
    from twinbed.writing import write_bytes

    check_place(out, inputs=[printed])
    text, result = traced.calibration(read(printed), operation, out.stem)
    write_bytes(out, text.encode())
    emit(replace(result, notes=(f"Written to {out}.",)), form)


def _check_out(out: Path) -> None:
    """Raise before any request if the file could not be written."""
    from lab.runs.files import check_place

    if out.suffix != ".parquet":
        raise TraceError(f"{out}: a history is written as .parquet; give the file this suffix")
    check_place(out)


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
