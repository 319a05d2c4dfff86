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
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from traces.gzipped import pieces
from traces.prometheus import files
from traces.prometheus.history import HOLD_S, ClusterHistory
from traces.prometheus.series import NAME, Series, series_of
from traces.readers.table import MOST_LINE_BYTES, refuse_seconds
from traces.schema import MOST_READ_CELLS, Floats
from twinbed import TraceError
from twinbed.files import MIB, as_text

MOST_SERIES = 200_000
"""Most series of a file."""

MOST_SAMPLES = 50_000_000
"""Most samples of a file: 0.8 GB of memory."""

PIECE_BYTES = 4 * MIB
"""Bytes that are read at once."""

LEAST_RUN = 64
"""Least number of consecutive lines of one series that are read as a table."""

_FIRST_BLOCK = 16
"""Lines in the first comparison. Each further comparison has eight times as many, while all begin alike."""

_LONGEST_END = 64
"""Most bytes of a value and a time. All lines of a table are padded to the longest."""

_READ = pa.csv.ReadOptions(column_names=["value", "time"], use_threads=False)
_PARSE = pa.csv.ParseOptions(delimiter=" ", quote_char=False)
_CONVERT = pa.csv.ConvertOptions(
    column_types={"value": pa.float64(), "time": pa.float64()}, null_values=["NaN"]
)

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

    step_s: length of an interval; None: the most frequent distance of samples; replica_label, hold_s: as in
    traces.readers.query_range. Raises TraceError, which names the line.
    """
    return files.history(path, _series(path), max_cells, step_s, replica_label, hold_s)


def _series(path: Path) -> list[Series]:
    told: dict[bytes, tuple[array[float], array[float]]] = {}
    is_open, number, samples = False, 0, 0
    for text in _pieces(path):
        lines = _Lines(text)
        at = alone = 0
        while at < lines.count:
            line = lines[at]
            number, at = number + 1, at + 1
            if len(line) > MOST_LINE_BYTES:
                raise TraceError(f"{path}: line {number}: longer than {MOST_LINE_BYTES} bytes")
            if not line.strip():
                continue
            if line.startswith(b"#"):
                is_open = line.strip() == b"# EOF"
                continue
            if is_open:
                raise TraceError(f"{path}: line {number}: text after '# EOF'")
            begin, value, time = _sample(path, number, line)
            own = told.get(begin.strip()) or told.setdefault(begin.strip(), (array("d"), array("d")))
            own[0].append(time)
            own[1].append(value)
            samples += 1
            if at >= alone:
                # The following lines mostly belong to the same series.
                alone = at + lines.alike(at, begin)
                run = lines.numbers(at, alone, begin) if alone - at >= LEAST_RUN else None
                if run is not None:
                    own[0].frombytes(run[0].tobytes())
                    own[1].frombytes(run[1].tobytes())
                    number, at, samples = number + len(run[0]), alone, samples + len(run[0])
            if len(told) > MOST_SERIES or samples > MOST_SAMPLES:
                raise TraceError(
                    f"{path}: line {number}: more than {MOST_SERIES} series or {MOST_SAMPLES} samples"
                )
    if not told:
        raise TraceError(f'{path}: no samples, expected lines such as name{{label="text"}} value time')
    if not is_open:
        firsts = np.array([times[0] for times, _ in told.values()])
        refuse_seconds(path, firsts, "end the file with a line '# EOF'")
    return _finished(path, told, 1.0 if is_open else 1e-3)


def _pieces(path: Path) -> Iterator[bytes]:
    """Yields the text in pieces of whole lines. A line that is longer than a piece is cut."""
    rest = b""
    for piece in pieces(path, files.MOST_BYTES, PIECE_BYTES):
        text = rest + piece
        end = text.rfind(b"\n") + 1
        rest = text[end:]
        if end:
            yield text[:end]
        elif len(rest) > MOST_LINE_BYTES:
            break
    if rest:
        yield rest + b"\n"


class _Lines:
    """The lines of a text. count: their number."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
        self._starts = np.append(0, self._ends[:-1])
        self.count = len(self._ends)

    def __getitem__(self, at: int) -> bytes:
        return self._text[self._starts[at] : self._ends[at]]

    def alike(self, at: int, begin: bytes) -> int:
        """Return how many consecutive lines, from line `at` on, begin with `begin`."""
        if at == self.count or not self[at].startswith(begin):
            return 0
        length, block = 1, _FIRST_BLOCK
        while True:
            starts = self._starts[at + length : at + length + block]
            cut = self._cut(starts, len(begin))
            # One comparison of all bytes is much faster than one comparison per line.
            if not len(cut) or cut.tobytes() != begin * len(cut):
                return length + int((cut == begin).argmin() if len(cut) else 0)
            length, block = length + len(starts), block * 8

    def numbers(self, at: int, end: int, begin: bytes) -> tuple[Floats, Floats] | None:
        """Return (times, values) of the lines at:end, which begin with `begin`; None if they are not plain
        numbers."""
        starts = self._starts[at:end] + len(begin)
        sizes = self._ends[at:end] - starts
        width = int(sizes.max())
        if width > _LONGEST_END:
            return None
        cut = self._cut(starts, width).view(np.uint8).reshape(len(starts), width)
        text = cut[np.arange(width) < sizes[:, None]].tobytes()
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(text), read_options=_READ, parse_options=_PARSE, convert_options=_CONVERT
            )
        except pa.ArrowInvalid:
            return None
        times, values = table.column("time").to_numpy(), table.column("value").to_numpy()
        return (times, values) if len(times) == len(starts) and np.isfinite(times).all() else None

    def _cut(self, starts: NDArray[np.int64], width: int) -> NDArray[np.bytes_]:
        """Return `width` bytes of the text from each start on. Bytes beyond the end of the text are zero."""
        text = self._text
        if len(starts) and starts[-1] + width > len(text):
            text += bytes(width)
        return np.ndarray((len(text) - width + 1,), f"S{width}", text, strides=(1,))[starts]


def _sample(path: Path, number: int, line: bytes) -> tuple[bytes, float, float]:
    """Return (all before the value, value, time) of a line."""
    match = _SAMPLE.fullmatch(line)
    if match is None:
        raise TraceError(f'{path}: line {number}: expected name{{label="text"}} value time')
    if match["time"] is None:
        raise TraceError(
            f"{path}: line {number}: a sample without a time; a single scrape shows one moment only"
        )
    try:
        value, time = float(match["value"]), float(match["time"])
    except ValueError:
        raise TraceError(f"{path}: line {number}: the value or the time is not a number") from None
    if not math.isfinite(time):
        raise TraceError(f"{path}: line {number}: the time is not finite")
    return line[: match.start("value")], value, time


def _finished(
    path: Path, told: dict[bytes, tuple[array[float], array[float]]], unit_s: float
) -> list[Series]:
    """Return the series. Samples are removed from `told` on the way, so that they are not in memory twice."""
    result = []
    for text in list(told):
        times, values = told.pop(text)
        own_s, own = _in_order(np.frombuffer(times) * unit_s, np.frombuffer(values))
        result.append(series_of(str(path), labels_of(path, as_text(text, str(path), TraceError)), own_s, own))
    return result


def _in_order(times_s: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return the samples in order of time. Of two samples at the same time the later line counts."""
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
