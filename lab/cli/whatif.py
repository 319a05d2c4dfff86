"""`twinbed whatif`: replays a trace under several policies and compares them.

For: the verb's options. Not for: the work, which lab.runs.runner and lab.runs.compare do.
"""

from __future__ import annotations

from typing import Annotated

import typer

from lab.cli.options import (
    Format,
    FormatOption,
    NoProgressOption,
    SeedOption,
    SetOption,
    StoreOption,
    TraceArgument,
    TraceFormatOption,
    TraceOptionOption,
    assignments,
    emit,
    open_store,
)
from twinbed import ScenarioError

_DEFAULT = "escra,autopilot,vpa,static"


def whatif(
    trace: TraceArgument,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME[:KEY=VALUE]…",
            help=f"Policies, comma-separated or repeated: escra,static:factor=1.5. Default: {_DEFAULT}.",
            show_default=False,
        ),
    ] = None,
    container: Annotated[
        list[str] | None,
        typer.Option(
            "--container", metavar="NAME", help="Replay only this container. Repeatable.", show_default=False
        ),
    ] = None,
    start: Annotated[
        float | None,
        typer.Option("--start", metavar="SECONDS", min=0, help="Skip this much at the start of the trace."),
    ] = None,
    end: Annotated[
        float | None,
        typer.Option("--end", metavar="SECONDS", help="Stop this long after the start of the trace."),
    ] = None,
    trace_format: TraceFormatOption = None,
    trace_option: TraceOptionOption = None,
    budget_factor: Annotated[
        float | None,
        typer.Option(
            "--budget-factor",
            metavar="FACTOR",
            help="Global limits as this factor times the sum of profiled peaks. Default: 1.5.",
            show_default=False,
        ),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(
            "--price",
            metavar="CPU,MEMORY[,CURRENCY]",
            help="Price of a reserved core-hour and GiB-hour. Default: a public cloud's list price.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Beginning of the run ids. Default: the trace's name."),
    ] = None,
    seed: SeedOption = None,
    set_: SetOption = None,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Replay a trace under several policies and compare them.

    Every policy meets the same demand, global limits and random numbers. The runs are kept: twinbed runs
    list.
    """
    from lab.cli.progress import Bar
    from lab.containers.input.whatif import whatif_scenario
    from lab.runs.compare import as_result
    from lab.runs.runner import run_scenario

    chosen = [text.strip() for option in policy or [_DEFAULT] for text in option.split(",")]
    overrides = [] if budget_factor is None else [f"budget_factor={budget_factor!r}"]
    overrides += _price(price) + ([f"seeds={seed}"] if seed else [])
    scenario = whatif_scenario(
        trace,
        chosen,
        name=name,
        format=trace_format,
        options=dict(assignments(trace_option, "--trace-option")) or None,
        containers=container or None,
        start_s=start,
        end_s=end,
        overrides=[*overrides, *(set_ or [])],
    )
    with Bar(len(scenario.policies) * len(scenario.seeds), wanted=not no_progress) as bar:
        finished = run_scenario(scenario, open_store(store), progress=bar, jobs=1)
    emit(as_result(finished), form)


def _price(text: str | None) -> list[str]:
    """Return `--price` as assignments to the scenario's price."""
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",")]
    if len(parts) not in (2, 3) or not all(parts):
        raise ScenarioError(f"--price {text}: expected CPU,MEMORY[,CURRENCY], e.g. 0.03,0.004,EUR")
    keys = ("cpu_core_hour", "memory_gib_hour", "currency")
    values = [f"price.{key}={part}" for key, part in zip(keys, parts, strict=False)]
    return [*values, "price.source=given on the command line", "price.as_of=null"]
