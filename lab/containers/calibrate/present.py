"""A calibration as a table.

For: `twinbed calibrate`. Not for: the file (lab.containers.calibrate.values.write).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lab.containers.calibrate.values import Calibration, Value
from lab.runs.formats import Column, Result

_COLUMNS = (
    Column("section", "Section"),
    Column("key", "Key"),
    Column("value", "Value"),
    Column("unit", "Unit"),
    Column("n", "n", decimals=0),
    Column("p99", "p99"),
    Column("source", "Source"),
)


def result(calibration: Calibration, path: Path) -> Result:
    """One line per value, and where they are kept."""
    values = {
        (section, key): each
        for section in ("values", "program", "measured")
        for key, each in getattr(calibration, section).items()
    }
    return _result(calibration, values, path)


def of_fabric(calibration: Calibration, path: Path) -> Result:
    """The same, of a fabric's."""
    values = {
        (section, key): each
        for name, each in calibration.values.items()
        for section, key in [name.split(".")]
    }
    return _result(calibration, values, path)


def _result(calibration: Calibration, values: Mapping[tuple[str, str], Value], path: Path) -> Result:
    rows = tuple(
        {
            "section": section,
            "key": key,
            "value": float(f"{each.value:.4g}"),
            "unit": each.unit,
            "n": each.n,
            "p99": None if each.p99 is None else float(f"{each.p99:.4g}"),
            "source": each.source,
        }
        for (section, key), each in values.items()
    )
    facts = {
        "calibration": f"{calibration.name} of {calibration.date}",
        "machine": f"{calibration.cpu}, {calibration.kernel}",
        "file": str(path),
    }
    return Result(_COLUMNS, rows, facts)
