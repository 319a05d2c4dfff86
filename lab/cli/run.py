"""`twinbed run`: a scenario file, its policies and seeds, on the twin.

For: the verb's options; lab.runner does the work, lab.compare the table.
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
from twinbed import BackendError


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
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Run a scenario: every policy with every seed and every value that varies, then the comparison."""
    if backend is Backend.TESTBED:
        raise BackendError(
            "--backend testbed: scenarios cannot be run on the testbed in this version; use --backend twin"
        )
    from lab.cli.progress import Bar
    from lab.compare import as_result
    from lab.runner import run_scenario
    from lab.scenario import expand, load, with_overrides

    overrides = [f"seeds={seed}"] if seed else []
    question = with_overrides(load(scenario), [*overrides, *(set_ or [])])
    with Bar(len(expand(question)), wanted=not no_progress) as bar:
        finished = run_scenario(question, open_store(store), progress=bar, jobs=jobs)
    emit(as_result(finished), form)
