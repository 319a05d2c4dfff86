"""`twinbed run`: a scenario file, its policies and seeds, on the twin or for real.

For: the verb's options; lab.runs.runner and lab.containers.real.backend do the work, lab.runs.compare the
table.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lab.cli.options import (
    Format,
    FormatOption,
    NoProgressOption,
    SeedOption,
    SetOption,
    StoreOption,
    emit,
    open_store,
)
from twinbed import ScenarioError


class Backend(StrEnum):
    """What carries a scenario out."""

    TWIN = "twin"
    TESTBED = "testbed"


def run(
    scenario: Annotated[Path, typer.Argument(help="A scenario file (YAML); see docs/reference/scenario.md.")],
    backend: Annotated[
        Backend,
        typer.Option(
            "--backend", metavar="|".join(Backend), help="Virtual time (twin) or this machine (testbed)."
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
            help="Processes at work at once, where there are several seeds or values that vary. Default: as "
            "many as there are CPUs.",
            show_default=False,
        ),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat",
            metavar="N",
            min=0,
            help="On the testbed, where equal runs differ: which of them this is. Part of the run's id.",
        ),
    ] = 0,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Run a scenario: every policy with every seed and every value that varies, then the comparison.

    On the testbed real containers run it on this machine, one run after another; that needs root and cgroups.
    """
    from lab.ask.scenario import expand, load, with_overrides
    from lab.cli.progress import Bar
    from lab.runs.compare import as_result

    overrides = [f"seeds={seed}"] if seed else []
    question = with_overrides(load(scenario), [*overrides, *(set_ or [])])
    target = open_store(store)
    with Bar(len(expand(question)), wanted=not no_progress) as bar:
        if backend is Backend.TESTBED:
            from lab.containers.real.backend import run_scenario as carry_out

            finished = carry_out(question, target, repeats=(repeat,), progress=bar)
        elif repeat:
            raise ScenarioError(
                "--repeat: equal runs of the twin are equal; give --backend testbed or --seed"
            )
        else:
            from lab.runs.runner import run_scenario

            finished = run_scenario(question, target, progress=bar, jobs=jobs)
    emit(as_result(finished), form)
