"""Start a data plane of BFD in a namespace, and read its journal.

For: a fabric whose plan has `bfd_plane`, and pairs of data planes without FRR. Not for: the program
(plane.c). Source: our design. The processes carry the fabric's mark and end with it. If a worker dies, its
parent starts it again.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.fabric.bfd_plane.program import program
from testbed.fabric.links import popen_in
from testbed.fabric.model import Fabric, Host, Tor
from testbed.fabric.ownership import state_folder

PRIORITY = 80
"""Real-time priority of the data plane. It is above those of bfdd and the fast path, which may wait."""

FREEZE_FLOOR_S = 0.005
"""Delay of a wake-up from which it counts as a freeze, s. The measured machine wakes 99.5 % within 0.1 ms."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """A time in which the data plane did not run (CLOCK_MONOTONIC, ns)."""

    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Down:
    """A session that was up went down.

    at_ns: time, CLOCK_MONOTONIC. peer: IPv4 address. diagnostic: 1: no packet came; 3: the peer reported it.
    silent_ns: time since the last packet. credit_ns: part of it that freezes of this end excuse.
    """

    at_ns: int
    peer: str
    diagnostic: int
    silent_ns: int
    credit_ns: int


def start(
    namespace: str,
    listener: Path,
    journal: Path,
    *,
    tell: Path | None = None,
    real_time: bool = True,
    starter: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start a data plane in a namespace.

    listener: bfdd's socket. journal: file of events. tell: the fast path's socket (None: there is none).
    starter: command that starts the process and ends. Raises BackendError if it cannot be compiled or
    started.
    """
    floor_us = round(FREEZE_FLOOR_S * 1e6)
    arguments = (str(listener), str(journal), str(tell or "-"), str(PRIORITY * real_time), str(floor_us))
    # A predecessor's journal does not belong to this process.
    journal.unlink(missing_ok=True)
    with journal.with_suffix(".err").open("wb") as errors:
        command = [*starter, str(program()), *arguments]
        return popen_in(namespace, command, stdout=subprocess.DEVNULL, stderr=errors)


def launch(fabric: Fabric, router: Host | Tor, listener: Path) -> None:
    """Start a router's data plane, until the fabric is removed. listener: socket of its bfdd."""
    # A fast path may also start later, or run for part of the time only.
    tell = tell_socket(fabric, router) if router.loopback else None
    process = start(
        router.namespace,
        listener,
        journal_of(fabric, router),
        tell=tell,
        real_time=fabric.plan.real_time and not fabric.plan.stock,
        starter=("setsid", "--fork"),
    )
    process.wait()


def journal_of(fabric: Fabric, router: Host | Tor) -> Path:
    """Return the journal of a router's data plane."""
    return state_folder(fabric.plan.name) / f"{router.namespace}.plane.log"


def tell_socket(fabric: Fabric, router: Host | Tor) -> Path:
    """Return the socket on which a router's fast path gets the data plane's reports."""
    return state_folder(fabric.plan.name) / f"plane-{router.namespace.rpartition('-')[2]}.sock"


def rows(journal: Path) -> list[dict[str, Any]]:
    """Return the journal's lines. An incomplete line is left out."""
    text = journal.read_text() if journal.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def downs(journal: Path) -> list[Down]:
    """Return the times at which sessions that were up went down, in order."""
    return [
        Down(row["at_ns"], row["peer"], row["diag"], row["silent_ns"], row["credit_ns"])
        for row in rows(journal)
        if row["what"] == "state" and row["from"] == 3
    ]


def freezes(journal: Path) -> list[Freeze]:
    """Return the data plane's own freezes, in order."""
    return [Freeze(row["begin_ns"], row["end_ns"]) for row in rows(journal) if row["what"] == "freeze"]


def worker(journal: Path) -> int | None:
    """Return the process id of the data plane's worker; None if it has not begun."""
    pids = [row["pid"] for row in rows(journal) if row["what"] == "start"]
    return pids[-1] if pids else None
