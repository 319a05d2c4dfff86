"""Reads the answers of /api/v1/query_range piece by piece, without keeping their text.

For: the client and saved files. Not for: the meaning of series (history.py).

Nearly all of an answer is `"values":[[1700000000,"0.25"],…]`. These lists are cut out of the text as it
arrives and read as CSV by Arrow. The rest of the text is small and is read as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from traces.prometheus.series import Series, series_of
from traces.schema import Floats
from twinbed import TraceError
from twinbed.files import MIB
from twinbed.text import printable

MOST_SKELETON_BYTES = 64 * MIB
"""Most bytes of an answer without its values: some 100,000 series."""

MOST_SERIES_BYTES = 256 * MIB
"""Most bytes of one series: some ten million samples."""

MOST_SAMPLES = 100_000_000
"""Most samples of a file: 1.6 GB of memory."""

_BEGIN = re.compile(rb'"values"\s*:\s*\[')
_CLOSED, _BLANK_CLOSED = b"]]", re.compile(rb"\]\s+\]")
_EMPTY = re.compile(rb"\s*\]")
_LONGEST_BEGIN = 64
"""Bytes that are kept unread, because the begin of a list may be cut by the end of a piece."""

_READ = pa.csv.ReadOptions(column_names=["time_s", "value"], use_threads=False)
_CONVERT = pa.csv.ConvertOptions(
    column_types={"time_s": pa.float64(), "value": pa.float64()},
    null_values=["NaN", "+Inf", "-Inf"],
    strings_can_be_null=True,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. warnings: the server's warnings; is_partial: whether the server reports missing data."""

    series: list[Series]
    warnings: tuple[str, ...]
    is_partial: bool


