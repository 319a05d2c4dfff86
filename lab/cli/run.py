"""`twinbed run`: a scenario file, its policies and seeds, on the twin or for real.

For: the verb's options. Not for: the work, which lab.runs.runner and the scenario's kind (lab.kinds) do.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from lab.cli.options import (
    Format,
    FormatOption,
    NoProgressOption,
    ScenarioArgument,
    SeedOption,
    SetOption,
    StoreOption,
    asked,
    emit,
    open_store,
)
from twinbed import ScenarioError


class Backend(StrEnum):
    """Where a scenario is run."""

    TWIN = "twin"
    TESTBED = "testbed"


def run(
    scenario: ScenarioArgument,
    backend: Annotated[
        Backend,
        typer.Option(
            "--backend",
            metavar="|".join(Backend),
            help="In virtual time (twin), or on this machine (testbed).",
        ),
    ] = Backend.TWIN,
    seed: SeedOption = None,
    set_: SetOption = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            metavar="N",
            min=1,
            help="Number of processes that run side by side if there are several seeds or values that vary. "
            "Default: the number of CPUs.",
            show_default=False,
        ),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat",
            metavar="N",
            min=0,
            help="On the testbed, equal runs differ: the number of this one, which is part of the run's id.",
        ),
    ] = 0,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Run a scenario with every policy, seed and value that varies, and compare the runs.

    On the testbed, real containers run it on this machine, one run after another. That needs root and
    cgroups.
    """
    from lab import kinds
    from lab.ask.scenario import expand
    from lab.cli.progress import Bar
    from lab.runs.compare import as_result

    question, target = asked(scenario, seed, set_), open_store(store)
    with Bar(len(expand(question)), wanted=not no_progress) as bar:
        if backend is Backend.TESTBED:
            finished = kinds.of(question).run_for_real(question, target, repeat, bar)
        elif repeat:
            raise ScenarioError(
                "--repeat: equal runs of the twin are equal; give --backend testbed or --seed"
            )
        else:
            from lab.runs.runner import run_scenario

            finished = run_scenario(question, target, progress=bar, jobs=jobs)
    emit(as_result(finished), form)
