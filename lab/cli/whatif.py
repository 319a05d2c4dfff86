"""`twinbed whatif`: replays a trace under several policies and compares them.

For: the verb's options. Not for: the work, which lab.api does.
"""

from __future__ import annotations

from typing import Annotated

from lab.cli.options import (
    EngineOption,
    FillOption,
    Format,
    FormatOption,
    JobsOption,
    NoProgressOption,
    PriceOption,
    SeedOption,
    SetOption,
    StoreOption,
    TraceArgument,
    TraceFormatOption,
    TraceOptionOption,
    emit,
    option,
    positive,
    price_of,
    reader_options,
)

_DEFAULT = "escra,autopilot,vpa,static"


def whatif(
    trace: TraceArgument,
    policy: Annotated[
        list[str] | None,
        option(
            "NAME[:KEY=VALUE]…",
            "Policies, comma-separated or repeated: escra,static:factor=1.5, or your own, "
            f"'mine.py:Mine(alpha=0.3)'. Default: {_DEFAULT}.",
        ),
    ] = None,
    container: Annotated[list[str] | None, option("NAME", "Replay only this container. Repeatable.")] = None,
    start: Annotated[
        float | None, option("SECONDS", "Skip this time at the start of the trace.", min=0)
    ] = None,
    end: Annotated[
        float | None, option("SECONDS", "Replay up to this time of the trace.", callback=positive)
    ] = None,
    trace_format: TraceFormatOption = None,
    trace_option: TraceOptionOption = None,
    fill: FillOption = None,
    budget_factor: Annotated[
        float | None,
        option(
            "FACTOR",
            "Global limits as this factor times the sum of profiled peaks. Default: 1.5.",
            callback=positive,
        ),
    ] = None,
    price: PriceOption = None,
    name: Annotated[str | None, option("NAME", "Prefix of the run ids. Default: the trace's name.")] = None,
    seed: SeedOption = None,
    set_: SetOption = None,
    engine: EngineOption = "local",
    jobs: JobsOption = None,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Replay a trace under several policies and compare them.

    Every policy meets the same demand, global limits and random numbers. The runs are stored; see twinbed
    runs list.
    """
    from lab import api
    from twinbed.own import split

    chosen = [text for option in policy or [_DEFAULT] for text in split(option)]
    overrides = [] if budget_factor is None else [f"budget_factor={budget_factor!r}"]
    overrides += [
        f"price.{key}={'null' if value is None else value}" for key, value in price_of(price).items()
    ]
    overrides += [f"seeds={seed}"] if seed else []
    finished = api.whatif(
        trace,
        chosen,
        name=name,
        format=trace_format,
        options=dict(reader_options(trace_option, fill)) or None,
        containers=container or None,
        start_s=start,
        end_s=end,
        settings=[*overrides, *(set_ or [])],
        store=store,
        engine=engine,
        jobs=jobs,
        progress=not no_progress,
    )
    emit(finished.result, form)
