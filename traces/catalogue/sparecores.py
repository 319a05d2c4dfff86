"""Read prices from Spare Cores' database (SQLite) in the form of the package sparecores-data.

For: `twinbed prices update`. Not for: fetching the file. Prices are for Linux, in USD per hour, from AWS,
Google Cloud and Azure, on demand and spot. The cheapest zone of a region counts. The database stores the
names of enumerations in capitals. Source: SpareCores/sc-crawler 0.10, sc_crawler/tables.py; older databases
call accelerators GPUs. The data are CC-BY-SA-4.0.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd

from traces.catalogue import table
from twinbed import TraceError
from twinbed.files import open_regular
from twinbed.text import printable

SOURCE = "Spare Cores (CC-BY-SA-4.0)"
NOTICE = "From Spare Cores' database (sparecores.com), licensed under CC-BY-SA-4.0."
MOST_BYTES = 8 * 2**30
"""Largest size of a database, bytes. In 2026 it had about 1 GB."""

_ELSE = {
    "gpus": ("accelerator_count", "gpu_count"),
    "gpu_maker": ("accelerator_manufacturer", "gpu_manufacturer"),
    "gpu_model": ("accelerator_model", "gpu_model"),
    "network_gbps": ("network_speed_max", "network_speed_baseline", "network_speed"),
}
"""Names of a server's columns in versions of the database, the newest first."""

_QUERY = """
SELECT p.rowid, s.api_reference, p.vendor_id, r.api_reference, lower(p.allocation), min(p.price),
    p.currency, substr(p.observed_at, 1, 10), s.vcpus, s.memory_amount, {gpus}, {gpu_maker}, {gpu_model},
    {network_gbps}, s.family, s.storage_size
FROM server_price p
JOIN server s ON s.vendor_id = p.vendor_id AND s.server_id = p.server_id
JOIN region r ON r.vendor_id = p.vendor_id AND r.region_id = p.region_id
WHERE p.vendor_id IN ('aws', 'gcp', 'azure') AND lower(p.allocation) IN ('ondemand', 'spot')
    AND lower(p.unit) = 'hour' AND lower(p.operating_system) = 'linux' AND lower(p.status) = 'active'
    AND p.price > 0
GROUP BY p.vendor_id, s.api_reference, r.api_reference, lower(p.allocation)
"""


def read(path: Path) -> pd.DataFrame:
    """Return the database's prices as a table. Raises TraceError, which names the file and the row."""
    with open_regular(path, MOST_BYTES, TraceError) as file:
        if file.read(16) != b"SQLite format 3\0":
            raise TraceError(f"{path}: not an SQLite file; give the database of sparecores-data")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            frame = table.frame_of(_listings(database, path))
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: not Spare Cores' database ({printable(str(error))})") from None
    if frame.empty:
        raise TraceError(f"{path}: no price of AWS, Google Cloud or Azure in it")
    frame["file"] = pd.Categorical([str(path)] * len(frame))
    return frame


def _listings(database: sqlite3.Connection, path: Path) -> Iterator[tuple[int, table.Listing]]:
    has = {row[1] for row in database.execute("PRAGMA table_info(server)")}
    columns = {
        wanted: next((f"s.{name}" for name in names if name in has), "NULL")
        for wanted, names in _ELSE.items()
    }
    for row in database.execute(_QUERY.format(**columns)):
        number, name, provider, region, market, price, currency, day, vcpus, memory_mib = row[:10]
        gpus, maker, model, gbps, family, disk_gb = row[10:]
        where = f"{path}: server_price row {number}"
        try:
            count = float(gpus or 0)
            # A catalogue does not distinguish a part of a GPU from a whole one.
            if count % 1:
                continue
            values = {
                "vcpus": vcpus, "memory_gib": float(memory_mib) / 1024, "gpus": int(count),
                "network_bps": "" if gbps is None else float(gbps) * 1e9,
                "disk_gib": float(disk_gb) * 1e9 / 2**30 if disk_gb else "",
            }  # fmt: skip
        except (TypeError, ValueError, OverflowError) as error:
            raise TraceError(f"{where}: {printable(str(error))}") from None
        texts = {
            "name": name, "provider": provider, "region": region, "currency": currency,
            "market": "on-demand" if market == "ondemand" else market,
            "gpu_model": " ".join(filter(None, (maker, model))) if count else "", "family": family or "",
        }  # fmt: skip
        if not all(isinstance(text, str) and text.isprintable() for text in texts.values()):
            raise TraceError(f"{where}: a name is missing or cannot be shown")
        more = {"price_per_h": price, "as_of": day, "cpu_speed": "", "source": SOURCE}
        yield number, table.listing({**texts, **values, **more}, where)
