"""What was measured of a machine, as a versioned TOML file, and what the twin takes from it.

For: reading, checking and writing a calibration of containers, and the parts that every calibration has. Not
for: measuring one (lab.containers.calibrate) or the fabric's (lab.fabric.calibrate.values). The file names
the kernel, the
CPU and the date, and each value its unit and its source, and of a distribution its size and percentiles;
calibration_default.toml is the one that ships.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from math import isfinite
from pathlib import Path
from typing import Any

from twin.containers.model import Machine
from twinbed import ScenarioError

SCHEMA = 4
DEFAULT_PATH = Path(__file__).with_name("calibration_default.toml")
_HEAD: dict[str, type] = {"schema": int, "name": str, "date": date, "kernel": str, "cpu": str}
_SECTIONS = ("values", "program", "measured")
_UNITS = {
    "telemetry_loss": "1",
    "dilation": "ratio",
    "base_bytes": "B",
    "loop_cores": "cores",
} | dict.fromkeys(("stolen", "imbalance"), "1")
"""Units of the values that are not seconds."""
_VALUE: dict[str, type | tuple[type, ...]] = {"value": (int, float), "unit": str, "source": str}
_DISTRIBUTION: dict[str, type | tuple[type, ...]] = {
    "n": int,
    "p50": (int, float),
    "p95": (int, float),
    "p99": (int, float),
}


@dataclass(frozen=True, slots=True)
class Value:
    """One calibrated quantity: its value in `unit`, and who measured or assumed it.

    n: how many measurements it is made of; p50, p95, p99: their percentiles, in `unit`; None where it is no
    distribution.
    """

    value: float
    unit: str
    source: str
    n: int | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """What the testbed's service program and its surroundings cost beyond the demand that is declared.

    visit_s: CPU of a visit whose container is awake; stage_s: CPU, in the caller, of each stage in which it
    makes calls, with what goes on after it; call_s: of each of its calls; dilation: CPU used per CPU second
    declared; wake_s, wake_tau_s: CPU of waking up, as twin.containers.requests.model.ServiceGraph has it;
    network_s: a call's way to another process and back, without CPU; base_bytes: memory of the idle process;
    loop_cores: CPU of the control loop; client_request_s: of the load generator, per request; client_s: a
    client's request's way to the first process and back; stolen, imbalance: of the machine's CPUs, as
    twin.containers.requests.model.RequestWorkload has them.
    """

    visit_s: float
    stage_s: float
    call_s: float
    dilation: float
    wake_s: float
    wake_tau_s: float
    network_s: float
    base_bytes: float
    loop_cores: float
    client_request_s: float
    client_s: float
    stolen: float
    imbalance: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """A machine's calibration. values: one per field of Machine; program: one per field of Program;
    measured: what else was measured, which the twin's physics does not take; sha256: of the file's content.
    """

    name: str
    kernel: str
    cpu: str
    date: str
    values: Mapping[str, Value]
    sha256: str
    program: Mapping[str, Value] = field(default_factory=dict)
    measured: Mapping[str, Value] = field(default_factory=dict)

    def machine(self, overrides: Mapping[str, float] | None = None) -> Machine:
        """The twin's machine, with single values replaced by `overrides` (field of Machine → value)."""
        return Machine(**({key: each.value for key, each in self.values.items()} | dict(overrides or {})))

    def costs(self) -> Program:
        """What the service program costs."""
        return Program(**{key: each.value for key, each in self.program.items()})


def load_calibration(path: str | Path | None = None) -> Calibration:
    """Reads and checks a calibration file; None reads the default that ships.

    Raises ScenarioError naming the file and the key: unreadable, not TOML, a key missing or unknown, a
    value that is negative, not finite, a share above 1, or not in its unit (that of its field; `measured`
    may have any).
    """
    where = DEFAULT_PATH if path is None else Path(path)
    cure = "`twinbed calibrate --out FILE` makes such a file"
    table, sha256 = read_table(where, SCHEMA, _SECTIONS, cure)
    return Calibration(
        name=table["name"],
        kernel=table["kernel"],
        cpu=table["cpu"],
        date=table["date"].isoformat(),
        values=_fields(where, "values", table, Machine),
        sha256=sha256,
        program=_fields(where, "program", table, Program),
        measured={
            key: read_value(f"{where}: measured.{key}", entry, None)
            for key, entry in table["measured"].items()
        },
    )


