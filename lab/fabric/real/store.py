"""Keeps measured faults, one line of JSON each, so that an interrupted campaign continues.

For: writing and reading them, per setting. Not for: measuring (campaign.py) or their meaning
(lab.fabric.validate.judge).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from lab.fabric.real.settings import Setting


@dataclass(frozen=True, slots=True)
class MeasuredFault:
    """A fault and its failover. All times are in seconds.

    inject_s: time to break the link.
    out_s, in_s: worst gap of the flows that the host at the fault sent and received (0: no flow was hit).
    out_flows, in_flows: number of flows hit.
    out_later_s, in_later_s: worst gap that began after the fault's own, until the repair was complete.
    stall_s: longest stall of the machine during the fault.
    back_s: time from the repair until all hosts used the link again.
    chain: the observed steps (chain.CHAIN).
    rules: number of changed tunnel rules.
    fabrics: number of fabrics on the machine.
    cpu: used share of the CPUs' time.
    lasted_s: time from one fault to the next.
    downs: number of times that sessions of other links went down in that time, as bfdd counts.
    stalls_s: length of each time above 20 ms in which every CPU stood still.

    None means not observed.
    """

    date: str
    host: int
    uplink: int
    inject_s: float
    out_s: float
    in_s: float
    out_flows: int
    in_flows: int
    out_later_s: float
    in_later_s: float
    stall_s: float
    back_s: float
    chain: dict[str, float]
    rules: int | None = None
    fabrics: int = 1
    cpu: float | None = None
    lasted_s: float = 0.0
    downs: int | None = None
    stalls_s: list[float] | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """A time without a fault.

    sessions: number of BFD sessions of all hosts.
    downs: number of times that one went down, as bfdd counts.
    fast: number of times that the fast path gave up an uplink.
    stalls_s: each stall of the machine above 20 ms, s.
    fabrics, cpu: as in MeasuredFault.
    """

    date: str
    lasted_s: float
    sessions: int
    downs: int
    fast: int
    stalls_s: list[float]
    fabrics: int = 1
    cpu: float | None = None


_NOTE = "note.txt"
_Row = TypeVar("_Row", MeasuredFault, Watched)


class Store:
    """A folder with two files per setting, and a note on the conditions of the measurement."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def add(self, setting: Setting, row: MeasuredFault | Watched) -> None:
        """Append a row on a line of its own. A line that was not written completely is ignored on reading."""
        with self._path(setting, type(row)).open("ab+") as file:
            if file.tell() and file.seek(-1, os.SEEK_END) and file.read(1) != b"\n":
                file.write(b"\n")
            file.write(json.dumps(asdict(row)).encode() + b"\n")

    def faults(self, setting: Setting) -> list[MeasuredFault]:
        """Return the setting's faults in the order in which they were measured."""
        return list(self._rows(setting, MeasuredFault))

    def watched(self, setting: Setting) -> list[Watched]:
        """Return the setting's times without a fault, in order."""
        return list(self._rows(setting, Watched))

    @property
    def note(self) -> str:
        """Return the note on the conditions of the measurement, empty if there is none."""
        path = self._root / _NOTE
        return path.read_text().strip() if path.exists() else ""

    @note.setter
    def note(self, text: str) -> None:
        (self._root / _NOTE).write_text(text + "\n")

    def _rows(self, setting: Setting, kind: type[_Row]) -> Iterator[_Row]:
        path = self._path(setting, kind)
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            yield kind(**row)

    def _path(self, setting: Setting, kind: type[MeasuredFault] | type[Watched]) -> Path:
        return self._root / f"{setting.key}.{'measured' if kind is MeasuredFault else 'watched'}.jsonl"
