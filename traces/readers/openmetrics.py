"""Reads OpenMetrics text with time stamps, and Prometheus' own text form.

Source: OpenMetrics 1.0 (IETF draft-richih-opsawg-openmetrics-00, section "ABNF"); prometheus.io, "Exposition
formats". For: what `promtool tsdb create-blocks-from openmetrics` takes, `promtool tsdb dump` gives, and
VictoriaMetrics exports. Not for: a scrape, which has no times.

A text that ends with `# EOF` is OpenMetrics, whose times are seconds. In any other they are milliseconds.
"""

from __future__ import annotations

import math
import re
from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traces.prometheus import files
from traces.prometheus.history import HOLD_S, ClusterHistory
from traces.prometheus.series import NAME, Series, series_of
from traces.readers.table import MOST_FILE_BYTES, MOST_LINE_BYTES
from traces.schema import MOST_READ_CELLS, Floats
from twinbed import TraceError
from twinbed.files import as_text, open_regular

MOST_SERIES = 200_000
"""Most series of a file."""

MOST_SAMPLES = 50_000_000
"""Most samples of a file: 0.8 GB of memory."""

_SAMPLE = re.compile(
    rb'(?P<name>[A-Za-z_:][\w:]*)?[ \t]*(?:\{(?P<labels>(?:[^"{}]|"(?:[^"\\\n]|\\.)*")*)\})?'
    rb"[ \t]+(?P<value>[^\s#]+)(?:[ \t]+(?P<time>[^\s#]+))?(?:[ \t]+#.*)?\s*"
)
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_HEAD = re.compile(rb'\s*(?:#\s*(?:HELP|TYPE|UNIT|EOF)\b|(?:[A-Za-z_:][\w:]*)?\{[A-Za-z_]\w*\s*=\s*")')


def recognises(head: bytes) -> bool:
    """Return whether a file that begins like this may be such a text."""
    return _HEAD.match(head) is not None


def history(
    path: Path,
    step_s: float | None = None,
    replica_label: str | None = None,
    hold_s: float = HOLD_S,
    max_cells: int = MOST_READ_CELLS,
) -> ClusterHistory:
    """Return the history in such a text.

    step_s: length of an interval, None = the most frequent distance of samples; replica_label, hold_s: as in
    traces.readers.query_range. Raises TraceError, which names the line.
    """
    return files.history(path, _series(path), max_cells, step_s, replica_label, hold_s)


def _series(path: Path) -> list[Series]:
    numbers: dict[bytes, int] = {}
    times, values = array("d"), array("d")
    owner = array("i")
    is_open = False
    with open_regular(path, MOST_FILE_BYTES, TraceError) as file:
        number = 0
        while line := file.readline(MOST_LINE_BYTES + 1):
            number += 1
            if len(line) > MOST_LINE_BYTES:
                raise TraceError(f"{path}: line {number}: longer than {MOST_LINE_BYTES} bytes")
            if line.startswith(b"#") or not line.strip():
                is_open = line.strip() == b"# EOF"
                continue
            if is_open:
                raise TraceError(f"{path}: line {number}: text after '# EOF'")
            name, value, time = _sample(path, number, line)
            place = numbers.setdefault(name, len(numbers))
            if len(numbers) > MOST_SERIES or len(values) == MOST_SAMPLES:
                raise TraceError(
                    f"{path}: line {number}: more than {MOST_SERIES} series or {MOST_SAMPLES} samples"
                )
            owner.append(place)
            times.append(time)
            values.append(value)
    if not numbers:
        raise TraceError(f'{path}: no samples, expected lines such as name{{label="text"}} value time')
    return _grouped(path, numbers, np.frombuffer(owner, np.int32), times, values, 1.0 if is_open else 1e-3)


def _sample(path: Path, number: int, line: bytes) -> tuple[bytes, float, float]:
    """Return (name and labels as they stand, value, time) of a line."""
    match = _SAMPLE.fullmatch(line)
    if match is None:
        raise TraceError(f'{path}: line {number}: expected name{{label="text"}} value time')
    if match["time"] is None:
        raise TraceError(
            f"{path}: line {number}: a sample without a time; a single scrape tells of one moment only"
        )
    try:
        value, time = float(match["value"]), float(match["time"])
    except ValueError:
        raise TraceError(f"{path}: line {number}: the value or the time is not a number") from None
    if not math.isfinite(time):
        raise TraceError(f"{path}: line {number}: the time is not finite")
    return line[: match.start("value")].strip(), value, time


def _grouped(
    path: Path,
    numbers: dict[bytes, int],
    owner: NDArray[np.int32],
    times: array[float],
    values: array[float],
    unit_s: float,
) -> list[Series]:
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(len(numbers) + 1))
    times_s, all_values = np.frombuffer(times) * unit_s, np.frombuffer(values)
    result = []
    for text, number in numbers.items():
        rows = order[ends[number] : ends[number + 1]]
        own_s, own = _in_order(times_s[rows], all_values[rows])
        result.append(series_of(str(path), labels_of(path, as_text(text, str(path), TraceError)), own_s, own))
    return result


def _in_order(times_s: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return the samples by time; of two at the same time the later line counts."""
    if (np.diff(times_s) > 0).all():
        return times_s, values
    order = np.argsort(times_s, kind="stable")
    last = np.flatnonzero(np.diff(times_s[order], append=np.inf) > 0)
    return times_s[order][last], values[order][last]


def labels_of(path: Path, text: str) -> dict[str, str]:
    """Return the labels of `name{label="text",…}`, the name among them."""
    name, _, inner = text.partition("{")
    inner = inner.rstrip().removesuffix("}")
    labels = {NAME: name.strip()} if name.strip() else {}
    place = 0
    while place < len(inner.rstrip()):
        match = _LABEL.match(inner, place)
        if match is None:
            raise TraceError(f'{path}: labels {text[:120]!r} are not label="text", …')
        if match[1] in labels:
            raise TraceError(f"{path}: label {match[1]} stands twice in {text[:120]!r}")
        labels[match[1]] = _ESCAPE.sub(lambda own: {"n": "\n"}.get(own[1], own[1]), match[2])
        place = match.end()
    return labels
