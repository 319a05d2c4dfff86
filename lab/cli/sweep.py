"""`twinbed sweep`: a scenario at many points with many seeds, here or on many machines.

For: the verb's options. Not for: the work, which lab.api does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lab.cli.options import (
    EngineOption,
    Format,
    FormatOption,
    JobsOption,
    NoProgressOption,
    ScenarioArgument,
    SetOption,
    StoreOption,
    asked,
    emit,
    flag,
    option,
)

MetricOption = Annotated[
    list[str] | None,
    option(
        "METRIC",
        "A metric of the table and the charts. Repeatable. Default: --until's, and the first that differ.",
        "--metric",
    ),
]


def sweep(
    scenario: ScenarioArgument,
    vary: Annotated[
        list[str] | None,
        option(
            "KEY=VALUE,…",
            "Values of a key of the scenario, or of a policy's parameter (escra.kappa=0.5,1,2). "
            "Repeatable: every combination is run.",
        ),
    ] = None,
    points: Annotated[
        Path | None, option("CSV", "A file of points: keys in its header, one point per line.")
    ] = None,
    seeds: Annotated[
        str | None,
        option("SEEDS", "Seeds of every point: 0:20 (without 20) or 1,4,7. Default: those of the scenario."),
    ] = None,
    engine: EngineOption = "local",
    jobs: JobsOption = None,
    resume: Annotated[bool, flag("--resume", "Reuse runs in the store, and make the missing ones.")] = False,
    shard: Annotated[str, option("I/N", "Make only the I-th of N parts.")] = "1/1",
    until: Annotated[
        str | None,
        option(
            "RULE",
            "Make no further seeds of a point where the rule holds: 'ci(METRIC) < 5%' means that half "
            "the 95 % interval is below 5 % of the mean. It is judged from 5 seeds on, so give --seeds.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option("FILE", "Write the table of all runs: keys, metrics and seed, as .parquet or .csv."),
    ] = None,
    html: Annotated[Path | None, option("FILE", "Write a page with charts.")] = None,
    metric: MetricOption = None,
    set_: SetOption = None,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Run a scenario on the twin at many points with many seeds, and compare the means.

    A run that fails is tried three times, then listed; the exit code is then 1. Ctrl-C leaves a sweep that
    --resume can finish.
    """
    from lab import api, kinds
    from lab.runs.files import check_place
    from lab.sweep import result as results
    from lab.sweep.points import seeds as seeds_of
    from lab.sweep.rules import Until, metric_named
    from twinbed.writing import write_bytes

    question = asked(scenario, None, set_)
    kind = kinds.of(question)
    metrics = [metric_named(kind, text, f"--metric {text}") for text in metric or []]
    watched = [] if until is None else [metric_named(kind, Until.parse(until, kind).metric, "--until")]
    if out is not None:
        results.check_ending(out)
    check_place(out, html, inputs=[scenario, *([points] if points else [])])
    try:
        swept = api.sweep(
            question,
            vary or [],
            points=points,
            seeds=None if seeds is None else seeds_of(seeds),
            shard=shard,
            until=until,
            store=store,
            engine=engine,
            jobs=jobs,
            resume=resume,
            progress=not no_progress,
        ).swept
    except KeyboardInterrupt:
        typer.echo("twinbed: finished runs are kept; the same command with --resume continues", err=True)
        raise
    shown = results.chosen(swept, metrics, watched)
    if out is not None:
        results.write(swept, out)
    if html is not None:
        from lab.sweep.page import document

        write_bytes(html, document(swept, shown).encode())
    emit(results.result(swept, shown, watched), form)
    if len(swept.failures):
        raise typer.Exit(1)
