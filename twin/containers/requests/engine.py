"""The compiled core of the request-level twin: exact events of requests, visits, CPU pools and delays.

For: the state of requests in a service graph and the kernels that move it from one event to the next. Not
for: what the control loop sees of it (physics.py), nor the data that goes in and comes out (model.py).
All kernels call each other and are compiled as one, so they share this module in spite of its length.

How time moves. Three kinds of things wait for a moment: CPU work, delays (network, backoff, timeouts), and
arrivals. The k runnable visits of a container share its CPUs evenly, so each container has a virtual
time V that grows at each visit's speed min(1, cap/k), a visit that needs p more CPU seconds ends at V + p,
and only the least of these matters: the container's next event is that, or the moment its pool is empty.
Containers of a host that has fewer cores than they may want, or that runs them slower, live in the host's
time U, which grows at `_factor` of real time: one factor changes then, and no container is touched. A
tournament tree gives the next event in log₂ steps: over all containers that are not so, such hosts (each with
a tree of its own, by U), and delay lines. Equal delays expire in the order they began, so each delay is one
queue.

Rules at one instant, in this order: CPU work and delays, then arrivals; `advance` handles CPU work and
delays due at its end, but leaves arrivals due then to the period that begins there. CPU events of several
containers at one instant, and visits of one container that end at one, have no order that could be relied on,
yet the same one in every run. A pool may be overdrawn by OVERDRAFT_S, which the next refill pays: a pool that
lasts exactly to its period's end is not exhausted by rounding.

Records: nodes are visits (or the attempts to make one); node 0 is nobody. A node is in at most one queue
through next/prev and in at most one timeout's line through later/sooner. Sources: processor sharing by
virtual time as in generalised processor sharing (Parekh & Gallager 1993); CPU bandwidth as in cfs.py.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype
from numpy.typing import NDArray

from control.allocator.model import SLOT_MASK
from twin.containers.cfs import ABSENT, DOWN, HELD, NANOSECOND, UP, Report, Rows
from twin.containers.compiled import kernel
from twin.containers.model import Floats
from twin.containers.requests.model import Draw, Status

Records = NDArray[Any]
Whole = NDArray[np.int64]

OVERDRAFT_S = 1e-10
"""CPU seconds by which a pool may be overdrawn: above what rounding does to it in an hour of virtual time."""

NOBODY = 0
"""No node; as a parent: whoever called gave up."""

# What a node is doing while it waits for something …
FREE, IN_LINE, BACKOFF, TRANSIT, QUEUED, SERVED, KILLED = range(7)
# … and what it is to do next when it is on the list of those that go on at this instant, in a visit's order.
ATTEMPT, SEND, ARRIVE, ENTER, SERVE, RUN, LEAVE, ENDED = range(7, 15)

# Why `advance` returned.
REACHED, NEEDS_ROOM, NEEDS_NUMBERS, SIGNALLED = range(4)

# What a delay line's head does when its time has come.
DELAY, TIMEOUT = range(2)

_FIXED, _EXPONENTIAL = int(Draw.FIXED), int(Draw.EXPONENTIAL)
_PENDING, _OK, _TIMED_OUT = int(Status.PENDING), int(Status.OK), int(Status.TIMED_OUT)
_DROPPED, _FAILED = int(Status.DROPPED), int(Status.FAILED)
_UP, _HELD, _DOWN, _ABSENT = UP, HELD, DOWN, ABSENT


_Function = TypeVar("_Function", bound=Callable[..., object])


def inlined(function: _Function) -> _Function:
    """A kernel that becomes part of each of its callers: calls would cost half of what an event does."""
    return cast(_Function, njit(cache=True, error_model="numpy", forceinline=True)(function))


def _record(**fields: str) -> np.dtype[np.void]:
    return np.dtype(list(fields.items()), align=True)


TABLES = (
    "nodes", "boxes", "hosts", "lines", "pools", "services", "handlers", "stages", "calls",
    "runnable", "requests", "timers", "exponentials", "normals", "uniforms",
)  # fmt: skip

ENGINE = _record(
    **dict.fromkeys(TABLES, "u8"),  # where each table's records are in memory
    **dict.fromkeys(("node_count", "box_count", "host_count", "line_count"), "i8"),
    top="i8",  # where the tree in real time is in memory
    top_size="i8",
    next_due_s="f8",  # the next arrival
    client="i8",  # the first of the clients' calls
    exponential="i8",  # the next random number of each kind
    normal="i8",
    uniform="i8",
    numbers="i8",  # how many may be used before the used ones are replaced
    now="f8",
    arrived="i8",  # requests that were due so far: the index of the next arrival
    count="i8",  # requests known
    opened="i8",  # requests before this one are not in line for a client connection
    waiting="i8",  # requests in line for a client connection
    open="i8",  # client connections in use
    expiring="i8",  # requests before this one cannot time out any more
    ended="i8",
    told="i8",  # ended requests that a signal was given for
    free="i4",  # head of the free nodes
    spare="i8",  # how many are free
    head="i4",  # of the nodes that go on at this instant
    tail="i4",
    reserve="i8",  # nodes or numbers that one event may need
    busy_with="i8",  # container whose event is handled: its next one is worked out at the end
    over="i8",  # containers that may exceed their memory limit, listed in BOX.over_order
    orphans="i8",
    connections="i8",
    queue="i8",
    timeout_s="f8",
    wake_s="f8",  # as the graph's, 0 = waking up costs nothing
    wake_tau_s="f8",
    watch="?",
)
# Fields are in the order in which they are used together: nodes are a cache line each; a container's first
# line is what each of its events takes, its second what a visit takes that begins.
NODE = _record(
    parent="i4",  # > 0: the visit that called; < 0: request −1 − parent; NOBODY
    call="i4",  # clients' calls come after the graph's own
    container="i4",
    stage="i4",  # the next one
    last_stage="i4",
    pending="i2",  # calls of the stage not ended
    attempts="i2",  # further ones that are allowed
    state="u1",
    outcome="u1",
    pooled="?",  # holds a connection of its call's pool
    timed="?",  # is in its timeout's line
    next="i4",
    prev="i4",
    part_s="f8",
    due_s="f8",
    unused="i8",
)
TIMER = _record(later="i4", sooner="i4", due_s="f8")
BOX = _record(
    v="f8",
    since="f8",
    rate="f8",
    speed="f8",
    pool="f8",
    used="f8",
    least_v="f8",  # when the first of its runnable visits ends (inf: none is), and who that is
    least="i4",
    runnable="i4",
    #
    cap="f8",
    wanted_bytes="i8",
    limit_bytes="i8",
    request_bytes="i8",
    first="i4",  # its other runnable visits are runnable[first …]; the first ends at inf if there is none
    busy="i4",
    workers="i4",
    waiting="i4",
    queue="i4",
    leaf="i4",
    status="u1",
    runs="?",  # it is up, and its pool is not empty
    empties="?",  # its next event is that the pool is empty
    shared="?",  # its host has fewer cores than its containers may want, or runs them slower
    over="?",  # is listed
    #
    visits="i8",
    cache_bytes="i8",
    cache_request_bytes="i8",
    cached_bytes="i8",
    head="i4",
    tail="i4",
    stalled="f8",
    host="i4",
    idle_since_s="f8",  # when its last visit so far ceased to be runnable; −inf: nothing ran in it yet
    #
    over_order="i8",  # of the container of this index: the one at this place of the list
    stalled_at_s="f8",
    throttled_s="f8",
    dropped="i8",
    refused="i8",
    killed="i8",
    quota="f8",
    cpu_order="i8",
    memory_order="i8",
    #
    backlog="f8",  # as of its last period's end, as are row_…
    arrived_s="f8",
    done_s="f8",
    lost_s="f8",
    nr_periods="i8",
    nr_throttled="i8",
    row_demand_s="f8",
    row_lost_s="f8",
    #
    throttled="?",
    reason="u1",
    base_bytes="i8",
    woken_s="f8",  # CPU of answers that woke it without going on; its next part burns it
    **dict.fromkeys(("unused0", "unused1", "unused2", "unused3"), "i8"),
)
HOST = _record(
    u="f8",
    at_s="f8",
    factor="f8",
    wanted="f8",
    cores="f8",
    next_u="f8",
    imbalance="f8",
    speed="f8",  # what is left of a CPU by what is stolen
    tree="i8",  # where the tree of its containers is in memory
    size="i8",
)
KEY = _record(key="i8")  # a time ≥ 0 by its bits, which have the same order
OWNER = _record(owner="i4")
LINE = _record(delay_s="f8", head="i4", tail="i4", kind="u1")
POOL = _record(connections="i8", busy="i8", head="i4", tail="i4")
HANDLER = _record(
    first="i4",  # container of its service
    replicas="i4",
    service="i4",
    first_stage="i4",
    last_stage="i4",
    draw="i4",
    share="f8",  # of a visit's demand that is one part
    mean_s="f8",
    mu="f8",
    sigma="f8",
    unused="i8",
)
SERVICE = _record(turn="i8")
CALL = _record(
    handler="i4",
    retries="i2",
    direct="?",  # without timeout, pool and network
    pool="i4",
    network="i4",
    backoff="i4",
    timeout="i4",
    probability="f8",
)
RUNNABLE = _record(v="f8", node="i4")
REQUEST = _record(at_s="f8", end_s="f8", kind="i4", node="i4", order="i4", status="u1")
NUMBER = _record(value="f8")
STAGE = _record(first_call="i8")


# --- access to records ---------------------------------------------------------------------------------
#
# A kernel that takes the tables as arrays passes seven words for each at every call and counts their
# references, at several times the cost of what it does. The engine's record holds their addresses instead,
# and a record of a table is its address; who holds the arrays is physics.py. No index is checked.


def _records_of(table: str, dtype: np.dtype[np.void]) -> Any:
    """A function for kernels: (engine's record, index) → that record of the table."""
    kind = from_dtype(dtype)
    offset = ENGINE.fields[table][1]  # type: ignore[index]

    @intrinsic
    def at(_context: Any, engine: Any, _index: Any) -> Any:
        def address(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            word = context.get_value_type(types.int64)
            start = builder.ptrtoint(arguments[0], word)
            field = builder.inttoptr(builder.add(start, word(offset)), word.as_pointer())
            first = builder.load(field)
            # Tables move only between calls of kernels.
            first.set_metadata("invariant.load", builder.module.add_metadata([]))
            place = builder.add(first, builder.mul(arguments[1], word(dtype.itemsize)))
            return builder.inttoptr(place, context.get_value_type(kind))

        return kind(engine, types.int64), address

    return at


node_at = _records_of("nodes", NODE)
box_at = _records_of("boxes", BOX)
host_at = _records_of("hosts", HOST)
line_at = _records_of("lines", LINE)
pool_at = _records_of("pools", POOL)
service_at = _records_of("services", SERVICE)
handler_at = _records_of("handlers", HANDLER)
stage_at = _records_of("stages", STAGE)
call_at = _records_of("calls", CALL)
runnable_at = _records_of("runnable", RUNNABLE)
request_at = _records_of("requests", REQUEST)
timer_at = _records_of("timers", TIMER)
exponential_at = _records_of("exponentials", NUMBER)
normal_at = _records_of("normals", NUMBER)
uniform_at = _records_of("uniforms", NUMBER)


def _records_from(dtype: np.dtype[np.void]) -> Any:
    """A function for kernels: (address of a table, index) → that record of it."""
    kind = from_dtype(dtype)

    @intrinsic
    def at(_context: Any, _first: Any, _index: Any) -> Any:
        def address(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            word = context.get_value_type(types.int64)
            place = builder.add(arguments[0], builder.mul(arguments[1], word(dtype.itemsize)))
            return builder.inttoptr(place, context.get_value_type(kind))

        return kind(types.int64, types.int64), address

    return at


key_at = _records_from(KEY)
owner_at = _records_from(OWNER)


# --- choices -------------------------------------------------------------------------------------------


def _choice(_context: Any, _condition: Any, yes: Any, _no: Any) -> Any:
    """(condition, yes, no) → one of them without a branch, which would be a guess, wrong half the time."""

    def choice(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        chosen = builder.select(*arguments)
        chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
        return chosen

    return yes(types.boolean, yes, yes), choice


def _expectation(_context: Any, _condition: Any) -> Any:
    """The condition, which seldom holds: what it leads to is kept out of the way of the rest."""

    def expectation(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        bit = arguments[0].type
        expect = builder.module.declare_intrinsic("llvm.expect", [bit], ir.FunctionType(bit, [bit, bit]))
        return builder.call(expect, [arguments[0], bit(0)])

    return types.boolean(types.boolean), expectation


_either: Any = intrinsic(_choice)
_rarely: Any = intrinsic(_expectation)


# --- next events -------------------------------------------------------------------------------------


@inlined
def _bits(time: float) -> Any:
    return np.float64(time).view(np.int64)


@inlined
def _time(bits: int) -> Any:
    return np.int64(bits).view(np.float64)


@inlined
def _owners(tree: int, size: int) -> int:
    """Where the owners of a tree's keys are: behind them."""
    return tree + 16 * size


@inlined
def _place(tree: int, size: int, leaf: int, owner: int, time: float) -> float:
    """Sets one leaf's time in a tournament tree; returns the least of all.

    Node i is the earlier one of 2·i and 2·i + 1, leaves begin at `size`: all keys, then all owners.
    """
    owners = _owners(tree, size)
    i, winner, key = size + leaf, np.int32(owner), _bits(time)
    key_at(tree, i).key = key
    while i > 1:
        rival = key_at(tree, i ^ 1).key
        sooner = rival < key
        winner = _either(sooner, owner_at(owners, i ^ 1).owner, winner)
        key = _either(sooner, rival, key)
        i >>= 1
        key_at(tree, i).key = key
        owner_at(owners, i).owner = winner
    least: float = _time(key)
    return least


@inlined
def _place_line(e: Any, index: int, time: float) -> None:
    """When a delay line or, behind the last of them, the client's timeouts are due next."""
    owner = e.box_count + e.host_count + index
    _place(e.top, e.top_size, owner, owner, time)


@inlined
def _place_host(e: Any, h: int) -> None:
    host = host_at(e, h)
    time = host.at_s + (host.next_u - host.u) / host.factor
    _place(e.top, e.top_size, e.box_count + h, e.box_count + h, time)


@kernel
def _place_shared(e: Any, i: int, time: float) -> None:
    """When a container is due next by its host's time."""
    box = box_at(e, i)
    host = host_at(e, box.host)
    least = _place(host.tree, host.size, box.leaf, i, time)
    if least != host.next_u:
        host.next_u = least
        _place_host(e, box.host)


@inlined
def _factor(host: Any) -> float:
    """How fast the host runs: 1 = as on a CPU of its own; by RequestWorkload.imbalance and stolen."""
    wanted, cores = host.wanted, host.cores
    factor = min(1.0, cores / wanted) if wanted > 0.0 else 1.0
    if _rarely(host.imbalance > 0.0) and wanted > 1.0 and cores > 1.0:
        scattered = cores * (1.0 - (1.0 - 1.0 / cores) ** wanted) / wanted
        factor += host.imbalance * (scattered - factor)
    return float(factor * host.speed)


@kernel
def _want(e: Any, h: int, cpus: float) -> None:
    """The host's containers want `cpus` more: who shares too few CPUs runs slower."""
    host = host_at(e, h)
    host.wanted += cpus
    factor = _factor(host)
    if factor != host.factor:
        now = e.now
        host.u += (now - host.at_s) * host.factor
        host.at_s = now
        host.factor = factor
        _place_host(e, h)


@inlined
def _sync(e: Any, box: Any) -> None:
    """Brings a container's CPU accounts up to now."""
    time = e.now
    if _rarely(box.shared):
        host = host_at(e, box.host)
        time = host.u + (time - host.at_s) * host.factor
    passed = time - box.since
    box.since = time
    burnt = box.rate * passed
    box.v += box.speed * passed
    box.pool -= burnt
    box.used += burnt


@inlined
def _pace(e: Any, i: int, box: Any) -> None:
    """Works out how fast container i (synced) runs now and when its next event is.

    Nobody runnable is no case of its own: the first visit to end does so at inf.
    """
    rate, speed, key, empties = 0.0, 0.0, inf, False
    if box.runs:
        rate = float(box.runnable)
        left = box.least_v - box.v
        allowed = box.pool + OVERDRAFT_S
        if rate <= box.cap:
            speed = min(rate, 1.0)
            empties = left * rate > allowed
            if _rarely(empties):
                left = allowed / rate
        else:
            speed = box.cap / rate
            rate = box.cap
            empties = left * rate > allowed * speed
            left = allowed / rate if empties else left / speed
        key = box.since + left
    box.empties = empties
    box.speed = speed
    if _rarely(box.shared):
        change = rate - box.rate
        box.rate = rate
        if change != 0.0:
            _want(e, box.host, change)
        _place_shared(e, i, key)
    else:
        box.rate = rate
        _place(e.top, e.top_size, i, i, key)


# --- queues of nodes ---------------------------------------------------------------------------------


@inlined
def _append(e: Any, owner: Any, n: int) -> None:
    """Puts node n at the end of a queue; owner: a record with head and tail."""
    node = node_at(e, n)
    node.next = NOBODY
    node.prev = owner.tail
    if owner.tail == NOBODY:
        owner.head = n
    else:
        node_at(e, owner.tail).next = n
    owner.tail = n


@inlined
def _unlink(e: Any, owner: Any, n: int) -> None:
    """Takes node n out of the queue it is in."""
    node = node_at(e, n)
    if node.prev == NOBODY:
        owner.head = node.next
    else:
        node_at(e, node.prev).next = node.next
    if node.next == NOBODY:
        owner.tail = node.prev
    else:
        node_at(e, node.next).prev = node.prev


@inlined
def _delay(e: Any, index: int, n: int) -> None:
    line = line_at(e, index)
    due_s = e.now + line.delay_s
    node_at(e, n).due_s = due_s
    if line.head == NOBODY:
        _place_line(e, index, due_s)
    _append(e, line, n)


@kernel
def _arm(e: Any, index: int, n: int) -> None:
    """Starts the timeout of node n. (A line's key may be earlier than its head, which costs one look.)"""
    line, timer = line_at(e, index), timer_at(e, n)
    timer.due_s = e.now + line.delay_s
    timer.later = NOBODY
    timer.sooner = line.tail
    node_at(e, n).timed = True
    if line.tail == NOBODY:
        line.head = n
        _place_line(e, index, timer.due_s)
    else:
        timer_at(e, line.tail).later = n
    line.tail = n


@inlined
def _disarm(e: Any, n: int) -> None:
    node = node_at(e, n)
    if not node.timed:
        return
    node.timed = False
    timer, line = timer_at(e, n), line_at(e, call_at(e, node.call).timeout)
    if timer.sooner == NOBODY:
        line.head = timer.later
    else:
        timer_at(e, timer.sooner).later = timer.later
    if timer.later == NOBODY:
        line.tail = timer.sooner
    else:
        timer_at(e, timer.later).sooner = timer.sooner


@inlined
def _take_node(e: Any) -> int:
    n: int = e.free
    e.free = node_at(e, n).next
    e.spare -= 1
    return n


@inlined
def _free_node(e: Any, n: int) -> None:
    node = node_at(e, n)
    node.state = FREE
    node.next = e.free
    e.free = n
    e.spare += 1


# --- runnable visits of a container ------------------------------------------------------------------


@inlined
def _begin(e: Any, box: Any, v: float, n: int) -> None:
    """Node n becomes runnable until the container's virtual time is v."""
    k, least_v, least = box.runnable, box.least_v, box.least
    box.runnable = k + 1
    sooner = v < least_v
    box.least_v = _either(sooner, v, least_v)
    box.least = _either(sooner, n, least)
    v, n = _either(sooner, least_v, v), _either(sooner, least, n)
    if _rarely(k > 1):
        _push(e, box.first, k - 1, v, n)
    else:
        other = runnable_at(e, box.first)
        other.v = v
        other.node = n


@inlined
def _finish(e: Any, box: Any) -> int:
    """The first runnable visit ends; returns its node."""
    n: int = box.least
    k = box.runnable - 1
    box.runnable = k
    box.v = _time(_either(k > 0, _bits(box.least_v), 0))
    other = runnable_at(e, box.first)
    box.least_v = other.v
    box.least = other.node
    if _rarely(k > 1):
        _pop(e, box.first, k)
    else:
        other.v = inf
    return n


@kernel
def _push(e: Any, first: int, count: int, v: float, n: int) -> None:
    i = count
    while i > 0:
        up = (i - 1) >> 1
        above = runnable_at(e, first + up)
        if above.v <= v:
            break
        here = runnable_at(e, first + i)
        here.v = above.v
        here.node = above.node
        i = up
    here = runnable_at(e, first + i)
    here.v = v
    here.node = n


@kernel
def _pop(e: Any, first: int, count: int) -> None:
    """Removes the least of `count` entries."""
    last = runnable_at(e, first + count - 1)
    v, n = last.v, last.node
    i = 0
    while True:
        down = 2 * i + 1
        if down >= count - 1:
            break
        if down + 1 < count - 1 and runnable_at(e, first + down + 1).v < runnable_at(e, first + down).v:
            down += 1
        below = runnable_at(e, first + down)
        if below.v >= v:
            break
        here = runnable_at(e, first + i)
        here.v = below.v
        here.node = below.node
        i = down
    here = runnable_at(e, first + i)
    here.v = v
    here.node = n


@kernel
def _waiting_s(e: Any, box: Any) -> float:
    """CPU work of the container (synced) that has begun and is not done."""
    if box.runnable == 0:
        return 0.0
    total: float = box.least_v - box.v
    for j in range(box.runnable - 1):
        total += runnable_at(e, box.first + j).v - box.v
    return total


# --- memory ------------------------------------------------------------------------------------------


@inlined
def _charge(e: Any, i: int, more_bytes: int) -> None:
    """Container i wants to hold more (or less); notes it when that is more than it may."""
    box = box_at(e, i)
    box.wanted_bytes += more_bytes
    if box.wanted_bytes > box.limit_bytes and not box.over:
        box.over = True
        box_at(e, e.over).over_order = i
        e.over += 1


@kernel
def exceeding(engine: Records) -> int:
    """Drops from `over` whoever is within its limit again or not running; returns how many are left."""
    e = engine[0]
    left = 0
    for j in range(e.over):
        i = box_at(e, j).over_order
        box = box_at(e, i)
        if box.status == _UP and box.wanted_bytes > box.limit_bytes:
            box_at(e, left).over_order = i
            left += 1
        else:
            box.over = False
    e.over = left
    return left


# --- visits ------------------------------------------------------------------------------------------


@inlined
def _next(e: Any, n: int, step: int) -> None:
    """Node n goes on at this instant, with `step`, after those that are to go on already."""
    node = node_at(e, n)
    node.state = step
    node.next = NOBODY
    if e.tail == NOBODY:
        e.head = n
    else:
        node_at(e, e.tail).next = n
    e.tail = n


@kernel
def _end(e: Any, n: int, outcome: int) -> None:
    """Attempt n ended; its caller will be told."""
    node_at(e, n).outcome = outcome
    _next(e, n, ENDED)


@inlined
def _draw(e: Any, handler: Any) -> float:
    """CPU seconds of a visit."""
    mean_s: float = handler.mean_s
    if handler.draw == _FIXED:
        return mean_s
    if handler.draw == _EXPONENTIAL:
        e.numbers -= 1
        e.exponential += 1
        drawn_s: float = mean_s * exponential_at(e, e.exponential - 1).value
        return drawn_s
    e.numbers -= 1
    e.normal += 1
    logarithm: float = handler.mu + handler.sigma * normal_at(e, e.normal - 1).value
    return exp(logarithm)


@inlined
def _chance(e: Any, probability: float) -> bool:
    if probability >= 1.0:
        return True
    e.numbers -= 1
    e.uniform += 1
    yes: bool = uniform_at(e, e.uniform - 1).value < probability
    return yes


@inlined
def _replica(e: Any, handler: Any) -> int:
    """The container that a visit comes to: replicas in turn, without those that are down."""
    i: int = handler.first
    if handler.replicas > 1:
        service = service_at(e, handler.service)
        turn = service.turn
        for _ in range(handler.replicas):
            i = handler.first + turn
            turn += 1
            if turn >= handler.replicas:
                turn = 0
            if box_at(e, i).status < _DOWN:
                break
        service.turn = turn
    return i


@inlined
def _connect(e: Any, n: int) -> bool:
    """A caller makes call n: its timeout starts, then it needs a connection. False: it waits for one."""
    node = node_at(e, n)
    call = call_at(e, node.call)
    if call.timeout >= 0:
        _arm(e, call.timeout, n)
    if call.pool >= 0:
        pool = pool_at(e, call.pool)
        if pool.busy >= pool.connections:
            node.state = IN_LINE
            _append(e, pool, n)
            return False
        pool.busy += 1
        node.pooled = True
    return True


@inlined
def _enter(e: Any, n: int, i: int) -> bool:
    """Visit n takes a worker of container i. False: it waits for one, or is turned away."""
    box, node = box_at(e, i), node_at(e, n)
    node.container = i
    # Nobody waits for a free worker of a container that is up.
    if box.status == _UP and box.busy < box.workers:
        box.busy += 1
        _charge(e, i, box.request_bytes)
        return True
    if box.status >= _DOWN:
        box.refused += 1
        node.outcome = _FAILED
        node.state = ENDED
    elif box.waiting < box.queue:
        node.state = QUEUED
        box.waiting += 1
        _append(e, box, n)
    else:
        box.dropped += 1
        node.outcome = _DROPPED
        node.state = ENDED
    return False


@kernel
def _wake(e: Any, box: Any) -> None:
    """The container turns to something: what that costs when it idled."""
    if box.runnable == 0:
        box.woken_s += e.wake_s * (1.0 - exp((box.idle_since_s - e.now) / e.wake_tau_s))
        box.idle_since_s = e.now


@inlined
def _run(e: Any, node: Any, n: int, i: int, busy: int) -> None:
    """A part of visit n in container i becomes runnable."""
    node.state = SERVED
    box = box_at(e, i)
    _sync(e, box)
    part_s: float = node.part_s
    if _rarely(e.wake_s > 0.0):
        _wake(e, box)
        part_s += box.woken_s
        box.woken_s = 0.0
    _begin(e, box, box.v + part_s, n)
    if _rarely(box.stalled > 0.0):
        _settle(e, i)
        box.stalled = min(float(box.runnable), box.cap)
    elif i != busy:
        _pace(e, i, box)


@inlined
def _go(e: Any, n: int, step: int, busy: int) -> bool:
    """Node n goes on, with `step`, from being called to being runnable. True: it ended on the way."""
    node = node_at(e, n)
    if step == RUN:
        _run(e, node, n, node.container, busy)
        return False
    call = call_at(e, node.call)
    if step <= SEND and not call.direct:
        if step == ATTEMPT and not _connect(e, n):
            return False
        if call.network >= 0:
            node.state = TRANSIT
            _delay(e, call.network, n)
            return False
    handler = handler_at(e, call.handler)
    i: int = _replica(e, handler) if step <= ARRIVE else node.container
    if step <= ENTER and not _enter(e, n, i):
        ended: bool = node.state == ENDED
        return ended
    node.stage = handler.first_stage
    node.last_stage = handler.last_stage
    node.outcome = _OK
    node.part_s = _draw(e, handler) * handler.share
    _run(e, node, n, i, busy)
    return False


@inlined
def _admit_queued(e: Any, i: int) -> None:
    """Those in container i's queue take what workers are free."""
    box = box_at(e, i)
    while box.waiting > 0 and box.busy < box.workers and box.status == _UP:
        n = box.head
        _unlink(e, box, n)
        box.waiting -= 1
        box.busy += 1
        _charge(e, i, box.request_bytes)
        _next(e, n, SERVE)


@inlined
def _leave(e: Any, n: int) -> None:
    """Visit n gives its worker back."""
    i = node_at(e, n).container
    box = box_at(e, i)
    box.busy -= 1
    box.visits += 1
    grown = min(box.cache_bytes - box.cached_bytes, box.cache_request_bytes)
    box.cached_bytes += grown
    _charge(e, i, grown - box.request_bytes)
    if box.waiting > 0:
        _admit_queued(e, i)


@inlined
def _call_stage(e: Any, node: Any, n: int, stage: int) -> int:
    """Visit n makes the calls of a stage, if chance leaves any. Returns the first one, or NOBODY."""
    node.stage = stage + 1
    pending: int = 0
    first: int = NOBODY
    for c in range(stage_at(e, stage).first_call, stage_at(e, stage + 1).first_call):
        call = call_at(e, c)
        if not _chance(e, call.probability):
            continue
        child = _take_node(e)
        made = node_at(e, child)
        made.parent = n
        made.call = c
        made.attempts = call.retries
        made.pooled = False
        made.timed = False
        pending += 1
        if pending > 1:
            _next(e, child, ATTEMPT)
        else:
            first = child
    node.pending = pending
    return first


@inlined
def _disconnect(e: Any, n: int) -> None:
    """Call n gives its connection back: the next in line gets it."""
    node = node_at(e, n)
    if not node.pooled:
        return
    node.pooled = False
    pool = pool_at(e, call_at(e, node.call).pool)
    following = pool.head
    if following == NOBODY:
        pool.busy -= 1
        return
    _unlink(e, pool, following)
    node_at(e, following).pooled = True
    _next(e, following, SEND)


@inlined
def _tell(e: Any, n: int) -> tuple[int, int]:
    """The caller of attempt n hears how it ended: tries again, waits for its other calls, or goes on.

    Returns the node that goes on and its step.
    """
    node = node_at(e, n)
    p: int = node.parent
    outcome = node.outcome
    if p <= 0:
        _free_node(e, n)
        if p < 0:
            _close(e, -1 - p, outcome)
        return NOBODY, RUN
    _disarm(e, n)
    _disconnect(e, n)
    caller = node_at(e, p)
    if _rarely(outcome != _OK):
        if node.attempts > 0:
            return _try_again(e, n), ATTEMPT
        caller.outcome = _FAILED
    pending = caller.pending - 1
    caller.pending = pending
    _free_node(e, n)
    if pending > 0:
        if _rarely(e.wake_s > 0.0):
            _wake(e, box_at(e, caller.container))
        return NOBODY, RUN
    if _rarely(caller.outcome != _OK):
        if box_at(e, caller.container).status == _UP:
            return p, LEAVE
        caller.part_s = 0.0  # a held process answers when it runs again
        caller.stage = caller.last_stage
    return p, RUN


@kernel
def _try_again(e: Any, n: int) -> int:
    """The next attempt of call n, now or after its backoff; returns n if now."""
    node = node_at(e, n)
    node.attempts -= 1
    backoff = call_at(e, node.call).backoff
    if backoff < 0:
        return n
    node.state = BACKOFF
    _delay(e, backoff, n)
    return NOBODY


@kernel
def _abandon(e: Any, n: int) -> None:
    """Nobody waits for attempt n any more: withdrawn if it is still with its caller, an orphan otherwise."""
    node = node_at(e, n)
    if node.parent > 0:
        _disarm(e, n)
        call = call_at(e, node.call)
        if node.state == IN_LINE:
            _unlink(e, pool_at(e, call.pool), n)
            _free_node(e, n)
            return
        if node.state == BACKOFF:
            _unlink(e, line_at(e, call.backoff), n)
            _free_node(e, n)
            return
        _disconnect(e, n)
    node.parent = NOBODY
    e.orphans += 1


@kernel
def _time_out(e: Any, n: int) -> None:
    """The caller gives attempt n up; a new node tells it so unless n never left."""
    node = node_at(e, n)
    if node.state == IN_LINE:
        _disarm(e, n)
        _unlink(e, pool_at(e, call_at(e, node.call).pool), n)
        _end(e, n, _TIMED_OUT)
        return
    m = _take_node(e)
    heir = node_at(e, m)
    heir.parent = node.parent
    heir.call = node.call
    heir.attempts = node.attempts
    heir.pooled = False
    heir.timed = False
    _abandon(e, n)
    _end(e, m, _TIMED_OUT)


# --- the client --------------------------------------------------------------------------------------


@inlined
def _open(e: Any, r: int) -> int:
    """Request r gets a connection; returns the node that stands for it."""
    n = _take_node(e)
    node, request = node_at(e, n), request_at(e, r)
    e.open += 1
    node.parent = -1 - r
    node.call = e.client + request.kind
    node.pooled = False
    node.timed = False
    request.node = n
    return n


@inlined
def _log(e: Any, r: int, outcome: int) -> None:
    request = request_at(e, r)
    request.status = outcome
    request.end_s = e.now
    request.node = NOBODY
    request_at(e, e.ended).order = r
    e.ended += 1


@inlined
def _close(e: Any, r: int, outcome: int) -> None:
    """Request r, which was open, ended; the next in line for its connection is opened."""
    _log(e, r, outcome)
    e.open -= 1
    if e.waiting == 0:
        return
    following = e.opened
    while request_at(e, following).status != _PENDING:
        following += 1
    e.opened = following + 1
    e.waiting -= 1
    _next(e, _open(e, following), SEND)


@inlined
def _due(e: Any, r: int) -> None:
    """Request r is due: from now on it may time out."""
    e.arrived = r + 1
    e.next_due_s = request_at(e, r + 1).at_s if r + 1 < e.count else inf
    if e.timeout_s < inf and e.expiring == r:
        _place_line(e, e.line_count, request_at(e, r).at_s + e.timeout_s)


@inlined
def _ask(e: Any) -> None:
    """The next request of the arrivals is due."""
    r = e.arrived
    _due(e, r)
    if e.connections == 0 or e.open < e.connections:
        e.opened = r + 1
        _next(e, _open(e, r), SEND)
    elif e.waiting < e.queue:
        if e.waiting == 0:
            e.opened = r
        e.waiting += 1
    else:
        _log(e, r, _DROPPED)


@kernel
def _expire(e: Any) -> None:
    """The client gives up what is due by now; requests time out in the order in which they were due."""
    r = e.expiring
    while r < e.arrived and request_at(e, r).status != _PENDING:
        r += 1
    e.expiring = r
    if r == e.arrived:
        _place_line(e, e.line_count, inf)
        return
    due_s = request_at(e, r).at_s + e.timeout_s
    if due_s > e.now:
        _place_line(e, e.line_count, due_s)
        return
    n = request_at(e, r).node
    if n == NOBODY:
        e.waiting -= 1
        _log(e, r, _TIMED_OUT)
    else:
        _abandon(e, n)
        _close(e, r, _TIMED_OUT)


# --- events ------------------------------------------------------------------------------------------


@inlined
def _settle(e: Any, i: int) -> None:
    """Brings container i's throttled time up to now."""
    box, now = box_at(e, i), e.now
    if box.stalled > 0.0:
        box.throttled_s += box.stalled * (now - box.stalled_at_s)
        box.stalled_at_s = now


@inlined
def _on_cpu(e: Any, i: int) -> tuple[int, int]:
    """Container i's pool is empty, or its first visit has burnt its part.

    Returns the node that goes on and its step.
    """
    box = box_at(e, i)
    _sync(e, box)
    if _rarely(box.empties):
        box.runs = False
        box.stalled = min(float(box.runnable), box.cap)
        box.stalled_at_s = e.now
        box.throttled = True
        return NOBODY, RUN
    n = _finish(e, box)
    if _rarely(e.wake_s > 0.0):
        box.idle_since_s = e.now
    node = node_at(e, n)
    stage = node.stage
    if stage == node.last_stage:
        return n, LEAVE
    child = _call_stage(e, node, n, stage)
    if child == NOBODY:
        return n, RUN
    return child, ATTEMPT


@inlined
def _on_line(e: Any, index: int) -> None:
    """The head of a delay line is due, or was taken out of it before."""
    now = e.now
    if index == e.line_count:
        _expire(e)
        return
    line = line_at(e, index)
    n = line.head
    if n == NOBODY:
        _place_line(e, index, inf)
        return
    node = node_at(e, n)
    due_s = node.due_s if line.kind == DELAY else timer_at(e, n).due_s
    if due_s > now:
        _place_line(e, index, due_s)
        return
    if line.kind == TIMEOUT:
        _time_out(e, n)
        return
    _unlink(e, line, n)
    _place_line(e, index, node_at(e, line.head).due_s if line.head != NOBODY else inf)
    _next(e, n, ARRIVE if node.state == TRANSIT else ATTEMPT)


@kernel
def advance(engine: Records, until: float) -> int:
    """Handles all events up to `until` (seconds; arrivals only before it), or stops where the loop is needed.

    Returns REACHED, NEEDS_ROOM or NEEDS_NUMBERS (give it more and call again), or SIGNALLED: at `now` a
    running container exceeds its memory limit, or (watch) a request has ended. Nothing happens when the
    clock is past `until`, be it by rounding; −inf only finishes what has begun at this instant.
    """
    e = engine[0]
    finishing = until == -inf
    busy, n, step = e.busy_with, NOBODY, RUN
    e.busy_with = -1
    while True:
        while n != NOBODY or e.head != NOBODY:
            if e.numbers < e.reserve:
                if n != NOBODY:
                    _next(e, n, step)
                e.busy_with = busy
                return NEEDS_NUMBERS
            if n == NOBODY:
                n = e.head
                node = node_at(e, n)
                step = node.state
                e.head = node.next
                if e.head == NOBODY:
                    e.tail = NOBODY
            while n != NOBODY:
                if step < LEAVE:
                    if not _go(e, n, step, busy):
                        n = NOBODY
                        break
                elif step == LEAVE:
                    _leave(e, n)
                n, step = _tell(e, n)
        if busy >= 0:
            _pace(e, busy, box_at(e, busy))
            busy = -1
        if finishing:
            return REACHED
        if _rarely(e.over > 0) and exceeding(engine) > 0:
            return SIGNALLED
        if e.watch and e.ended > e.told:
            e.told = e.ended
            return SIGNALLED
        if _rarely(e.spare < e.reserve):
            return NEEDS_ROOM
        at = _time(key_at(e.top, 1).key)
        if e.next_due_s < at:
            if e.next_due_s >= until:
                break
            e.now = max(e.now, e.next_due_s)
            _ask(e)
        else:
            if at > until or at == inf:
                break
            e.now = max(e.now, at)
            owner: int = owner_at(_owners(e.top, e.top_size), 1).owner
            if _rarely(owner >= e.box_count):
                owner -= e.box_count
                if owner >= e.host_count:
                    _on_line(e, owner - e.host_count)
                    continue
                host = host_at(e, owner)
                owner = owner_at(_owners(host.tree, host.size), 1).owner
            busy = owner
            n, step = _on_cpu(e, owner)
    e.now = max(e.now, until)
    return REACHED


# --- what the control loop does ----------------------------------------------------------------------


@kernel
def _refill(e: Any, i: int, period_s: float, burst_s: float) -> None:
    """Refill of container i, synced: the pool fills, the throttled run again."""
    box = box_at(e, i)
    full = box.quota * period_s
    box.pool = min(box.pool + full, full + burst_s)
    box.stalled = 0.0
    box.runs = box.status == _UP
    _pace(e, i, box)


@kernel
def write_quotas(
    engine: Records,
    issued: Whole,
    column_of: Whole,
    ids: Whole,
    quotas: Floats,
    reasons: NDArray[np.uint8],
    order: int,
    period_s: float,
    burst_s: float,
) -> int:
    """Quota writes now, as `cfs.write_quotas`: returns how many values changed, −1 if one is not > 0."""
    e = engine[0]
    changed: int = 0
    for j in range(len(ids)):
        slot = ids[j] & SLOT_MASK
        if slot >= len(column_of):
            continue
        i = column_of[slot]
        if i < 0 or issued[i] != ids[j] or box_at(e, i).cpu_order > order:
            continue
        if not quotas[j] > 0.0:
            return -1
        box = box_at(e, i)
        changed += quotas[j] != box.quota
        box.quota = quotas[j]
        box.cpu_order = order
        box.reason = reasons[j]
        _sync(e, box)
        _settle(e, i)
        _refill(e, i, period_s, burst_s)
    return changed


@kernel
def end_period(
    engine: Records, columns: Whole, period_s: float, burst_s: float, report: Report, over: Whole
) -> int:
    """Ends a period of `columns` (int64[m]) now: fills their columns of `report`, refills their pools.

    Running ones that want more memory than their limit are written to `over` (int64[N]); returns how many,
    or −1 − i if container i did more than its CPUs or its pool allow.
    """
    e = engine[0]
    found = 0
    for i in columns:
        box = box_at(e, i)
        _sync(e, box)
        _settle(e, i)
        used, pool = box.used, box.pool
        if not (used <= box.cap * period_s * (1.0 + 1e-9) + NANOSECOND and pool >= -2.0 * OVERDRAFT_S):
            return int(-1 - i)
        report.quota_cores[i] = box.quota
        report.unused_cores[i] = min(max(pool, 0.0) / period_s, box.quota)
        report.usage_cores[i] = used / period_s
        report.throttled[i] = box.throttled
        report.throttled_s[i] = box.throttled_s
        report.memory_bytes[i] = min(box.wanted_bytes, box.limit_bytes)
        box.nr_periods += box.throttled or (used > 0.0 and box.quota < inf)
        box.nr_throttled += box.throttled
        waiting_s = _waiting_s(e, box)
        begun_s = used + (waiting_s - box.backlog) + (box.lost_s - box.row_lost_s)
        box.arrived_s += begun_s
        box.done_s += used
        box.backlog = waiting_s
        box.row_demand_s = begun_s
        box.row_lost_s = box.lost_s
        box.used = 0.0
        box.throttled = False
        box.throttled_s = 0.0
        if box.status == _UP and box.wanted_bytes > box.limit_bytes:
            over[found] = i
            found += 1
        _refill(e, i, period_s, burst_s)
    return found


@kernel
def record(engine: Records, rows: Rows, row: int, columns: Whole, report: Report, period_s: float) -> None:
    """Writes row `row` of `columns`, whose period just ended, and forgets the reasons it recorded."""
    e = engine[0]
    for i in columns:
        box = box_at(e, i)
        rows.demand_cores[row, i] = box.row_demand_s / period_s
        rows.usage_cores[row, i] = report.usage_cores[i]
        rows.quota_cores[row, i] = report.quota_cores[i]
        rows.backlog_s[row, i] = box.backlog
        rows.throttled[row, i] = report.throttled[i]
        rows.throttled_s[row, i] = report.throttled_s[i]
        rows.memory_bytes[row, i] = report.memory_bytes[i]
        rows.limit_bytes[row, i] = box.limit_bytes
        rows.cpu_reason[row, i] = box.reason
        rows.up[row, i] = box.status <= _HELD
        box.reason = 0


@kernel
def stop(engine: Records, columns: Whole) -> None:
    """`columns` are held: nothing of theirs runs; those in their queues stay there."""
    e = engine[0]
    for i in columns:
        box = box_at(e, i)
        _sync(e, box)
        _settle(e, i)
        box.status = _HELD
        box.stalled = 0.0
        box.runs = False
        _pace(e, i, box)


@kernel
def start(engine: Records, columns: Whole) -> None:
    """`columns` run from now on, those that were down anew; `advance` is to finish what that begins."""
    e = engine[0]
    for i in columns:
        box = box_at(e, i)
        _sync(e, box)
        _charge(e, i, box.base_bytes if box.status >= _DOWN else 0)
        box.status = _UP
        box.runs = box.stalled == 0.0
        _pace(e, i, box)
        _admit_queued(e, i)


@kernel
def kill(engine: Records, columns: Whole, status: int) -> None:
    """All that `columns` do fails, and they become `status`; `advance` is to finish what that begins."""
    e = engine[0]
    for i in columns:
        box = box_at(e, i)
        _sync(e, box)
        _settle(e, i)
        box.status = status
        box.stalled = 0.0
        box.runs = False
        box.killed += box.busy + box.waiting
        box.lost_s += _waiting_s(e, box)
        box.v = 0.0
        box.runnable = 0
        box.idle_since_s = -inf
        box.woken_s = 0.0
        box.least_v = inf
        runnable_at(e, box.first).v = inf
        box.busy = 0
        box.waiting = 0
        box.head = NOBODY
        box.tail = NOBODY
        box.cached_bytes = 0
        box.wanted_bytes = 0
        _pace(e, i, box)
    for n in range(1, e.node_count):
        node = node_at(e, n)
        if (node.state == QUEUED or node.state == SERVED) and box_at(e, node.container).status >= _DOWN:
            node.state = KILLED
    _orphan_children(e)
    for n in range(1, e.node_count):
        if node_at(e, n).state == KILLED:
            _end(e, n, _FAILED)


@kernel
def _orphan_children(e: Any) -> None:
    """The calls of killed visits: those that never left are withdrawn, then the others go on for nobody."""
    for withdraw in (True, False):
        for n in range(1, e.node_count):
            node = node_at(e, n)
            if node.state == FREE or node.parent <= 0 or node_at(e, node.parent).state != KILLED:
                continue
            if (node.state == IN_LINE or node.state == BACKOFF) != withdraw:
                continue
            if node.state == KILLED:
                _disarm(e, n)
                _disconnect(e, n)
                node.parent = NOBODY
            else:
                _abandon(e, n)


@kernel
def inject(engine: Records, i: int) -> None:
    """The last of `requests` is due now at container i; `advance` is to finish what that begins."""
    e = engine[0]
    r = e.arrived
    e.opened = r + 1
    _due(e, r)
    n = _open(e, r)
    node_at(e, n).container = i
    _next(e, n, ENTER)


@kernel
def in_flight(engine: Records) -> int:
    """Visits that wait or work in a container, of whomever."""
    e = engine[0]
    count = 0
    for i in range(e.box_count):
        count += box_at(e, i).busy + box_at(e, i).waiting
    return count
