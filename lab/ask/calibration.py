"""A calibration file: measured or assumed values in TOML, each with its unit and its source.

For: reading, checking and writing the form that all pillars share. Not for: the values that a pillar needs
(lab.containers.calibrate.values, lab.fabric.calibrate.values), nor measuring them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tomlkit
from pydantic import AfterValidator, ConfigDict, Field, create_model

from lab.ask import guard
from lab.ask.problems import validated
from lab.ask.section import Section
from twinbed import BackendError, ScenarioError
from twinbed.files import as_text, read_user_bytes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_Number = Annotated[float, Field(ge=0, strict=True)]


@dataclass(frozen=True, slots=True)
class Value:
    """One calibrated quantity. Its limits are checked when a file is read.

    value: the quantity in `unit`; the median of a distribution; the first of a series.
    unit: the unit.
    source: person or paper that measured or assumed it.
    n: number of measurements; None if unknown.
    p50, p95, p99: percentiles in `unit`; None if unknown.
    series: the whole series in `unit`, if the quantity is a series.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    value: _Number
    unit: str
    source: str
    n: Annotated[int, Field(ge=0, strict=True)] | None = None
    p50: _Number | None = None
    p95: _Number | None = None
    p99: _Number | None = None
    series: Annotated[tuple[_Number, ...], Field(min_length=1)] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a series that begins with another value."""
        if self.series is not None and self.series[0] != self.value:
            raise ValueError(f"value: {self.value} is not the first of the series")


def distribution(values: ArrayLike, unit: str, source: str, least: float = -math.inf) -> Value:
    """Return the median as the value, with the number of values and their percentiles, each at least `least`.
    Raises BackendError for no values."""
    import numpy as np

    measured = np.asarray(values, np.float64)
    if measured.size == 0:
        raise BackendError(f"{source}: nothing was measured; calibrate on a quieter machine")
    p50, p95, p99 = np.maximum(np.percentile(measured, [50, 95, 99]), least).tolist()
    return Value(p50, unit, source, int(measured.size), p50, p95, p99)


Values = Mapping[str, Value]
_Units = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A machine's calibration.

    name: name of the file's calibration.
    kernel, cpu: the machine that was measured.
    date: date of the measurement, YYYY-MM-DD.
    values: the quantities by key.
    sha256: hash of the file, "" if not from a file.
    """

    name: str
    kernel: str
    cpu: str
    date: str
    values: Values
    sha256: str


class _Table(Section):
    # A strict model would refuse plain data for a Value, so the fields of Value are strict instead. The
    # models made from `units` have no source file with docstrings, and looking for one takes long.
    model_config = ConfigDict(strict=False, use_attribute_docstrings=False)


class _Head(_Table):
    name: str
    date: Annotated[date, Field(strict=True)]
    kernel: str
    cpu: str


