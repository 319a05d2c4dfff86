"""Read Chakra execution traces of one rank (.et, .et.gz, chakra_jsonizer's JSON): steps and collectives.

For: the same job as from a profiler's trace (kineto.py). Not for: PyTorch's own execution trace, which
chakra_converter makes into one of these. A trace has durations and dependencies. Without begin times, each
node begins when all nodes on which it depends have ended, and its thread or stream is free. If there are
nodes of a GPU, they count as compute; otherwise nodes of the CPU do. Source: MLCommons Chakra,
schema/protobuf/et_def.proto (0.0.4), src/converter for the names of attributes,
src/third_party/utils/protolib.py for the lengths between messages.
"""

from __future__ import annotations

import gzip
import re
from array import array
from collections.abc import Iterator
from functools import partial
from heapq import heapify, heappop, heappush
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from traces.readers.chakra_pb2 import GlobalMetadata, Node, NodeType
from traces.readers.job_trace import UNMARKED, Real, Told, TrainingTrace, element_bytes, training_trace
from traces.readers.json_stream import MOST_TEXT_BYTES, objects, opened
from twinbed import TraceError
from twinbed.files import MIB

MOST_NODES = 1_000_000
"""Largest number of nodes of a trace. A step of a large model has some hundred thousand."""
MOST_DEPENDENCIES = 4_000_000
_MOST_MESSAGE_BYTES = MIB
"""Largest size of a node, bytes."""

