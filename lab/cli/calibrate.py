"""`twinbed calibrate`: measures this machine and writes a calibration file.

For: the verb's options and the table of measurements. Not for: measuring, which a kind does (lab.kinds).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lab.cli.options import Format, FormatOption, NoProgressOption, emit, flag, option
from lab.runs.formats import Column, Result
from twinbed import ScenarioError

if TYPE_CHECKING:
    from lab.ask.kind import Calibrated, Kind

_COLUMNS = (
    Column("section", "Section"), Column("key", "Key"), Column("value", "Value"), Column("unit", "Unit"),
    Column("n", "n", decimals=0), Column("p99", "p99"), Column("source", "Source"),
)  # fmt: skip


def calibrate(
    out: Annotated[Path, option("FILE.toml", "File to write the calibration to.")] = Path("calibration.toml"),
    name: Annotated[str, option("NAME", "Name of the calibration. Default: the file's.")] = "",
    quick: Annotated[bool, flag("--quick", "Measure for less than a minute instead of about four.")] = False,
    pillar: Annotated[
        str,
        option(
            "containers|fabric|cluster",
            "What to measure: containers, a fabric's failover in namespaces with FRR, or starts and "
            "speeds of training jobs.",
        ),
    ] = "containers",
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Measure this machine's delays and speeds, which the twin needs, and write them to a calibration file.

    Needs root and cgroups, and a machine with nothing else to do. A scenario uses the file by `calibration:`.
    """
    from lab.kinds import KINDS

    by_name = {kind.name: kind for kind in KINDS}
    if pillar not in by_name:
        known = [kind.name for kind in KINDS if kind.calibration_steps()]
        raise ScenarioError(f"--pillar {pillar}: known are {', '.join(known)}")
    made = measured(by_name[pillar], name or out.stem, out, quick=quick, wanted=not no_progress)
    emit(_table(made, out), form)


def measured(kind: Kind, name: str, path: Path, *, quick: bool, wanted: bool) -> Calibrated:
    """Measure this machine and write the calibration to `path`. wanted: show a progress bar."""
    from lab.cli.progress import Bar
    from lab.runs.files import check_place
    from twinbed.writing import write_bytes

    check_place(path)
    with Bar(len(kind.calibration_steps()), wanted=wanted) as bar:
        made = kind.calibrate(name, quick=quick, progress=bar)
    write_bytes(path, made.text.encode())
    return made


def _table(made: Calibrated, path: Path) -> Result:
    """Return one row per value, and the file that holds the values."""
    rows = tuple(
        {
            "section": section,
            "key": key,
            "value": float(f"{value.value:.4g}"),
            "unit": value.unit,
            "n": value.n,
            "p99": None if value.p99 is None else float(f"{value.p99:.4g}"),
            "source": value.source,
        }
        for section, values in made.sections.items()
        for key, value in values.items()
    )
    facts = {
        "calibration": f"{made.calibration.name} of {made.calibration.date}",
        "machine": f"{made.calibration.cpu}, {made.calibration.kernel}",
        "file": str(path),
    }
    return Result(_COLUMNS, rows, facts)
