"""Read the output of nccl-tests: times of one collective by size.

For: a fabric's calibration (lab.fabric.traced). Not for: fitting. Source: NVIDIA/nccl-tests, src/common.cu
and doc/PERFORMANCE.md: a line per size with size, count, type, redop, root, and the time out of place, µs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinbed import TraceError
from twinbed.files import MIB, read_user_text

_RANK = re.compile(r"#\s+Rank\s+(\d+)\s")
_TEST = re.compile(r"#.*?\b(\w+)_perf\b")
_COLUMNS = 9


@dataclass(frozen=True, slots=True)
class NcclTimes:
    """Times of one collective by size, out of place.

    operation: its name in nccl-tests; "" if the output does not have it. ranks: number of ranks. size_bytes,
    duration_s: float64[n], sizes, B, and times, s.
    """

    operation: str
    ranks: int
    size_bytes: NDArray[np.float64]
    duration_s: NDArray[np.float64]


def read(path: Path) -> NcclTimes:
    """Return the times in an output. Raises TraceError that names file and line."""
    operation, ranks, rows = "", set(), []
    for number, line in enumerate(read_user_text(path, 16 * MIB, TraceError).splitlines(), 1):
        if line.startswith("#"):
            if rank := _RANK.match(line):
                if int(rank[1]) in ranks:
                    raise TraceError(
                        f"{path}: line {number}: a second run of nccl-tests begins; give one run to a file"
                    )
                ranks.add(int(rank[1]))
            operation = operation or ((test := _TEST.match(line)) and test[1]) or ""
            continue
        words = line.split()
        if len(words) < _COLUMNS or not words[0].isdigit():
            continue  # Schedulers and NCCL itself write lines between.
        try:
            size, time_us = float(words[0]), float(words[5])
        except ValueError:
            raise TraceError(f"{path}: line {number}: {words[5]!r} is no time in µs") from None
        if size > 0 and 0 < time_us < np.inf:
            rows.append((size, time_us))
    if len(ranks) < 2:
        raise TraceError(
            f"{path}: lines `#  Rank …`: {len(ranks)}; expected nccl-tests' output with 2 or more"
        )
    if len(rows) < 2:
        raise TraceError(f"{path}: lines with a size and a time: {len(rows)}; expected 2 or more")
    size_bytes, time_us = np.array(rows).T
    return NcclTimes(operation, len(ranks), size_bytes, time_us / 1e6)
