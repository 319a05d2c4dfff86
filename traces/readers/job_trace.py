"""The steps of a training job, and the collectives that it called, from a trace of one rank.

For: the readers of such traces (kineto.py, chakra.py). Not for: reading files, nor the same job on another
fabric (lab.fabric.traced).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNMARKED = -1
"""Number of the only step of a trace that does not mark its steps."""

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
"""Name of a type in traces of NCCL and of operators, in small letters → size of an element, bytes."""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective operation of one step.

    operation: its name in nccl-tests, or the profiler's.
    size_bytes: its size as nccl-tests counts it, B. element_bytes: size of an element, B.
    ranks: number of ranks that took part. step: position of its step. duration_s: time until it ended, at
    most until the end of its step, s. It includes waiting for later ranks.
    """

    operation: str
    size_bytes: float
    element_bytes: int
    ranks: int
    step: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class TrainingTrace:
    """n steps of one rank. Arrays are [n], and times are in seconds.

    rank: number of this rank; None if it is not in the trace. ranks: size of the job. on_gpu: whether the
    trace has kernels of a GPU.
    number: the profiler's number of each step, int64; UNMARKED for a whole trace. step_s: time from the
    step's begin to the next step's begin, or to the end of the last step. compute_s: time in which other work
    than a collective ran. communication_s: time in which a collective ran. exposed_s: time in which only
    collectives ran.
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
    """Return the size of an element by the name of its type, B; None for an unknown type."""
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
    """Return the steps of a job from spans of time.

    number: number of each step, int64[n]. edges_us: begins of the steps and the end of the last one, µs, [n +
    1]. busy_us: begins and ends of computing spans, µs, [m, 2]. calls: begin and end of each collective, µs,
    and a function that returns its other facts; it is called only for collectives inside a step.
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
    """Return for each time in `at` how much of the time before it any of `spans` covers, in their unit."""
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
