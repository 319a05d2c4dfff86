"""Read traces that PyTorch's profiler exports (Kineto JSON, also .gz): steps and collectives.

For: how long one rank's steps took, how much of that it communicated, and which collectives it called. Not
for: the same job on another fabric (lab.fabric.traced). If the trace has kernels of a GPU, NCCL's kernels
count as communication and the others as compute. Otherwise Gloo's spans count as communication and operators
as compute. Source: torch/csrc/profiler/collection.cpp and Kineto's output_json.cpp, PyTorch 2.13, for the
names of keys.
"""

from __future__ import annotations

import io
import json
import re
from array import array
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from traces.readers.job_trace import Real, Told, TrainingTrace, element_bytes, training_trace
from traces.readers.json_stream import objects, opened
from twinbed import TraceError
from twinbed.files import MIB

MOST_COLLECTIVES = 1_000_000
"""Largest number of collectives of a trace."""
_MOST_HEAD_BYTES = 16 * MIB
"""Largest size of the text before the events, bytes. It lists the ranks of every process group."""

_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_STEP = re.compile(r"ProfilerStep#(\d+)")
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_NAMES = (
    ("allreduce", "all_reduce"), ("reducescatter", "reduce_scatter"), ("allgather", "all_gather"),
    ("alltoall", "alltoall"), ("broadcast", "broadcast"), ("reduce", "reduce"), ("send", "sendrecv"),
    ("recv", "sendrecv"),
)  # fmt: skip
"""Text that a collective's name contains, without `_` → its name in nccl-tests. The first match counts."""


def read(path: Path) -> TrainingTrace:
    """Return the steps in a trace. Raises TraceError that names the file and what is missing."""
    with opened(path, "an event of another form than Kineto's") as file:
        text = io.TextIOWrapper(file, "utf-8")
        head, rest = _begun(text, str(path))
        kept = _Kept(path)
        for event in objects(text, rest, str(path), "]"):
            kept.take(event)
        return kept.trace(head)


def _begun(file: TextIO, where: str) -> tuple[dict[str, Any], str]:
    """Return the facts before the events, and the text that was read beyond them."""
    text = ""
    while (begin := _EVENTS.search(text)) is None:
        piece = file.read(1 << 16)
        if not piece or len(text) > _MOST_HEAD_BYTES:
            raise TraceError(f'{where}: no "traceEvents"; expected a file of profiler.export_chrome_trace')
        text += piece
    try:
        head = json.loads(text[: begin.start()].rstrip().removesuffix(",") + "}")
    except json.JSONDecodeError as error:
        raise TraceError(f"{where}: line {error.lineno}: not JSON: {error.msg}") from None
    return head, text[begin.end() :]


class _Kept:
    """The facts kept about the events. Times are in µs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._steps: dict[bool, dict[int, tuple[float, float]]] = {True: {}, False: {}}
        self._busy = {True: array("d"), False: array("d")}
        self._calls: dict[bool, list[tuple[float, float, str, dict[str, Any]]]] = {True: [], False: []}

    def take(self, event: dict[str, Any]) -> None:
        """Keep the relevant facts of an event. Raises TraceError for too many collectives."""
        if event.get("ph") != "X":
            return
        kind, name = event.get("cat"), event["name"]
        on_gpu = kind in _ON_GPU
        begin, duration = float(event["ts"]), float(event["dur"])
        if not (abs(begin) < np.inf and 0 <= duration < np.inf):
            raise ValueError(f"{name}: ts {begin}, dur {duration}")
        span = (begin, begin + duration)
        if kind in ("user_annotation", "gpu_user_annotation") and (step := _STEP.fullmatch(name)):
            self._steps[kind == "gpu_user_annotation"][int(step[1])] = span
        elif on_gpu or kind == "cpu_op":
            if on_gpu and name.startswith("nccl"):
                self._calls[True].append((*span, name, event.get("args", {})))
            elif not name.startswith(("c10d::", "record_param_comms")):
                self._busy[on_gpu].extend(span)
        elif kind == "user_annotation" and name.startswith("gloo:"):
            self._calls[False].append((*span, name, event.get("args", {})))
        if max(map(len, self._calls.values())) > MOST_COLLECTIVES:
            raise TraceError(f"{self._path}: more than {MOST_COLLECTIVES:,} collectives; profile fewer steps")

    def trace(self, head: dict[str, Any]) -> TrainingTrace:
        """Return the steps. Raises TraceError."""
        on_gpu = bool(self._busy[True])
        numbers, edges = self._windows(on_gpu)
        job = head.get("distributedInfo") or {}
        ranks = int(job.get("world_size", 1))
        return training_trace(
            int(job.get("rank", 0)),
            ranks,
            on_gpu,
            numbers,
            edges,
            np.array(self._busy[on_gpu], np.float64).reshape(-1, 2),
            (
                (begin, end, partial(_called, self._path, name, given, ranks))
                for begin, end, name, given in self._calls[on_gpu]
            ),
        )

    def _windows(self, on_gpu: bool) -> tuple[NDArray[np.int64], Real]:
        """Return int64[n], the steps' numbers, and float64[n + 1], their begins and the last end, µs."""
        steps = self._steps[on_gpu] or self._steps[False]
        if not steps:
            cure = "call profiler.step() after each step of the job"
            raise TraceError(f"{self._path}: no ProfilerStep; {cure}")
        numbers = sorted(steps)
        begins = [steps[number][0] for number in numbers]
        edges = np.array([*begins, steps[numbers[-1]][1]])
        if on_gpu and not self._steps[True] and len(numbers) > 1:
            # The GPU runs behind the host by about the same time in each step, so the last is cut short.
            numbers, edges = numbers[:-1], edges[:-1]
        if not (np.diff(edges) > 0).all() or not np.isfinite(edges).all():
            raise TraceError(f"{self._path}: ProfilerStep: the steps do not follow each other")
        return np.array(numbers), edges


def _called(path: Path, name: str, given: dict[str, Any], ranks: int) -> Told:
    """Return a collective's operation, size, B, size of an element, B, and number of ranks."""
    plain = str(given.get("Collective name", name)).lower().replace("_", "")
    operation = next((own for part, own in _NAMES if part in plain), plain.removeprefix("gloo:"))
    if "In msg nelems" in given:
        element = _element(path, name, given.get("dtype", ""))
        count = max(int(given["In msg nelems"]), int(given.get("Out msg nelems", 0)))
        return operation, float(count) * element, element, int(given.get("Group size", ranks))
    if operation == "barrier":
        return operation, 0.0, 1, ranks
    shapes = [shape for shape in given.get("Input Dims", []) if shape]
    if not shapes:
        cure = "record_shapes=True" if name.startswith("gloo") else "PyTorch 2.4 or later"
        raise TraceError(f"{path}: {name}: its size is not in the trace; profile with {cure}")
    element = _element(path, name, given["Input type"][0])
    # Gloo's span has the size of the input, but the size of an all-gather is that of its output.
    count = sum(map(prod, shapes)) * (ranks if operation == "all_gather" else 1)
    return operation, float(count) * element, element, ranks


def _element(path: Path, name: str, kind: str) -> int:
    known = element_bytes(kind)
    if known is None:
        raise TraceError(f"{path}: {name}: elements of type {kind!r} have no known size")
    return known