def read(
    path: Path, schema: int, units: Mapping[str, Mapping[str, str] | None], cure: str
) -> tuple[dict[str, Any], dict[str, dict[str, Value]]]:
    """Return the file's head as arguments of Calibration, and its values by section and key, in the order
    of `units`.

    units: section → key → the unit that the value must have, or None for a section with free keys and units;
    cure: advice about a file of another schema version. Raises ScenarioError that names the
    file and the key if the file cannot be read, is not TOML, lacks a key or has an unknown one, or has a
    value that is negative, not finite, in another unit, or a share above 1.
    """
    content = read_user_bytes(path, guard.MOST_BYTES)
    data = guard.parse_toml(as_text(content, str(path)), str(path))
    version = data.pop("schema", None)
    if version != schema:
        raise ScenarioError(f"{path}: schema: {version} is not {schema}, the version known here; {cure}")
    wanted = tuple((name, keys if keys is None else tuple(keys.items())) for name, keys in units.items())
    table = validated(_file_type(wanted), data, str(path))
    values: dict[str, dict[str, Value]] = {
        name: dict(getattr(table, name))
        if keys is None
        else {key: getattr(getattr(table, name), key) for key in keys}
        for name, keys in units.items()
    }
    head = {
        "name": table.name,
        "kernel": table.kernel,
        "cpu": table.cpu,
        "date": table.date.isoformat(),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    return head, values


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a calibration file whose values have dotted keys, `section.key`.

    path: the file that ships. schema, units: as for `read`. pillar: `--pillar` that measures such values.
    """

    path: Path
    schema: int
    units: Mapping[str, Mapping[str, str] | None]
    pillar: str

    def load(self, path: str | Path | None = None) -> Calibration:
        """Return the calibration in a file; None reads the one that ships. Raises as `read`."""
        cure = f"`twinbed calibrate --pillar {self.pillar} --out FILE` makes such a file"
        head, held = read(self.path if path is None else Path(path), self.schema, self.units, cure)
        values = {f"{name}.{key}": value for name, entries in held.items() for key, value in entries.items()}
        return Calibration(**head, values=values)

    def sections(self, calibration: Calibration) -> dict[str, Values]:
        """Return the values as section → key → value."""
        named = [(*key.partition(".")[::2], value) for key, value in calibration.values.items()]
        return {name: {key: value for of, key, value in named if of == name} for name in self.units}

    def write(self, calibration: Calibration, head: str = "") -> str:
        """Return the text of a file with this calibration, which begins with the comment `head`."""
        return written(calibration, self.sections(calibration), self.path.read_text(encoding="utf-8"), head)


@cache
def _file_type(sections: tuple[tuple[str, _Units | None], ...]) -> Any:
    """Return the model of a file. It is cached, because making it takes longer than reading the file."""
    fields: dict[str, Any] = {name: (_section_type(name, units), ...) for name, units in sections}
    return create_model("Calibration", __base__=_Head, **fields)


def _section_type(name: str, units: _Units | None) -> Any:
    if units is None:
        return dict[str, _checked(None)]  # type: ignore[misc]
    fields: dict[str, Any] = {key: (_checked(unit), ...) for key, unit in units}
    return create_model(name, __base__=_Table, **fields)


def _checked(unit: str | None) -> Any:
    def check(entry: Value) -> Value:
        if unit is not None and entry.unit != unit:
            raise ValueError(f"unit: {entry.unit!r} is not {unit!r}")
        if entry.unit == "1" and entry.value > 1:
            raise ValueError(f"value: {entry.value} is a share, which is at most 1")
        return entry

    return Annotated[Value, AfterValidator(check)]


def written(calibration: Calibration, sections: Mapping[str, Values], template: str, head: str) -> str:
    """Return the text of a calibration file.

    template: the text of a file of the same pillar, usually the shipped one. The comments inside it are
    kept; the comment at its top is replaced by `head`. The calibration's sha256 is not written.
    """
    lines = template.splitlines(keepends=True)
    while lines and (lines[0].startswith("#") or not lines[0].strip()):
        del lines[0]
    document = tomlkit.parse("".join(lines))
    document["name"], document["date"] = calibration.name, date.fromisoformat(calibration.date)
    document["kernel"], document["cpu"] = calibration.kernel, calibration.cpu
    for section, values in sections.items():
        table: Any = document[section]
        for key in [key for key in table if key not in values]:
            del table[key]
        for key, value in values.items():
            if key not in table:
                table[key] = tomlkit.table()
            _update(table[key], value)
    comment = "".join(f"# {line}".rstrip() + "\n" for line in head.splitlines())
    return comment + tomlkit.dumps(document)


def _update(table: Any, value: Value) -> None:
    for key, entry in asdict(value).items():
        # Six digits are more than the precision of any of these values.
        rounded = float(f"{entry:.6g}") if isinstance(entry, float) else entry
        if isinstance(entry, tuple):
            rounded = [float(f"{number:.6g}") for number in entry]
        if rounded is None:
            table.pop(key, None)
        elif table.get(key) != rounded:
            table[key] = rounded
