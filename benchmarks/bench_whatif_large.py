"""`twinbed whatif` of a day of 500 containers at a minute, as bench_whatif.py measures 40.

It takes minutes, so it is measured on request: `python -m benchmarks whatif_large`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench_whatif import day, plain

PODS = 500


def figures() -> Iterator[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        yield from day(Path(folder), PODS, plain(Path(folder)).cpu_s, 240)
