"""`twinbed calibrate`: measures this machine and writes a calibration file.

For: the verb's options; lab.containers.calibrate does the work.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, emit


class Pillar(StrEnum):
    """What is measured."""

    CONTAINERS = "containers"
    FABRIC = "fabric"


def calibrate(
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE.toml", help="Where the calibration is written."),
    ] = Path("calibration.toml"),
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What the calibration is called.")] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute instead of about four; fewer measurements.")
    ] = False,
    pillar: Annotated[
        Pillar, typer.Option("--pillar", help="fabric: failover, in namespaces with FRR.")
    ] = Pillar.CONTAINERS,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Measure this machine for the twin: limits, control loop, throttling, service program; or failover.

    Needs root and cgroups, and a machine with nothing else to do. A scenario uses the file by `calibration:`.
    """
    if pillar is Pillar.FABRIC:
        _of_fabric(out, name, form, quick=quick, wanted=not no_progress)
        return
    from lab.cli.progress import Bar
    from lab.containers.calibrate.measure import HEAD, QUICK, STEPS, THOROUGH
    from lab.containers.calibrate.measure import calibrate as measure
    from lab.containers.calibrate.present import result
    from lab.containers.calibrate.values import write
    from lab.runs.files import write_whole

    with Bar(len(STEPS), wanted=not no_progress) as bar:
        found = measure(name or out.stem, QUICK if quick else THOROUGH, bar)
    write_whole(out, lambda file: file.write(write(found, HEAD).encode()))
    emit(result(found, out), form)


def _of_fabric(out: Path, name: str, form: Format, *, quick: bool, wanted: bool) -> None:
    """Faults on real fabrics, one setting after another."""
    from lab.cli.progress import Bar
    from lab.containers.calibrate.present import of_fabric
    from lab.fabric.calibrate.measure import HEAD, QUICK, STEPS, THOROUGH, measure
    from lab.fabric.calibrate.values import write
    from lab.runs.files import write_whole

    with Bar(len(STEPS), wanted=wanted) as bar:
        found = measure(name or out.stem, QUICK if quick else THOROUGH, bar)
    write_whole(out, lambda file: file.write(write(found, HEAD).encode()))
    emit(of_fabric(found, out), form)
