"""What was measured of a machine, as a versioned TOML file, and the twin's `Machine` made from it.

For: reading and checking a calibration. Not for: measuring one. The file names the kernel, the CPU
and the date, and each value its unit and its source; calibration_default.toml is the one that ships.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date
from math import isfinite
from pathlib import Path
from typing import Any

from twin.containers.model import Machine
from twinbed import ScenarioError

SCHEMA = 1
DEFAULT_PATH = Path(__file__).with_name("calibration_default.toml")
_HEAD: dict[str, type] = {"schema": int, "name": str, "date": date, "kernel": str, "cpu": str, "values": dict}
_UNITS = {"telemetry_loss": "1"}
"""Units of the values that are not seconds."""
_VALUE: dict[str, type | tuple[type, ...]] = {"value": (int, float), "unit": str, "source": str}


@dataclass(frozen=True, slots=True)
class Value:
    """One calibrated quantity: its value in `unit`, and who measured or assumed it."""

    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """A machine's calibration. values: one per field of Machine; sha256: of the file's content."""

    name: str
    kernel: str
    cpu: str
    date: str
    values: Mapping[str, Value]
    sha256: str

    def machine(self, overrides: Mapping[str, float] | None = None) -> Machine:
        """The twin's machine, with single values replaced by `overrides` (field of Machine → value)."""
        return Machine(**({key: each.value for key, each in self.values.items()} | dict(overrides or {})))


def load_calibration(path: str | Path | None = None) -> Calibration:
    """Reads and checks a calibration file; None reads the default that ships.

    Raises ScenarioError naming the file and the key: unreadable, not TOML, a key missing or unknown, a
    value that is negative, not finite, a share above 1, or not in its unit (seconds; a share: 1).
    """
    where = DEFAULT_PATH if path is None else Path(path)
    try:
        content = where.read_bytes()
        table = tomllib.loads(content.decode())
    except OSError as error:
        raise ScenarioError(f"{where}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{where}: not a TOML file: {error}") from None
    _check_keys(f"{where}:", table, _HEAD)
    if table["schema"] != SCHEMA:
        raise ScenarioError(f"{where}: schema: {table['schema']} is not {SCHEMA}, the version known here")
    wanted = {spec.name for spec in fields(Machine)}
    _same_names(f"{where}: values", set(table["values"]), wanted)
    values = {
        key: _value(f"{where}: values.{key}", table["values"][key], _UNITS.get(key, "s"))
        for key in sorted(wanted)
    }
    return Calibration(
        name=table["name"],
        kernel=table["kernel"],
        cpu=table["cpu"],
        date=table["date"].isoformat(),
        values=values,
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _value(where: str, entry: Any, unit: str) -> Value:
    if not isinstance(entry, dict):
        raise ScenarioError(f"{where}: expected a table with value, unit and source")
    _check_keys(f"{where}:", entry, _VALUE)
    number = float(entry["value"])
    if not (isfinite(number) and number >= 0):
        raise ScenarioError(f"{where}.value: {number} is not a finite number of at least 0")
    if entry["unit"] != unit:
        raise ScenarioError(f"{where}.unit: {entry['unit']!r} is not {unit!r}")
    if unit == "1" and number > 1:
        raise ScenarioError(f"{where}.value: {number} is a share, which is at most 1")
    return Value(number, entry["unit"], entry["source"])


def _check_keys(where: str, table: dict[str, Any], wanted: Mapping[str, type | tuple[type, ...]]) -> None:
    _same_names(where.rstrip(":"), set(table), set(wanted))
    for key, kind in wanted.items():
        if not isinstance(table[key], kind) or isinstance(table[key], bool):
            raise ScenarioError(f"{where} {key}: {table[key]!r} is of the wrong type")


def _same_names(where: str, given: set[str], wanted: set[str]) -> None:
    for key in sorted(given - wanted):
        raise ScenarioError(f"{where}: unknown key {key!r}; known are {', '.join(sorted(wanted))}")
    for key in sorted(wanted - given):
        raise ScenarioError(f"{where}: {key} is missing")
