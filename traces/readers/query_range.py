"""Read saved answers of Prometheus' /api/v1/query_range, one or several in one file.

Source: prometheus.io/docs/prometheus/latest/querying/api (range vectors). For: `curl … >> shop.json`, one
answer per metric. Not for: asking a server (lab.connect.prometheus).
"""

from __future__ import annotations

from pathlib import Path

from traces.gzipped import pieces
from traces.prometheus import files
from traces.prometheus.history import HOLD_S, ClusterHistory
from traces.prometheus.matrix import MatrixReader
from traces.schema import MOST_READ_CELLS
from twinbed import TraceError
from twinbed.files import MIB


def recognises(head: bytes) -> bool:
    """Return whether a file that begins like this may be such an answer."""
    return head.lstrip().startswith((b'{"', b"{\n", b"{ ", b"{\r"))


def history(
    path: Path,
    step_s: float | None = None,
    replica_label: str | None = None,
    hold_s: float = HOLD_S,
    max_cells: int = MOST_READ_CELLS,
) -> ClusterHistory:
    """Return the history in saved answers.

    step_s: length of an interval, s; None: the answers' step. replica_label: label by which replicas of one
    Prometheus differ; None: the usual names. hold_s: longest hole that is filled, s. max_cells: largest
    number of intervals × containers. Raises TraceError.
    """
    reader = MatrixReader(str(path))
    for piece in pieces(path, files.MOST_BYTES, MIB):
        reader.feed(piece)
    answers = reader.close()
    if any(answer.is_partial for answer in answers):
        raise TraceError(f"{path}: the server says that this answer is partial; save it again")
    series = [entry for answer in answers for entry in answer.series]
    return files.history(path, series, max_cells, step_s, replica_label, hold_s, repeats=True)