_JSON = re.compile(rb'\s*\{\s*["}]')
_OF_PYTORCH = re.compile(rb'"schema"\s*:')
_STEP = re.compile(r"ProfilerStep#(\d{1,18})")
_GROUP = re.compile(r"\{[^{}]*\}")
_GROUP_NAME = re.compile(r'"pg_name"\s*:\s*"([^"\\]*)"')
_GROUP_SIZE = re.compile(r'"(?:group|pg)_size"\s*:\s*(\d{1,9})')
_TYPE = re.compile(r"Tensor\(([^()]+)\)")
_OPERATIONS = dict(enumerate((
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "alltoall", "reduce_scatter",
    "reduce_scatter", "barrier",
)))  # fmt: skip
"""CollectiveCommType → name in nccl-tests."""
_POINT_TO_POINT = (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
_COMPUTES = (NodeType.COMP_NODE, NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE)
_DEFAULT_ELEMENT_BYTES = 4
"""Size of an element if the trace does not have its type, bytes. Sizes of collectives do not depend on it."""


def read(path: Path, ranks: int | None = None) -> TrainingTrace:
    """Return the steps in a trace. ranks: size of the job; None: the trace has its process groups.

    Raises TraceError that names the file and what is missing.
    """
    with opened(path, "a node of another form than Chakra's", DecodeError, ParseError) as file:
        kept = _Kept(path)
        for node in _nodes(file, str(path)):
            kept.take(node)
        return kept.trace(ranks)


def _nodes(file: BufferedReader | gzip.GzipFile, where: str) -> Iterator[Node]:
    """Yield the nodes that follow the metadata, from messages or from JSON."""
    begin = file.peek(4096)[:4096]
    other = f"{where}: no Chakra trace; expected what chakra_converter or chakra_jsonizer writes"
    if _JSON.match(begin):
        if _OF_PYTORCH.search(begin):
            raise TraceError(f"{where}: PyTorch's own execution trace; run chakra_converter PyTorch on it")
        parse = partial(ParseDict, ignore_unknown_fields=True)
        with TextIOWrapper(file, "utf-8") as text:
            said = objects(text, "", where)
            if not parse(next(said, {}), GlobalMetadata()).version:
                raise TraceError(other)
            for shown in said:
                yield parse(shown, Node())
        return
    messages = _messages(file, where)
    try:
        version = GlobalMetadata.FromString(next(messages, b"")).version
    except DecodeError:
        version = ""
    if not version:
        raise TraceError(other)
    yield from map(Node.FromString, messages)


def _messages(file: BufferedReader | gzip.GzipFile, where: str) -> Iterator[bytes]:
    """Yield messages. The file has the length of each message before it."""
    read = 0
    while (length := _length(file, where)) is not None:
        read += length
        if length > _MOST_MESSAGE_BYTES or read > MOST_TEXT_BYTES:
            raise TraceError(f"{where}: a message of {length:,} bytes; expected a trace of a few steps")
        message = file.read(length)
        if len(message) < length:
            raise TraceError(f"{where}: ends inside a node; export it again")
        yield message


def _length(file: BufferedReader | gzip.GzipFile, where: str) -> int | None:
    """Return the length of the next message, a varint of 32 bits, bytes; None at the file's end."""
    length = 0
    for shift in range(0, 35, 7):
        byte = file.read(1)
        if not byte and not shift:
            return None
        if not byte:
            break
        length |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return length
    raise TraceError(f"{where}: no length before a node; expected a Chakra trace")


class _Kept:
    """The facts kept about the nodes, by position in the file. Times are in µs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids = array("Q")
        self._begin, self._duration = array("d"), array("d")
        self._lane = array("L")
        self._lanes: dict[tuple[bool, int | str], int] = {}
        self._deps, self._dependent = array("Q"), array("L")
        self._computes: dict[bool, list[int]] = {True: [], False: []}
        self._calls: dict[int, tuple[str, float, int, str]] = {}
        self._marks: dict[int, int] = {}
        self._sizes: dict[str, int] = {}

    def take(self, node: Node) -> None:
        """Keep the relevant facts of a node. Raises TraceError for too many nodes or dependencies."""
        place = len(self._ids)
        if place == MOST_NODES or len(self._deps) > MOST_DEPENDENCIES:
            raise TraceError(
                f"{self._path}: more than {MOST_NODES:,} nodes or {MOST_DEPENDENCIES:,} dependencies; record "
                "fewer steps"
            )
        told = {attr.name: _value(attr) for attr in node.attr}
        on_cpu = bool(told.get("is_cpu_op", True))
        calls = node.type == NodeType.COMM_COLL_NODE or node.type in _POINT_TO_POINT
        self._ids.append(node.id)
        self._begin.append(node.start_time_micros)
        self._duration.append(node.duration_micros)
        lane = told.get("tid" if on_cpu else "stream", "calls" if calls else "computes")
        self._lane.append(self._lanes.setdefault((on_cpu and not calls, lane), len(self._lanes)))
        for deps in (node.ctrl_deps, node.data_deps):
            self._deps.extend(deps)
            self._dependent.extend([place] * len(deps))
        if calls:
            self._calls[place] = self._called(node, told)
        elif step := _STEP.fullmatch(node.name):
            self._marks[int(step[1])] = place
        elif "process_group:init" in node.name:
            for group in _GROUP.findall(node.inputs.values):
                name, size = _GROUP_NAME.search(group), _GROUP_SIZE.search(group)
                if name and size:
                    self._sizes[name[1]] = int(size[1])
        elif node.type in _COMPUTES:
            self._computes[not on_cpu].append(place)

    def _called(self, node: Node, told: dict[str, Any]) -> tuple[str, float, int, str]:
        """Return a collective's operation, input size, bytes, element size, bytes, and group."""
        size, group = told.get("comm_size", 0), str(told.get("pg_name", ""))
        kind = "sendrecv" if node.type in _POINT_TO_POINT else _OPERATIONS.get(told.get("comm_type", -1))
        if kind is None:
            raise TraceError(f"{self._path}: node {node.id}: no known comm_type; convert the trace again")
        if not (isinstance(size, int) and size >= 0) or not ("comm_size" in told or kind == "barrier"):
            raise TraceError(f"{self._path}: node {node.id}: no comm_size; convert the trace again")
        typed = _TYPE.search(node.inputs.types)
        element = typed and element_bytes(typed[1])
        return kind, float(size), element or _DEFAULT_ELEMENT_BYTES, group

    def trace(self, ranks: int | None) -> TrainingTrace:
        """Return the steps. Raises TraceError."""
        if not self._ids:
            raise TraceError(f"{self._path}: no nodes; record a step of the job")
        job = ranks or max(self._sizes.values(), default=0)
        if not job:
            raise TraceError(f"{self._path}: its process groups are not in the trace; give --ranks N")
        begin, duration = np.array(self._begin), np.array(self._duration)
        if not begin.any():
            begin = self._scheduled(duration)
        end = begin + duration
        on_gpu = bool(self._computes[True])
        numbers, edges = self._windows(begin, end, on_gpu)
        busy = np.array(self._computes[on_gpu], np.intp)
        named = {group for *_, group in self._calls.values()} - {""}
        if len(named) > 1 and (unknown := sorted(named - self._sizes.keys())):
            raise TraceError(
                f"{self._path}: process group {unknown[0]!r}: its size is not in the trace; record the node "
                "process_group:init, as PyTorch's ExecutionTraceObserver does"
            )
        return training_trace(
            None,
            job,
            on_gpu,
            numbers,
            edges,
            np.column_stack([begin[busy], end[busy]]),
            (
                (float(begin[place]), float(end[place]), partial(self._told, call, job))
                for place, call in self._calls.items()
            ),
        )

    def _told(self, call: tuple[str, float, int, str], job: int) -> Told:
        kind, size, element, group = call
        ranks = 2 if kind == "sendrecv" else self._sizes.get(group, job)
        # The size of an all-gather is the size of its output.
        return kind, size * (ranks if kind == "all_gather" else 1), element, ranks

    def _windows(self, begin: Real, end: Real, on_gpu: bool) -> tuple[NDArray[np.int64], Real]:
        """Return int64[n], the steps' numbers, and float64[n + 1], their begins and the last end, µs."""
        numbers = sorted(self._marks) or [UNMARKED]
        begins = [begin[self._marks[number]] for number in sorted(self._marks)] or [begin.min()]
        edges = np.array([*begins, end.max()])
        if on_gpu and len(numbers) > 1:
            # The GPU runs behind the host by about the same time in each step, so the last is cut short.
            numbers, edges = numbers[:-1], edges[:-1]
        if not (np.diff(edges) > 0).all():
            raise TraceError(
                f"{self._path}: its steps take no time or do not follow each other; convert a trace that was "
                "linked with the profiler's (chakra_trace_link)"
            )
        return np.array(numbers), edges

    def _scheduled(self, duration: Real) -> Real:
        """Return when each node begins. Raises TraceError for dependencies that form a cycle or are
        unknown."""
        ids, deps = np.array(self._ids, np.uint64), np.array(self._deps, np.uint64)
        order = np.argsort(ids)
        known = ids[order]
        if (known[1:] == known[:-1]).any():
            raise TraceError(f"{self._path}: two nodes have one id; export it again")
        at = np.minimum(np.searchsorted(known, deps), len(ids) - 1)
        if len(lost := deps[known[at] != deps]):
            raise TraceError(f"{self._path}: a node depends on node {lost[0]}, which is not in the trace")
        dependent = np.array(self._dependent, np.intp)
        by_parent = np.argsort(order[at], kind="stable")
        ends = np.searchsorted(order[at][by_parent], np.arange(len(ids) + 1)).tolist()
        children, waits = dependent[by_parent].tolist(), np.bincount(dependent, minlength=len(ids)).tolist()
        lanes, takes = self._lane, duration.tolist()
        free, ready, begin = [0.0] * len(self._lanes), [0.0] * len(ids), np.zeros(len(ids))
        next_up = [(0.0, place) for place, count in enumerate(waits) if not count]
        heapify(next_up)
        left = len(ids)
        while next_up:
            at_us, place = heappop(next_up)
            begin[place] = start = max(at_us, free[lanes[place]])
            free[lanes[place]] = end = start + takes[place]
            left -= 1
            for child in children[ends[place] : ends[place + 1]]:
                ready[child] = max(ready[child], end)
                waits[child] -= 1
                if not waits[child]:
                    heappush(next_up, (ready[child], child))
        if left:
            raise TraceError(f"{self._path}: {left} of its nodes wait for each other; convert it again")
        return begin


def _value(attr: Any) -> Any:
    """Return an attribute's value; None for a kind of value that is not used here."""
    kind = attr.WhichOneof("value")
    return getattr(attr, kind) if kind else None
