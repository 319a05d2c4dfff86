"""`twinbed validate`: a scenario on both backends, and the twin's error in each quantity.

For: the verb's options. Not for: measuring and judging, which are the work of the scenario's kind
(lab.kinds).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lab.cli.calibrate import measured
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
    flag,
    open_store,
    option,
)

_CALIBRATION = Path("calibration.toml")
_DISAGREE = 1
"""Exit code if the share of comparisons that agree is below the aim."""


def validate(
    scenario: ScenarioArgument,
    repeats: Annotated[int, option("N", "How often this machine runs each policy.", min=1)] = 3,
    seed: SeedOption = None,
    set_: SetOption = None,
    keep: Annotated[bool, flag("--keep", "Reuse runs in the store instead of making them again.")] = False,
    calibrate: Annotated[
        bool,
        flag(
            "--calibrate",
            "Measure this machine first, as `twinbed calibrate` does, and use ./calibration.toml.",
        ),
    ] = False,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Run a scenario on the twin and on this machine, and print the twin's error beside the machine's spread.

    For a scenario with a fabric, each repeat causes its fault 20 times on a real fabric. Needs root, and
    cgroups or FRR. The exit code is 1 if the share of comparisons that agree is below the aim.
    """
    from lab import kinds
    from lab.ask.scenario import with_overrides
    from lab.cli.progress import Bar

    question = asked(scenario, seed, set_)
    kind = kinds.of(question)
    if calibrate:
        measured(kind, _CALIBRATION.stem, _CALIBRATION, quick=False, wanted=not no_progress)
        question = with_overrides(question, [f"calibration={_CALIBRATION.resolve()}"])
    with Bar(kind.validation_steps(question, repeats), wanted=not no_progress) as bar:
        result, agreed = kind.validate(
            question, open_store(store), repeats=repeats, fresh=not keep, progress=bar
        )
    emit(result, form)
    if not agreed:
        raise typer.Exit(_DISAGREE)