class MatrixReader:
    """Takes the pieces of a text with `feed` and returns its answers with `close`.

    source: path or URL, with which messages begin. metric: name of all series of the answers; "": each series
    has its own name.
    """

    def __init__(self, source: str, metric: str = "") -> None:
        self._source, self._metric = source, metric
        self._pending = bytearray()
        self._scanned = 0
        self._inside = False
        self._skeleton: list[bytes] = []
        self._skeleton_bytes = self._samples = 0
        self._lists: list[tuple[Floats, Floats]] = []

    def feed(self, piece: bytes) -> None:
        """Take the next piece of the text. Raises TraceError for values that are not numbers."""
        self._pending += piece
        while self._take_list() if self._inside else self._take_skeleton():
            pass

    def close(self) -> list[Answer]:
        """Return the answers, one for each JSON text. Raise TraceError if one is cut or contains an error."""
        if self._inside:
            raise self._cut()
        self._keep(bytes(self._pending))
        try:
            text = b"".join(self._skeleton).decode()
        except UnicodeDecodeError as error:
            raise TraceError(f"{self._source}: not UTF-8 text (byte {error.start})") from None
        answers = [self._answer(document) for document in self._documents(text)]
        if not answers:
            raise TraceError(f"{self._source}: the answer is empty, expected JSON of /api/v1/query_range")
        return answers

    def _take_skeleton(self) -> bool:
        match = _BEGIN.search(self._pending)
        if match is None:
            ready = len(self._pending) - _LONGEST_BEGIN
            if ready > 0:
                self._keep(bytes(self._pending[:ready]))
                del self._pending[:ready]
            return False
        self._keep(bytes(self._pending[: match.start()]) + b'"values":%d' % len(self._lists))
        del self._pending[: match.end()]
        self._inside, self._scanned = True, 0
        return True

    def _take_list(self) -> bool:
        end = self._end()
        if end is None:
            if len(self._pending) > MOST_SERIES_BYTES:
                raise TraceError(f"{self._source}: a series of more than {MOST_SERIES_BYTES // MIB} MiB")
            # Blanks may be between the two brackets, so a piece of the end is searched again.
            self._scanned = max(0, len(self._pending) - _LONGEST_BEGIN)
            return False
        self._lists.append(self._numbers(bytes(self._pending[:end])))
        self._samples += len(self._lists[-1][0])
        if self._samples > MOST_SAMPLES:
            raise TraceError(f"{self._source}: more than {MOST_SAMPLES} samples; save a part")
        del self._pending[:end]
        self._inside = False
        return True

    def _end(self) -> int | None:
        """Return the place after the list's last bracket, or None if it has not arrived."""
        empty = _EMPTY.match(self._pending)
        if empty is not None:
            return empty.end()
        place = self._pending.find(_CLOSED, self._scanned)
        stop = len(self._pending) if place < 0 else place
        # Only a text with blanks needs the slower search.
        if any(self._pending.find(blank, self._scanned, stop) >= 0 for blank in (b" ", b"\n")):
            match = _BLANK_CLOSED.search(self._pending, self._scanned, stop)
            if match is not None:
                return match.end()
        return None if place < 0 else place + len(_CLOSED)

    def _keep(self, text: bytes) -> None:
        self._skeleton_bytes += len(text)
        if self._skeleton_bytes > MOST_SKELETON_BYTES:
            raise TraceError(
                f"{self._source}: more than {MOST_SKELETON_BYTES // MIB} MiB besides values, "
                "which is no answer of /api/v1/query_range"
            )
        self._skeleton.append(text)

    def _numbers(self, text: bytes) -> tuple[Floats, Floats]:
        """Return (times, values) of `[time,"value"],…,[time,"value"]`."""
        lines = text.translate(None, b' \t\r\n["').replace(b"],", b"\n").rstrip(b"]")
        if not lines:
            return np.zeros(0), np.zeros(0)
        try:
            table = pa.csv.read_csv(pa.BufferReader(lines), read_options=_READ, convert_options=_CONVERT)
        except pa.ArrowInvalid:
            raise self._no_pairs(len(self._lists) + 1) from None
        if table.num_rows != lines.count(b"\n") + 1 or b"]" in lines:
            raise self._no_pairs(len(self._lists) + 1)
        times_s, values = (
            np.asarray(table.column(name).to_numpy(), np.float64) for name in ("time_s", "value")
        )
        return times_s, values

    def _documents(self, text: str) -> Iterator[Any]:
        decoder, place = json.JSONDecoder(), 0
        while True:
            while place < len(text) and text[place] in " \t\r\n":
                place += 1
            if place == len(text):
                return
            try:
                document, place = decoder.raw_decode(text, place)
            except RecursionError:
                raise TraceError(f"{self._source}: nested too deep for an answer of Prometheus") from None
            except ValueError as error:
                if getattr(error, "pos", 0) >= len(text.rstrip()):
                    raise self._cut() from None
                raise TraceError(f"{self._source}: not JSON ({printable(str(error)[:200])})") from None
            yield document

    def _answer(self, document: Any) -> Answer:
        if not isinstance(document, dict) or "status" not in document:
            raise TraceError(
                f"{self._source}: JSON, but not an answer of Prometheus (no 'status'); "
                "save the answer of /api/v1/query_range"
            )
        if document["status"] != "success":
            what = f"{document.get('errorType', 'error')}: {document.get('error', 'unknown')}"
            raise TraceError(f"{self._source}: the server's error is saved here ({printable(what[:300])})")
        data = document.get("data")
        kind = data.get("resultType") if isinstance(data, dict) else None
        result = data.get("result") if isinstance(data, dict) else None
        if kind != "matrix" or not isinstance(result, list):
            raise TraceError(
                f"{self._source}: a result of type {str(kind)[:40]!r}, expected 'matrix'; "
                "save the answer of /api/v1/query_range"
            )
        warnings = document.get("warnings")
        return Answer(
            [self._series(number, entry) for number, entry in enumerate(result, 1) if _has_values(entry)],
            tuple(printable(str(text)[:300]) for text in warnings) if isinstance(warnings, list) else (),
            document.get("isPartial") is True,
        )

    def _series(self, number: int, entry: dict[str, Any]) -> Series:
        labels, place = entry.get("metric"), entry["values"]
        if not isinstance(labels, dict) or not all(isinstance(text, str) for text in labels.values()):
            raise TraceError(f"{self._source}: the labels of series {number} are not text")
        if not isinstance(place, int) or not 0 <= place < len(self._lists):
            raise self._no_pairs(number)
        return series_of(self._source, labels, *self._lists[place], metric=self._metric)

    def _no_pairs(self, number: int) -> TraceError:
        return TraceError(f'{self._source}: the values of series {number} are not pairs [time, "value"]')

    def _cut(self) -> TraceError:
        if self._skeleton and self._skeleton[0].lstrip().startswith(b'{"metric"'):
            return TraceError(
                f"{self._source}: lines of VictoriaMetrics' /api/v1/export; "
                "save /api/v1/export/prometheus, or the answer of /api/v1/query_range"
            )
        return TraceError(f"{self._source}: the answer is cut short, its JSON does not end")


def _has_values(entry: Any) -> bool:
    """Return whether a series has plain values; native histograms have none."""
    return isinstance(entry, dict) and "values" in entry
