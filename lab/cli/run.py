"""`twinbed run`: a scenario file, its policies and seeds, on the twin or on this machine.

For: the verb's options. Not for: the work, which lab.api does.
"""

from __future__ import annotations

from typing import Annotated

from lab.cli.options import (
    Backend,
    EngineOption,
    Format,
    FormatOption,
    JobsOption,
    NoProgressOption,
    ScenarioArgument,
    SeedOption,
    SetOption,
    StoreOption,
    asked,
    emit,
    option,
)


def run(
    scenario: ScenarioArgument,
    backend: Annotated[
        Backend, option("|".join(Backend), "In virtual time (twin), or on this machine (testbed).")
    ] = Backend.TWIN,
    seed: SeedOption = None,
    set_: SetOption = None,
    jobs: JobsOption = None,
    engine: EngineOption = "local",
    repeat: Annotated[
        int,
        option(
            "N",
            "On the testbed, equal runs differ. This is the run's number; it is part of the run's id.",
            min=0,
        ),
    ] = 0,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Run a scenario with every policy, seed and varied value, and compare the runs.

    On the testbed, real containers run on this machine, one run after another. That needs root and cgroups.
    """
    from lab import api

    finished = api.run(
        asked(scenario, seed, set_),
        backend=backend.value,
        store=store,
        engine=engine,
        jobs=jobs,
        repeat=repeat,
        progress=not no_progress,
    )
    emit(finished.result, form)
