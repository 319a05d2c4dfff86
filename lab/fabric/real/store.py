"""Faults that were measured, a line of JSON each, so that a campaign that was interrupted goes on.

For: keeping and reading them, per setting. Not for: measuring (campaign.py) or what they mean (figures.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from lab.fabric.real.settings import Setting


@dataclass(frozen=True, slots=True)
class Measured:
    """A fault and its failover; times in seconds.

    inject_s: how long it took to break; out_s, in_s: the worst flow's gap of those that the host at the
    fault sent and received (0: none was hit); out_flows, in_flows: how many were hit; out_later_s,
    in_later_s: the worst gap of a flow that began after the fault's own, until all was repaired; stall_s: the
    longest stall of the machine meanwhile; back_s: from the repair until everybody used the link again;
    chain: its parts (chain.CHAIN), as far as they were seen; rules: how many tunnel rules changed (None:
    nobody looked); fabrics: how many were up on the machine; cpu: the share of its CPUs' time that was used
    (None: nobody looked); lasted_s: from one fault to the next; downs: how often a session of another link
    went down meanwhile, as bfdd counts (None: nobody looked).
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


@dataclass(frozen=True, slots=True)
class Watched:
    """A time without a fault: sessions: BFD's, of all hosts; downs: how often one went down, as bfdd counts;
    fast: how often the fast path took an uplink out; stalls_s: each of the machine's stalls of more than
    20 ms; fabrics, cpu: as of a fault."""

    date: str
    lasted_s: float
    sessions: int
    downs: int
    fast: int
    stalls_s: list[float]
    fabrics: int = 1
    cpu: float | None = None


_NOTE = "note.txt"
_Row = TypeVar("_Row", Measured, Watched)


class Store:
    """A folder with two files per setting, and a note under which conditions they came about."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def add(self, setting: Setting, row: Measured | Watched) -> None:
        """Keeps it; a line is whole or is ignored."""
        with self._path(setting, type(row)).open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")

    def faults(self, setting: Setting) -> list[Measured]:
        """In the order of their making."""
        return list(self._rows(setting, Measured))

    def watched(self, setting: Setting) -> list[Watched]:
        """The same, of times without a fault."""
        return list(self._rows(setting, Watched))

    @property
    def note(self) -> str:
        """What whoever measured had to say of it; empty: nothing."""
        path = self._root / _NOTE
        return path.read_text().strip() if path.exists() else ""

    @note.setter
    def note(self, text: str) -> None:
        (self._root / _NOTE).write_text(text + "\n")

    def _rows(self, setting: Setting, kind: type[_Row]) -> Iterator[_Row]:
        path = self._path(setting, kind)
        for line in path.read_text().splitlines() if path.exists() else ():
            if line.endswith("}"):
                yield kind(**json.loads(line))

    def _path(self, setting: Setting, kind: type[Measured] | type[Watched]) -> Path:
        return self._root / f"{setting.key}.{kind.__name__.lower()}.jsonl"
