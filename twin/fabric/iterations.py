"""Run a job's iterations one by one, in compiled code, between two moments at which something happens.

For: fleet.py and jobs.py, which know these moments. Not for: faults. A book (one record of BOOK) has the
job's present activity and the use of its time. Unsaved time is pending. A save moves it to the kept time, and
a death loses it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twin.containers.compiled import kernel
from twin.fabric.model import Floats
from twin.fabric.transports import Transport

DOWN, ITERATE, SAVE = range(3)
"""Activities of a job."""

BOOK = np.dtype(
    [
        ("activity", np.int64),
        ("began_s", np.float64),  # begin of the activity
        ("due_s", np.float64),  # end of the activity
        ("pace", np.float64),  # pace of the running iteration, 1 on average
        ("need_s", np.float64),  # length of the running iteration without stalls
        ("stall_s", np.float64),  # time that gaps added to the iteration
        ("stall_end_s", np.float64),  # end of the last gap's stall
        ("since_save_s", np.float64),  # iterations since the last save
        ("saved_s", np.float64),  # time since which work is unsaved
        ("amounts", np.float64, (2, 5)),  # rows PENDING and KEPT, columns ITERATIONS to STALLED_S
        ("saving_s", np.float64),
    ]
)
PENDING, KEPT = 0, 1
"""Rows of a book's amounts: unsaved and saved iterations."""

ITERATIONS, IDEAL_S, JITTER_S, DEGRADED_S, STALLED_S = range(5)
"""Columns of a book's amounts: number of iterations, and parts of their time as in fleet_model.Bill, s."""


@kernel
def begin(
    books: NDArray[np.void], at_s: float, base_s: float, sigma: float, rng: np.random.Generator
) -> None:
    """Begin an iteration of books[0], of length base_s times a random pace (lognormal with mean 1)."""
    book = books[0]
    pace = np.exp(sigma * rng.standard_normal() - sigma * sigma / 2.0) if sigma > 0.0 else 1.0
    book["activity"] = ITERATE
    book["began_s"] = at_s
    book["pace"] = pace
    book["need_s"] = base_s * pace
    book["stall_s"] = 0.0
    book["due_s"] = at_s + base_s * pace


@kernel
def advance(
    books: NDArray[np.void],
    until_s: float,
    base_s: float,
    ideal_s: float,
    sigma: float,
    interval_s: float,
    save_s: float,
    rng: np.random.Generator,
    taken_s: Floats,
    used: int,
) -> int:
    """Carry out the activities of books[0] that end by until_s.

    base_s, ideal_s: length of an iteration now, and on a healthy fleet, s. sigma: spread of the lognormal
    pace. interval_s, save_s: as in Checkpointing.
    taken_s: float64[n], lengths of the iterations, filled from `used` on. Returns the number filled
    afterwards; n if there was no room for more.
    """
    book = books[0]
    pending = book["amounts"][PENDING]
    while book["activity"] != DOWN and book["due_s"] <= until_s and used < len(taken_s):
        now_s = book["due_s"]
        lasted_s = now_s - book["began_s"]
        if book["activity"] == ITERATE:
            pending[ITERATIONS] += 1
            pending[IDEAL_S] += ideal_s
            pending[JITTER_S] += ideal_s * (book["pace"] - 1.0)
            pending[DEGRADED_S] += book["need_s"] - ideal_s * book["pace"]
            pending[STALLED_S] += book["stall_s"]
            book["since_save_s"] += lasted_s
            taken_s[used] = lasted_s
            used += 1
            if book["since_save_s"] >= interval_s:
                book["activity"] = SAVE
                book["began_s"] = now_s
                book["due_s"] = now_s + save_s
                continue
        else:
            keep(books)
            book["saving_s"] += lasted_s
            book["since_save_s"] = 0.0
            book["saved_s"] = now_s
        begin(books, now_s, base_s, sigma, rng)
    return used


def meet(books: NDArray[np.void], now_s: float, gap_s: Floats, busy: Floats, transport: Transport) -> float:
    """Return the time, s, that gaps beginning now (float64[k], s) add to the iteration of books[0]; inf: the
    job dies.

    busy: float64[b, 2], ascending and disjoint: times at which flows are on the network, as shares of an
    iteration. A gap has no effect before the next of these spans. Gaps slow no save.
    """
    book = books[0]
    idle_s = _idle_s(books, now_s, busy) if book["activity"] == ITERATE else 0.0
    noticed = gap_s[gap_s > idle_s]
    stall_s = float(transport.stall_s(noticed - idle_s).max(initial=0.0))
    if np.isinf(stall_s) or stall_s == 0.0 or book["activity"] != ITERATE:
        return np.inf if np.isinf(stall_s) else 0.0
    noticed_s = now_s + idle_s
    added_s = max(0.0, noticed_s + stall_s - max(noticed_s, float(book["stall_end_s"])))
    book["stall_end_s"] = max(float(book["stall_end_s"]), noticed_s + stall_s)
    book["due_s"] += added_s
    book["stall_s"] += added_s
    return added_s


def _idle_s(books: NDArray[np.void], now_s: float, busy: Floats) -> float:
    """Return the time until the running or the next iteration uses the network, s (inf: never)."""
    book = books[0]
    if not len(busy):
        return np.inf
    need_s = float(book["need_s"])
    share = min(max(now_s - float(book["began_s"]) - float(book["stall_s"]), 0.0) / need_s, 1.0)
    following = int(np.searchsorted(busy[:, 1], share, side="right"))
    begin = float(busy[following, 0]) if following < len(busy) else 1.0 + float(busy[0, 0])
    return max(begin - share, 0.0) * need_s


@kernel
def keep(books: NDArray[np.void]) -> None:
    """Count the pending time in books[0] as kept."""
    amounts = books[0]["amounts"]
    amounts[KEPT] += amounts[PENDING]
    amounts[PENDING] = 0.0


@kernel
def lose(books: NDArray[np.void]) -> None:
    """Drop the pending time in books[0]."""
    books[0]["amounts"][PENDING] = 0.0
