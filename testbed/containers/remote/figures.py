"""Counters of an agent, for monitoring. Not for: any decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Figures:
    """Counters of an agent since its start.

    sessions: number of times that a controller welcomed it
    records, datagrams, telemetry_bytes: numbers of records, datagrams and bytes of telemetry sent
    dropped: number of datagrams that the network did not accept
    late: number of times that telemetry was read more than one CFS period late
    orders: number of orders carried out
    on_order: function called with the time that each order took, s
    """

    sessions: int = 0
    records: int = 0
    datagrams: int = 0
    telemetry_bytes: int = 0
    dropped: int = 0
    late: int = 0
    orders: int = 0
    on_order: Callable[[float], None] = lambda _seconds: None
