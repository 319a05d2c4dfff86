"""The prices that commands use: those that ship, with the user's updates on top, or a file of the user's.

For: `twinbed prices`, recommendations and the explorer. Not for: studies, which use what ships alone. An
update is kept in a file of its own, so that a new version of twinbed may bring newer prices.
"""

from __future__ import annotations

import bz2
import importlib
import shutil
import tempfile
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO

from lab.runs.files import own_path
from traces.catalogue import sparecores, table
from traces.catalogue.catalogue import Catalogue, load
from traces.parquet_file import is_parquet
from twinbed import ScenarioError
from twinbed.writing import write_whole

_BLOCK = 1 << 20
_URLS = ("http://", "https://")


def default_path() -> Path:
    """Return $TWINBED_PRICES, else twinbed/prices.parquet in the user's data folder."""
    return own_path("TWINBED_PRICES", "prices.parquet")


def in_use(own: Path | None = None) -> Catalogue:
    """Return the user's own catalogue, or what ships with the updates. Raises TraceError for either file."""
    if own is not None:
        return load(own)
    shipped, updates = load(), default_path()
    if not updates.exists():
        return shipped
    return replace(shipped, prices=table.joined(shipped.prices, table.read(updates)))


def update(source: str | None, told: Callable[[float], None]) -> int:
    """Add Spare Cores' prices to the updates and return their number.

    source: an SQLite file, a URL of one, which may be packed by bzip2, or None for the package
        sparecores-data, which fetches its own. told: function called with the share of a URL that has
        arrived.
    Raises ScenarioError for a URL that does not answer and a package that is missing, TraceError for a file
    that is not Spare Cores' database, and ScenarioError if the updates' file is CSV.
    """
    kept = default_path()
    if kept.suffix.lower() == ".csv" or (kept.exists() and not is_parquet(kept)):
        raise ScenarioError(f"{kept}: updates are Parquet; let $TWINBED_PRICES name a new file .parquet")
    with tempfile.TemporaryDirectory(prefix="twinbed-prices-") as folder:
        if source is None:
            path = _package()
        elif source.startswith(_URLS):
            path = _fetched(source, Path(folder) / "prices.db", told)
        else:
            path = Path(source)
        frame = sparecores.read(path)
    if kept.exists():
        frame = table.joined(table.read(kept), frame)
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_whole(kept, lambda file: table.write(file, frame, sparecores.NOTICE))
    return len(frame)


def _package() -> Path:
    try:
        return Path(importlib.import_module("sc_data").db.path)
    except ModuleNotFoundError:
        cure = "pip install sparecores-data, or give its SQLite file or a URL of one"
        raise ScenarioError(f"the package sparecores-data is not installed; {cure}") from None
    except Exception as error:
        # The package raises whatever its download raises.
        raise ScenarioError(f"sparecores-data: {error or type(error).__name__}") from None


def _fetched(url: str, path: Path, told: Callable[[float], None]) -> Path:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, path.open("wb") as file:
            _copy(answer, file, int(answer.headers.get("Content-Length") or 0), url, told)
        if url.endswith(".bz2"):
            unpacked = path.with_suffix(".unpacked")
            with bz2.open(path) as packed, unpacked.open("wb") as file:
                shutil.copyfileobj(packed, file, _BLOCK)
            return unpacked
    except (OSError, EOFError, ValueError, HTTPException) as error:
        inner = getattr(error, "reason", None)
        why = inner.strerror or inner if isinstance(inner, OSError) else error
        raise ScenarioError(f"{url}: {why}; try again, or give the file itself") from None
    return path


def _copy(answer: BinaryIO, file: BinaryIO, size: int, url: str, told: Callable[[float], None]) -> None:
    done = 0
    while block := answer.read(_BLOCK):
        file.write(block)
        done += len(block)
        if done > sparecores.MOST_BYTES:
            raise ScenarioError(
                f"{url}: larger than {sparecores.MOST_BYTES >> 30} GiB, the most that is read"
            )
        if size:
            told(min(done / size, 1.0))
