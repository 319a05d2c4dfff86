"""`twinbed validate`: a scenario on both backends, and the twin's error in each quantity.

For: the verb's options; lab.containers.validate does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from lab.ask.scenario import Scenario

_DISAGREE = 1


def validate(
    scenario: Annotated[Path, typer.Argument(help="A scenario file; scenarios/validation/ has some.")],
    repeats: Annotated[
        int,
        typer.Option("--repeats", metavar="N", min=1, help="How often the testbed runs each policy."),
    ] = 3,
    seed: SeedOption = None,
    set_: SetOption = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Take runs that the store has already instead of making them anew.")
    ] = False,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Run a scenario on the twin and on this machine, and print the twin's error beside the machine's spread.

    A fabric's scenario: its fault on a real fabric, 20 times per repeat. Needs root and cgroups, or FRR.
    Exit code 1 when fewer comparisons agree than is aimed at.
    """
    from lab.ask.scenario import expand, load, with_overrides
    from lab.cli.progress import Bar
    from lab.containers.validate.both import validate as run_both
    from lab.containers.validate.present import result
    from lab.containers.validate.rule import TARGET, share

    overrides = [f"seeds={seed}"] if seed else []
    question = with_overrides(load(scenario), [*overrides, *(set_ or [])])
    if question.fabric is not None:
        _of_fabric(question, repeats, form, wanted=not no_progress)
        return
    with Bar(len(expand(question)) * (1 + repeats), wanted=not no_progress) as bar:
        cells = run_both(question, open_store(store), repeats=repeats, progress=bar, fresh=not keep)
    emit(result(cells), form)
    if share([each for cell in cells for each in cell.judgements]) < TARGET:
        raise typer.Exit(_DISAGREE)


def _of_fabric(question: Scenario, repeats: int, form: Format, *, wanted: bool) -> None:
    """Its faults on a real fabric; nothing is stored, and every comparison is to agree."""
    from lab.ask.scenario import expand
    from lab.cli.progress import Bar
    from lab.fabric.validate.both import validate as run_both
    from lab.fabric.validate.judge import RULE, result

    cells = {(each.variant, each.policy.text) for each in expand(question)}
    with Bar(len(cells), wanted=wanted) as bar:
        found = run_both(question, repeats, bar)
    emit(result(found, [RULE]), form)
    if not all(each.agrees for each in found):
        raise typer.Exit(_DISAGREE)
