"""The request engine's state: the layout of its records, and access to them from kernels.

For: record types, constants, and functions that turn a table's index into a record. Not for: filling the
tables (requests/tables.py), nor for kernels.

Nodes are visits, or attempts to make a visit. Node 0 means no node. A node is in at most one queue (next,
prev) and in at most one timeout's line (later, sooner).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype
from numpy.typing import NDArray

from control.services import Draw, RequestStatus

Records = NDArray[Any]

OVERDRAFT_S = 1e-10
"""CPU seconds by which a pool may be overdrawn: more than the rounding of an hour of virtual time."""

NOBODY = 0
"""No node. As a parent: the caller has given up."""

# States of a node that waits for something.
FREE, IN_LINE, BACKOFF, TRANSIT, QUEUED, SERVED, KILLED = range(7)
# Next steps of a node that continues at this instant, in the order of a visit.
ATTEMPT, SEND, ARRIVE, ENTER, SERVE, RUN, LEAVE, ENDED = range(7, 15)

# Why `advance` returned.
REACHED, NEEDS_ROOM, NEEDS_NUMBERS, SIGNALLED = range(4)

# Amount of a request's spans that is kept.
UNTRACED, TRACED, DRAWN, LOST = range(4)

# Kinds of delay lines.
DELAY, TIMEOUT = range(2)

# Members of enumerations as plain integers, for kernels.
FIXED, EXPONENTIAL = int(Draw.FIXED), int(Draw.EXPONENTIAL)
PENDING, OK, TIMED_OUT = int(RequestStatus.PENDING), int(RequestStatus.OK), int(RequestStatus.TIMED_OUT)
DROPPED, FAILED = int(RequestStatus.DROPPED), int(RequestStatus.FAILED)


def _record(**fields: str) -> np.dtype[np.void]:
    return np.dtype(list(fields.items()), align=True)


TABLES = (
    "nodes", "containers", "hosts", "lines", "pools", "stages", "calls", "runnable", "requests", "timers",
    "exponentials", "normals", "uniforms", "spans", "slowest",
)  # fmt: skip

ENGINE = _record(
    **dict.fromkeys(TABLES, "u8"),  # address of each table's records
    **dict.fromkeys(("node_count", "container_count", "host_count", "line_count"), "i8"),
    top="i8",  # address of the tree in real time
    top_size="i8",  # its leaves
    next_due_s="f8",  # time of the next arrival
    client="i8",  # index of the first client call
    exponential="i8",  # index of the next random number of each kind
    normal="i8",
    uniform="i8",
    numbers="i8",  # random numbers that may be used before the used ones are replaced
    now="f8",
    arrived="i8",  # requests that were due so far: the index of the next arrival
    count="i8",  # requests known
    opened="i8",  # requests before this one are not in line for a client connection
    waiting="i8",  # requests in line for a client connection
    open="i8",  # client connections in use
    expiring="i8",  # requests before this one cannot time out any more
    ended="i8",  # requests that have ended
    told="i8",  # ended requests for which a signal was given
    free="i4",  # head of the free nodes
    spare="i8",  # number of free nodes
    head="i4",  # first of the nodes that continue at this instant
    tail="i4",  # last of them
    reserve="i8",  # nodes or numbers that one event may need
    over="i8",  # containers listed in CONTAINER.over_list, which may exceed their memory limit
    orphans="i8",
    connections="i8",
    queue="i8",
    timeout_s="f8",
    wake_s="f8",  # as in ServiceGraph; 0 = waking up costs nothing
    wake_tau_s="f8",
    moves="f8",  # as in RequestWorkload
    keep_s="f8",  # as in ServiceGraph; 0 = memory of visits is given back at once
    span_count="i8",  # spans that the table has; 0 = no request is traced. Span 0 is none
    fresh_span="i4",  # spans from this one on were never used
    free_span="i4",  # head of the spans that are free again
    slow_count="i8",  # requests in `slowest`, a heap whose first is the fastest of them
    slow_most="i8",
    untraced="i8",  # traced requests whose spans did not all find room
    watch="?",
    windowed="?",  # spans of answered requests are held until `settle`
)
# Fields stand in the order in which they are used together. A node is one cache line, and so is a call. The
# first two cache lines of a container are what each of its events needs, the third what a visit needs that
# begins or ends. A container is seven cache lines long. With an even number of lines, containers would
# compete for half of a cache.
NODE = _record(
    parent="i4",  # > 0: the visit that called; < 0: request −1 − parent; NOBODY
    call="i4",  # index of the call; clients' calls follow the graph's own
    container="i4",
    stage="i4",  # the next stage
    last_stage="i4",
    pending="i2",  # calls of the stage that have not ended
    attempts="i2",  # further attempts that are allowed
    state="u1",
    outcome="u1",
    pooled="?",  # holds a connection of its call's pool
    timed="?",  # is in its timeout's line
    next="i4",
    prev="i4",
    request="i4",  # the traced request that it serves; −1: none
    part_s="f8",
    due_s="f8",
    called_s="f8",  # when its caller made the attempt
)
TIMER = _record(later="i4", sooner="i4", due_s="f8")
CONTAINER = _record(
    v="f8",
    since="f8",
    rate="f8",
    speed="f8",
    pool="f8",
    used="f8",
    cap="f8",
    status="u1",
    runs="?",  # it is up, and its pool is not empty
    empties="?",  # its next event is that the pool is empty
    shared="?",  # its host has fewer cores than its containers may want, or runs them slower
    over="?",  # is listed in over_list
    throttled="?",
    reason="u1",
    #
    end0_v="f8",  # when the first of its runnable visits ends; inf: there is none
    end1_v="f8",  # when the second ends, and so on
    end2_v="f8",
    end3_v="f8",
    end0="i4",  # nodes of these visits
    end1="i4",
    end2="i4",
    end3="i4",
    first="i4",  # its other runnable visits are a heap at runnable[first …]
    runnable="i4",
    busy="i4",
    workers="i4",
    #
    wanted_bytes="i8",
    limit_bytes="i8",
    request_bytes="i8",
    visits="i8",
    cache_bytes="i8",
    cache_request_bytes="i8",
    cached_bytes="i8",
    waiting="i4",
    queue="i4",
    #
    kept="i8",  # memories of ended visits that it keeps for later ones
    most_busy="i8",  # with keep_s: most visits at once since memory was given back last
    trim_s="f8",  # when memory that no visit needs is given back next; inf: none is kept
    stalled="f8",  # > 0 only if it does not run
    leaf="i4",
    turn="i4",  # of a service's first container: the replica that takes the next visit
    head="i4",
    tail="i4",
    host="i4",
    share="f8",  # on a shared host: its pace over the pace of all the host's containers alike
    weight="f8",  # cpu.weight
    idle_since_s="f8",  # when it last had nothing runnable any more; −inf: nothing has run in it yet
    woken_s="f8",  # CPU of answers that woke it while other calls were open; its next part burns it
    base_bytes="i8",
    cpu_order="i8",
    #
    over_list="i8",  # not about this container: the container at this index of the list
    stalled_at_s="f8",
    throttled_s="f8",
    dropped="i8",
    refused="i8",
    killed="i8",
    quota="f8",
    memory_order="i8",
    #
    backlog="f8",  # at the end of its last period, as are row_…
    arrived_s="f8",
    done_s="f8",
    lost_s="f8",
    nr_periods="i8",
    nr_throttled="i8",
    row_demand_s="f8",
    row_lost_s="f8",
    #
    silo_end="f8",  # CPU use in this period at which what its CPU has taken is used up, see cfs.SILO_S
    stranded="f8",  # what its other CPUs keep of their slices, s
    elsewhere="f8",  # 1 / the number of its other CPUs; 0 = there is none
)
HOST = _record(
    u="f8",
    at_s="f8",
    factor="f8",
    wanted="f8",
    cores="f8",
    next_u="f8",
    imbalance="f8",
    speed="f8",  # share of a CPU's time that is not stolen
    tree="i8",  # address of the tree of its containers
    size="i8",  # leaves of that tree
    members="i8",  # its containers
    weighed="?",  # CPU requests are in force on it, so that its containers share it by weight
    uneven="?",  # by the last look its containers want more CPUs than there are
)
KEY = _record(key="i8")  # the bits of a time ≥ 0, which have the same order as the times
OWNER = _record(owner="i4")
LINE = _record(delay_s="f8", head="i4", tail="i4", kind="u1")
POOL = _record(connections="i8", busy="i8", head="i4", tail="i4")
CALL = _record(
    probability="f8",
    share="f8",  # share of a visit's demand that is one part
    scale="f8",  # mean demand, s; of a log-normal one the mean of its logarithm
    sigma="f8",
    first="i4",  # first container of the handler's service
    replicas="i4",
    first_stage="i4",
    last_stage="i4",
    pool="i4",
    network="i2",
    backoff="i2",
    timeout="i2",
    retries="i2",
    draw="u1",
    direct="?",  # has no timeout, pool or network delay
)
RUNNABLE = _record(v="f8", node="i4")
REQUEST = _record(
    at_s="f8",
    end_s="f8",
    kind="i4",
    node="i4",
    order="i4",
    spans="i4",  # its last span, which leads to the one before
    first_span="i4",
    status="u1",
    traced="u1",  # UNTRACED, TRACED, DRAWN (its spans are kept) or LOST (some found no room)
)
SPAN = _record(
    node="i4", parent="i4", call="i4", container="i4", next="i4", called_s="f8", end_s="f8", part_s="f8"
)
SLOW = _record(latency_s="f8", request="i4")
NUMBER = _record(value="f8")
STAGE = _record(first_call="i8")


# --- access to records ---------------------------------------------------------------------------------
#
# A kernel that takes the tables as arrays passes seven words for each of them at every call and counts their
# references, which costs several times what the kernel does. The engine's record therefore holds addresses of
# tables, and a record of a table is its address. The arrays are held by physics.py. No index is checked.


def _element(context: Any, builder: Any, first: Any, index: Any, dtype: np.dtype[np.void]) -> Any:
    """Build the address of element `index` of a table of `dtype` that begins at `first`."""
    word = context.get_value_type(types.int64)
    place = builder.add(first, builder.mul(index, word(dtype.itemsize)))
    return builder.inttoptr(place, context.get_value_type(from_dtype(dtype)))


def _records_of(table: str, dtype: np.dtype[np.void]) -> Any:
    """Return a function for kernels: (engine's record, index) → that record of the table."""
    offset = ENGINE.fields[table][1]  # type: ignore[index]

    @intrinsic
    def at(_context: Any, engine: Any, _index: Any) -> Any:
        def address(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            word = context.get_value_type(types.int64)
            start = builder.ptrtoint(arguments[0], word)
            first = builder.load(builder.inttoptr(builder.add(start, word(offset)), word.as_pointer()))
            # Tables move only between calls of kernels.
            first.set_metadata("invariant.load", builder.module.add_metadata([]))
            return _element(context, builder, first, arguments[1], dtype)

        return from_dtype(dtype)(engine, types.int64), address

    return at


def _records_from(dtype: np.dtype[np.void]) -> Any:
    """Return a function for kernels: (address of a table, index) → that record of it."""

    @intrinsic
    def at(_context: Any, _first: Any, _index: Any) -> Any:
        def address(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return _element(context, builder, arguments[0], arguments[1], dtype)

        return from_dtype(dtype)(types.int64, types.int64), address

    return at


node_at = _records_of("nodes", NODE)
container_at = _records_of("containers", CONTAINER)
host_at = _records_of("hosts", HOST)
line_at = _records_of("lines", LINE)
pool_at = _records_of("pools", POOL)
stage_at = _records_of("stages", STAGE)
call_at = _records_of("calls", CALL)
runnable_at = _records_of("runnable", RUNNABLE)
request_at = _records_of("requests", REQUEST)
span_at = _records_of("spans", SPAN)
slow_at = _records_of("slowest", SLOW)
timer_at = _records_of("timers", TIMER)
exponential_at = _records_of("exponentials", NUMBER)
normal_at = _records_of("normals", NUMBER)
uniform_at = _records_of("uniforms", NUMBER)
key_at = _records_from(KEY)
owner_at = _records_from(OWNER)


# --- choices, and the cache ------------------------------------------------------------------------------


def _select(_context: Any, _condition: Any, yes: Any, _no: Any) -> Any:
    """Return yes or no by the condition, without a branch, which would be mispredicted half the time."""

    def choice(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        chosen = builder.select(*arguments)
        chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
        return chosen

    return yes(types.boolean, yes, yes), choice


def _rarely(_context: Any, _condition: Any) -> Any:
    """Return the condition, which seldom holds. The code for the rare case is placed out of the way."""

    def expectation(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        bit = arguments[0].type
        expect = builder.module.declare_intrinsic("llvm.expect", [bit], ir.FunctionType(bit, [bit, bit]))
        return builder.call(expect, [arguments[0], bit(0)])

    return types.boolean(types.boolean), expectation


def _fetch(_context: Any, record: Any) -> Any:
    """Ask for the first cache line of a record that will soon be needed. The record need not be in use."""

    def prefetch(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        ask = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, kind, "llvm.prefetch.p0"
        )
        # To read, into the nearest cache, as data.
        builder.call(ask, [builder.bitcast(arguments[0], pointer), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(record), prefetch


select: Any = intrinsic(_select)
rarely: Any = intrinsic(_rarely)
fetch: Any = intrinsic(_fetch)
