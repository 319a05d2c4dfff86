"""What a trace of one rank tells of a training job: its steps, and the collectives that it called.

For: the readers of such traces (kineto.py, chakra.py). Not for: their files, nor what another fabric would
make of the job (lab.fabric.traced).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNMARKED = -1
"""Number of the step of a trace that does not mark its steps."""

Real = NDArray[np.float64]
Told = tuple[str, float, int, int]
"""A collective's operation, size_bytes, element_bytes and ranks."""

_BYTES = {
    **dict.fromkeys(("double", "long", "long int", "int64"), 8),
    **dict.fromkeys(("float", "int", "int32", "unsigned int"), 4),
    **dict.fromkeys(("half", "bfloat16", "c10::half", "c10::bfloat16", "short", "short int"), 2),
    **dict.fromkeys(("byte", "char", "bool", "unsigned char", "signed char"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "c10::float8_e4m3fn", "c10::float8_e5m2"), 1),
}
"""Bytes of an element, by the names of types in traces of NCCL and of operators, in small letters."""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective operation of one step.

    operation: its name in nccl-tests, or the profiler's.
    size_bytes: its size as nccl-tests counts it, B. element_bytes: bytes of one element.
    ranks: ranks that took part. step: position of its step. duration_s: until it ended, at the latest with
    its step, s; a rank that waits for a later one counts it.
    """

    operation: str
    size_bytes: float
    element_bytes: int
    ranks: int
    step: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class TrainingTrace:
    """n steps of one rank. Arrays are [n]; times in s.

    rank: this rank, None if the trace does not tell. ranks: the size of the job. on_gpu: whether kernels of a
    GPU are in the trace.
    number: the profiler's numbers of the steps, int64; UNMARKED for a whole trace. step_s: from its begin to
    the next one's, of the last step to its end. compute_s: when anything but a collective ran.
    communication_s: when a collective ran. exposed_s: when only collectives ran.
    """

    rank: int | None
    ranks: int
    on_gpu: bool
    number: NDArray[np.int64]
    step_s: Real
    compute_s: Real
    communication_s: Real
    exposed_s: Real
    collectives: tuple[Collective, ...]


def element_bytes(kind: str) -> int | None:
    """Return the bytes of an element by the name of its type, None for an unknown one."""
    return _BYTES.get(kind.lower())


def training_trace(
    rank: int | None,
    ranks: int,
    on_gpu: bool,
    number: NDArray[np.int64],
    edges_us: Real,
    busy_us: Real,
    calls: Iterable[tuple[float, float, Callable[[], Told]]],
) -> TrainingTrace:
    """Return the steps made of spans.

    number: of n steps, int64[n]. edges_us: their begins and the last one's end, µs, [n + 1].
    busy_us: begins and ends of what computes, µs, [m, 2]. calls: begin and end of each collective, µs, and
    what tells the rest; it is asked only of those inside a step.
    """
    inside = []
    for begin, end, tell in sorted(calls, key=lambda call: call[:2]):
        step = int(np.searchsorted(edges_us, begin, "right")) - 1
        if 0 <= step < len(number):
            last = min(end, float(edges_us[step + 1]))
            inside.append((begin, last, Collective(*tell(), step, (last - begin) / 1e6)))
    sent = np.array([call[:2] for call in inside]).reshape(-1, 2)
    compute, communication, either = (
        np.diff(_measure(spans, edges_us)) / 1e6 for spans in (busy_us, sent, np.concatenate([busy_us, sent]))
    )
    return TrainingTrace(
        rank=rank,
        ranks=max([ranks, *(call[2].ranks for call in inside)]),
        on_gpu=on_gpu,
        number=number,
        step_s=np.diff(edges_us) / 1e6,
        compute_s=compute,
        communication_s=communication,
        exposed_s=either - compute,
        collectives=tuple(call[2] for call in inside),
    )


def _measure(spans: Real, at: Real) -> Real:
    """Return how much of the time until each moment some span covers, in their unit."""
    if not len(spans):
        return np.zeros(len(at))
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    first = np.append(True, spans[1:, 0] > reach[:-1])
    begins, ends = spans[first, 0], reach[np.append(first[1:], True)]
    covered = np.cumsum(ends - begins)
    corners = np.column_stack([begins, ends]).ravel()
    until = np.column_stack([covered - (ends - begins), covered]).ravel()
    return np.asarray(np.interp(at, corners, until), np.float64)