def read_table(where: Path, schema: int, sections: Sequence[str], cure: str) -> tuple[dict[str, Any], str]:
    """A calibration file's head and `sections` (tables, all of them there), and its content's SHA-256.

    cure: what to do about another schema. Raises ScenarioError as `load_calibration`.
    """
    try:
        content = where.read_bytes()
        table = tomllib.loads(content.decode())
    except OSError as error:
        raise ScenarioError(f"{where}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{where}: not a TOML file: {error}") from None
    _check_keys(f"{where}:", table, _HEAD | dict.fromkeys(sections, dict))
    if table["schema"] != schema:
        raise ScenarioError(
            f"{where}: schema: {table['schema']} is not {schema}, the version known here; {cure}"
        )
    return table, hashlib.sha256(content).hexdigest()


def write(calibration: Calibration, head: str = "") -> str:
    """The calibration as the text of such a file, `head` as a comment before it; sha256 is not in it."""
    sections = {section: getattr(calibration, section) for section in _SECTIONS}
    return write_table(calibration, SCHEMA, sections, head)


def write_table(
    calibration: Calibration, schema: int, sections: Mapping[str, Mapping[str, Value]], head: str
) -> str:
    """The text that `read_table` reads: what every calibration has, and its sections' values."""
    lines = [f"# {line}".rstrip() for line in head.splitlines()]
    lines += [f"schema = {schema}", f"name = {_text(calibration.name)}", f"date = {calibration.date}"]
    lines += [f"kernel = {_text(calibration.kernel)}", f"cpu = {_text(calibration.cpu)}"]
    for section, entries in sections.items():
        lines += [] if entries else ["", f"[{section}]"]
        for key, each in entries.items():
            lines += ["", f"[{section}.{key}]", *_written(each)]
    return "\n".join(lines) + "\n"


def _written(entry: Value) -> Iterator[str]:
    yield f"value = {_number(entry.value)}"
    yield f"unit = {_text(entry.unit)}"
    yield f"source = {_text(entry.source)}"
    for key in _DISTRIBUTION:
        if (number := getattr(entry, key)) is not None:
            yield f"{key} = {_number(number)}"


def _number(value: float) -> str:
    """Six digits: more than any of it is known to."""
    return str(value) if isinstance(value, int) else repr(float(f"{value:.6g}"))


def _text(value: str) -> str:
    # JSON's strings are TOML's basic strings, but for DEL, which TOML wants escaped too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _fields(where: Path, section: str, table: dict[str, Any], kind: type[Any]) -> dict[str, Value]:
    """One value per field of the dataclass `kind`, in its unit."""
    units = {spec.name: _UNITS.get(spec.name, "s") for spec in fields(kind)}
    return read_values(f"{where}: {section}", table[section], units)


def read_values(where: str, entries: Mapping[str, Any], units: Mapping[str, str]) -> dict[str, Value]:
    """One value per key of `units`, in its unit, in their order; ScenarioError that begins with `where`."""
    _same_names(where, set(entries), set(units))
    return {key: read_value(f"{where}.{key}", entries[key], unit) for key, unit in units.items()}


def read_value(where: str, entry: Any, unit: str | None) -> Value:
    """One value; unit: the one that it must have; None = any. ScenarioError that begins with `where`."""
    if not isinstance(entry, dict):
        raise ScenarioError(f"{where}: expected a table with value, unit and source")
    spread = {key: kind for key, kind in _DISTRIBUTION.items() if key in entry}
    _check_keys(f"{where}:", entry, _VALUE | spread)
    for key in ("value", *spread):
        if not (isfinite(entry[key]) and entry[key] >= 0):
            raise ScenarioError(f"{where}.{key}: {entry[key]} is not a finite number of at least 0")
    if unit is not None and entry["unit"] != unit:
        raise ScenarioError(f"{where}.unit: {entry['unit']!r} is not {unit!r}")
    if entry["unit"] == "1" and entry["value"] > 1:
        raise ScenarioError(f"{where}.value: {entry['value']} is a share, which is at most 1")
    percentiles = {key: float(entry[key]) for key in spread if key != "n"}
    return Value(float(entry["value"]), entry["unit"], entry["source"], entry.get("n"), **percentiles)


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
