"""A small database with the columns of Spare Cores' (sc-crawler 0.10) that prices follow from."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

SERVERS = (
    ("aws", "g4dn.xlarge", "g4dn.xlarge", 4, 16384, 1.0, "NVIDIA", "T4", 25.0, "g4dn", 125),
    ("gcp", "1001", "n1-standard-4", 4, 15360, 0.0, None, None, None, "n1", 0),
    ("gcp", "1002", "g4-standard-6", 6, 24576, 0.125, "NVIDIA", "RTX Pro 6000", None, "g4", 0),
)
PRICES = (
    ("aws", "us-east-1", "us-east-1a", "g4dn.xlarge", "Linux", "ONDEMAND", "HOUR", 0.5, "USD", "ACTIVE"),
    ("aws", "us-east-1", "us-east-1a", "g4dn.xlarge", "Linux", "SPOT", "HOUR", 0.3, "USD", "ACTIVE"),
    ("aws", "us-east-1", "us-east-1b", "g4dn.xlarge", "Linux", "SPOT", "HOUR", 0.2, "USD", "ACTIVE"),
    ("aws", "us-east-1", "us-east-1b", "g4dn.xlarge", "Windows", "SPOT", "HOUR", 0.1, "USD", "ACTIVE"),
    ("gcp", "1210", "a", "1001", "Linux", "ONDEMAND", "HOUR", 0.19, "USD", "ACTIVE"),
    ("gcp", "1210", "a", "1001", "Linux", "SPOT", "MONTH", 9.0, "USD", "ACTIVE"),
    ("gcp", "1210", "a", "1002", "Linux", "ONDEMAND", "HOUR", 0.7, "USD", "ACTIVE"),
)


def made(path: Path, prices: Sequence[tuple[object, ...]] = PRICES, word: str = "accelerator") -> Path:
    """Write the database; word: what a server's accelerators are called. Return its path."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE region (vendor_id, region_id, api_reference)")
        database.execute(
            "CREATE TABLE server (vendor_id, server_id, api_reference, vcpus, memory_amount, "
            f"{word}_count, {word}_manufacturer, {word}_model, network_speed_max, family, storage_size)"
        )
        database.execute(
            "CREATE TABLE server_price (vendor_id, region_id, zone_id, server_id, operating_system, "
            "allocation, unit, price, currency, status, observed_at)"
        )
        regions = [("aws", "us-east-1", "us-east-1"), ("gcp", "1210", "us-central1")]
        database.executemany("INSERT INTO region VALUES (?, ?, ?)", regions)
        database.executemany(f"INSERT INTO server VALUES ({', '.join('?' * 11)})", SERVERS)
        dated = [(*row, "2026-08-01 10:00:00") for row in prices]
        database.executemany(f"INSERT INTO server_price VALUES ({', '.join('?' * 11)})", dated)
    return path
