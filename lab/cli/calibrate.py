"""`twinbed calibrate`: measures this machine and writes a calibration file.

For: the verb's options; lab.calibrating does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, emit


def calibrate(
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE.toml", help="Where the calibration is written."),
    ] = Path("calibration.toml"),
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What the calibration is called.")] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute instead of about four; fewer measurements.")
    ] = False,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Measure this machine for the twin: limits, control loop, throttling, service program.

    Needs root and cgroups, and a machine with nothing else to do. A scenario uses the file by `calibration:`.
    """
    from lab.calibrating.calibrate import HEAD, QUICK, STEPS, THOROUGH
    from lab.calibrating.calibrate import calibrate as measure
    from lab.calibrating.present import result
    from lab.calibration import write
    from lab.cli.progress import Bar
    from lab.files import write_whole

    with Bar(len(STEPS), wanted=not no_progress) as bar:
        found = measure(name or out.stem, QUICK if quick else THOROUGH, bar)
    write_whole(out, lambda file: file.write(write(found, HEAD).encode()))
    emit(result(found, out), form)
