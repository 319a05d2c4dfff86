"""The compiled core of the request-level twin: exact events of requests, visits, CPU pools and delays.

For: the state of requests in a service graph and the kernels that move it from one event to the next. Not
for: what the control loop sees of it (physics.py), nor the data that goes in and comes out (model.py).
All kernels call each other and are compiled as one, so they share this module in spite of its length.

How time moves. Three kinds of things wait for a moment: CPU work, delays (network, backoff, timeouts), and
arrivals. The k runnable visits of a container share its CPUs evenly, so each container has a virtual
time V that grows at each visit's speed min(1, cap/k), a visit that needs p more CPU seconds ends at V + p,
and only the least of these matters: the container's next event is that, or the moment its pool is empty.
Containers of one host live in the host's time U, which grows at min(1, cores / wanted) of real time: when
many want its CPUs, one factor changes and no container is touched. A tournament tree over the host's
containers (by U), and one over hosts and delay lines (by real time), give the next event in log₂ steps.
Equal delays expire in the order they began, so each distinct delay is one queue.

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

from math import exp, inf
from typing import Any, NamedTuple

import numpy as np
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

# What a node is doing.
FREE, IN_LINE, BACKOFF, TRANSIT, QUEUED, SERVED, ENDED, KILLED = range(8)

# Why `advance` returned.
REACHED, NEEDS_ROOM, SIGNALLED = range(3)

# What a delay line's head does when its time has come.
DELAY, TIMEOUT = range(2)

_FIXED, _EXPONENTIAL = int(Draw.FIXED), int(Draw.EXPONENTIAL)
_PENDING, _OK, _TIMED_OUT = int(Status.PENDING), int(Status.OK), int(Status.TIMED_OUT)
_DROPPED, _FAILED = int(Status.DROPPED), int(Status.FAILED)
_UP, _HELD, _DOWN, _ABSENT = UP, HELD, DOWN, ABSENT


def _record(**fields: str) -> np.dtype[np.void]:
    return np.dtype(list(fields.items()), align=True)


CLOCK = _record(
    now="f8",
    arrived="i8",  # requests that were due so far: the index of the next arrival
    count="i8",  # requests known
    opened="i8",  # requests before this one are not in line for a client connection
    waiting="i8",  # requests in line for a client connection
    open="i8",  # client connections in use
    expiring="i8",  # requests before this one cannot time out any more
    ended="i8",
    told="i8",  # ended requests that a signal was given for
    free="u4",  # head of the free nodes
    spare="i8",  # how many are free
    todo="u4",  # head of the attempts that ended and whose callers do not know yet
    reserve="i8",  # nodes that one event may need
    busy_with="i8",  # container whose event is handled: its next one is worked out at the end
    over="i8",  # entries of Engine.over
    hops="i8",
    orphans="i8",
    connections="i8",
    queue="i8",
    timeout_s="f8",
    watch="?",
)
NODE = _record(
    parent="i4",  # > 0: the visit that called; < 0: request −1 − parent; NOBODY
    handler="u4",
    call="u4",
    stage="u4",  # the next one
    container="u4",
    attempts="i4",  # further ones that are allowed
    pending="i4",  # calls of the stage not ended
    state="u1",
    outcome="u1",
    failed="?",
    pooled="?",  # holds a connection of its call's pool
    timed="?",  # is in its timeout's line
    next="u4",
    prev="u4",
    later="u4",
    sooner="u4",
    due_s="f8",
    timeout_at_s="f8",
    part_s="f8",
)
BOX = _record(
    # Fleet's fields and what moves with them, hot ones first
    v="f8",
    since="f8",
    rate="f8",
    speed="f8",
    pool="f8",
    used="f8",
    backlog="f8",
    cap="f8",
    runnable="i4",
    first="u4",  # its runnable visits are Engine.runnable[first …]
    leaf="u4",
    host="u4",
    status="u1",
    empties="?",  # its next event is that the pool is empty
    over="?",
    throttled="?",
    reason="u1",
    head="u4",
    tail="u4",
    busy="i8",
    workers="i8",
    waiting="i8",
    queue="i8",
    stalled="f8",
    stalled_at_s="f8",
    throttled_s="f8",
    begun_s="f8",
    wanted_bytes="i8",
    limit_bytes="i8",
    base_bytes="i8",
    request_bytes="i8",
    cache_bytes="i8",
    cache_request_bytes="i8",
    finished="i8",
    visits="i8",
    dropped="i8",
    refused="i8",
    killed="i8",
    quota="f8",
    cpu_order="i8",
    memory_order="i8",
    arrived_s="f8",
    done_s="f8",
    lost_s="f8",
    nr_periods="i8",
    nr_throttled="i8",
    # as of the end of its last period
    row_demand_s="f8",
    row_backlog_s="f8",
    row_lost_s="f8",
)
HOST = _record(
    u="f8",
    at_s="f8",
    factor="f8",
    wanted="f8",
    cores="f8",
    next_u="f8",
    contended="?",
    tree="u4",
    leaves="u4",
)
LEAF = _record(key="f8", owner="u4")
LINE = _record(delay_s="f8", head="u4", tail="u4", kind="u1")
POOL = _record(connections="i8", busy="i8", head="u4", tail="u4")
SERVICE = _record(first="i8", count="i8", turn="i8")
HANDLER = _record(
    service="u4", draw="u1", first_stage="u4", last_stage="u4", share="f8", mean_s="f8", mu="f8", sigma="f8"
)
CALL = _record(
    handler="u4", retries="i4", pool="i4", network="i4", backoff="i4", timeout="i4", probability="f8"
)
RUNNABLE = _record(v="f8", node="u4")
REQUEST = _record(at_s="f8", end_s="f8", kind="i4", node="u4", status="u1")


class Engine(NamedTuple):
    """All state; arrays of records named as their owners above.

    tree: the hosts' tournament trees one after the other, each of 2·leaves with its root at 1; top: the
    tree over hosts, delay lines and (its last owner) the client's timeouts; runnable: per container a heap by
    v; requests: what the log is made of; order: requests in the order they ended; over: containers that
    may exceed their memory limit; request_handler: int64 per kind.
    """

    clock: Records
    nodes: Records
    boxes: Records
    hosts: Records
    tree: Records
    top: Records
    lines: Records
    pools: Records
    services: Records
    handlers: Records
    first_call: Whole
    calls: Records
    runnable: Records
    requests: Records
    order: Whole
    over: Whole
    request_handler: Whole


# --- next events -------------------------------------------------------------------------------------


@kernel
def _place(tree: Records, base: int, leaves: int, leaf: int, owner: int, key: float) -> float:
    """Sets one leaf's key in a tournament tree; returns the least key of all."""
    i = leaves + leaf
    best, winner = key, np.uint32(owner)
    tree[base + i].key = best
    tree[base + i].owner = winner
    while i > 1:
        other = tree[base + (i ^ 1)]
        if other.key < best:
            best, winner = other.key, other.owner
        i >>= 1
        tree[base + i].key = best
        tree[base + i].owner = winner
    return best


@kernel
def _place_line(e: Engine, owner: int, key: float) -> None:
    """When a delay line or the client's timeouts are due next."""
    _place(e.top, 0, len(e.top) >> 1, len(e.hosts) + owner, len(e.hosts) + owner, key)


@kernel
def _place_host(e: Engine, h: int) -> None:
    host = e.hosts[h]
    key = host.at_s + (host.next_u - host.u) / host.factor
    _place(e.top, 0, len(e.top) >> 1, h, h, key)


@kernel
def _host_time(e: Engine, h: int, now: float) -> float:
    host = e.hosts[h]
    u: float = host.u + (now - host.at_s) * host.factor
    return u


@kernel
def _want(e: Engine, h: int, cpus: float) -> None:
    """The host's containers want `cpus` more: who shares too few CPUs runs slower."""
    host = e.hosts[h]
    host.wanted += cpus
    if not host.contended:
        return
    factor = min(1.0, host.cores / host.wanted) if host.wanted > 0.0 else 1.0
    if factor != host.factor:
        now = e.clock[0].now
        host.u += (now - host.at_s) * host.factor
        host.at_s = now
        host.factor = factor
        _place_host(e, h)


@kernel
def _sync(e: Engine, i: int) -> None:
    """Brings container i's CPU accounts up to now."""
    box = e.boxes[i]
    u = _host_time(e, box.host, e.clock[0].now)
    passed = u - box.since
    box.since = u
    burnt = box.rate * passed
    box.v += box.speed * passed
    box.pool -= burnt
    box.used += burnt
    box.backlog -= burnt


@kernel
def _pace(e: Engine, i: int) -> None:
    """Works out how fast container i (synced) runs now and when its next event is."""
    box = e.boxes[i]
    rate, speed, key = 0.0, 0.0, inf
    k = box.runnable
    if k > 0 and box.status == _UP and box.stalled == 0.0:
        rate, speed = float(k), 1.0
        if rate > box.cap:
            rate = box.cap
            speed = rate / k
        left = e.runnable[box.first].v - box.v
        allowed = box.pool + OVERDRAFT_S
        box.empties = left * rate > allowed * speed
        key = box.since + (allowed / rate if box.empties else left / speed)
    box.speed = speed
    if rate != box.rate:
        change = rate - box.rate
        box.rate = rate
        _want(e, box.host, change)
    host = e.hosts[box.host]
    least = _place(e.tree, host.tree, host.leaves, box.leaf, i, key)
    if least != host.next_u:
        host.next_u = least
        _place_host(e, box.host)


# --- queues of nodes ---------------------------------------------------------------------------------


@kernel
def _append(nodes: Records, owner: Any, n: int) -> None:
    """Puts node n at the end of a queue; owner: a record with head and tail."""
    node = nodes[n]
    node.next = NOBODY
    node.prev = owner.tail
    if owner.tail == NOBODY:
        owner.head = n
    else:
        nodes[owner.tail].next = n
    owner.tail = n


@kernel
def _unlink(nodes: Records, owner: Any, n: int) -> None:
    """Takes node n out of the queue it is in."""
    node = nodes[n]
    if node.prev == NOBODY:
        owner.head = node.next
    else:
        nodes[node.prev].next = node.next
    if node.next == NOBODY:
        owner.tail = node.prev
    else:
        nodes[node.next].prev = node.prev


@kernel
def _delay(e: Engine, index: int, n: int) -> None:
    line = e.lines[index]
    due_s = e.clock[0].now + line.delay_s
    e.nodes[n].due_s = due_s
    if line.head == NOBODY:
        _place_line(e, index, due_s)
    _append(e.nodes, line, n)


@kernel
def _arm(e: Engine, index: int, n: int) -> None:
    """Starts the timeout of node n. (A line's key may be earlier than its head, which costs one look.)"""
    line, node = e.lines[index], e.nodes[n]
    node.timeout_at_s = e.clock[0].now + line.delay_s
    node.timed = True
    node.later = NOBODY
    node.sooner = line.tail
    if line.tail == NOBODY:
        line.head = n
        _place_line(e, index, node.timeout_at_s)
    else:
        e.nodes[line.tail].later = n
    line.tail = n


@kernel
def _disarm(e: Engine, n: int) -> None:
    node = e.nodes[n]
    if not node.timed:
        return
    node.timed = False
    line = e.lines[e.calls[node.call].timeout]
    if node.sooner == NOBODY:
        line.head = node.later
    else:
        e.nodes[node.sooner].later = node.later
    if node.later == NOBODY:
        line.tail = node.sooner
    else:
        e.nodes[node.later].sooner = node.sooner


@kernel
def _take_node(e: Engine) -> int:
    clock = e.clock[0]
    n: int = clock.free
    clock.free = e.nodes[n].next
    clock.spare -= 1
    return n


@kernel
def _free_node(e: Engine, n: int) -> None:
    clock, node = e.clock[0], e.nodes[n]
    node.state = FREE
    node.next = clock.free
    clock.free = n
    clock.spare += 1


# --- runnable visits of a container ------------------------------------------------------------------


@kernel
def _push(heap: Records, first: int, count: int, v: float, n: int) -> None:
    i = count
    while i > 0:
        up = (i - 1) >> 1
        above = heap[first + up]
        if above.v <= v:
            break
        heap[first + i].v = above.v
        heap[first + i].node = above.node
        i = up
    heap[first + i].v = v
    heap[first + i].node = n


@kernel
def _pop(heap: Records, first: int, count: int) -> None:
    """Removes the least of `count` entries."""
    last = count - 1
    v, n = heap[first + last].v, heap[first + last].node
    i = 0
    while True:
        down = 2 * i + 1
        if down >= last:
            break
        if down + 1 < last and heap[first + down + 1].v < heap[first + down].v:
            down += 1
        if heap[first + down].v >= v:
            break
        heap[first + i].v = heap[first + down].v
        heap[first + i].node = heap[first + down].node
        i = down
    heap[first + i].v = v
    heap[first + i].node = n


# --- memory ------------------------------------------------------------------------------------------


@kernel
def _charge(e: Engine, i: int) -> None:
    """What container i wants to hold now; notes it when that is more than it may."""
    box = e.boxes[i]
    cache = min(box.cache_bytes, box.finished * box.cache_request_bytes)
    box.wanted_bytes = box.base_bytes + cache + box.busy * box.request_bytes
    if box.wanted_bytes > box.limit_bytes and not box.over:
        clock = e.clock[0]
        box.over = True
        e.over[clock.over] = i
        clock.over += 1


@kernel
def exceeding(e: Engine) -> int:
    """Drops from `over` whoever is within its limit again or not running; returns how many are left."""
    clock = e.clock[0]
    left = 0
    for j in range(clock.over):
        i = e.over[j]
        box = e.boxes[i]
        if box.status == _UP and box.wanted_bytes > box.limit_bytes:
            e.over[left] = i
            left += 1
        else:
            box.over = False
    clock.over = left
    return left


# --- visits ------------------------------------------------------------------------------------------


@kernel
def _draw(handler: Any, rng: np.random.Generator) -> float:
    """CPU seconds of one part of a visit."""
    mean_s: float = handler.mean_s
    if handler.draw == _FIXED:
        return mean_s
    if handler.draw == _EXPONENTIAL:
        return mean_s * rng.standard_exponential()
    return exp(handler.mu + handler.sigma * rng.standard_normal())


@kernel
def _begin_part(e: Engine, n: int) -> None:
    """A part of visit n becomes runnable."""
    node = e.nodes[n]
    i = node.container
    box = e.boxes[i]
    _sync(e, i)
    _push(e.runnable, box.first, box.runnable, box.v + node.part_s, n)
    box.runnable += 1
    box.backlog += node.part_s
    box.begun_s += node.part_s
    if box.stalled > 0.0:
        _settle(e, i)
        box.stalled = min(float(box.runnable), box.cap)
    elif i != e.clock[0].busy_with:
        _pace(e, i)


@kernel
def _serve(e: Engine, rng: np.random.Generator, n: int) -> None:
    """Visit n takes a worker of its container and begins."""
    node = e.nodes[n]
    box = e.boxes[node.container]
    handler = e.handlers[node.handler]
    box.busy += 1
    node.state = SERVED
    node.stage = handler.first_stage
    node.failed = False
    node.part_s = _draw(handler, rng) * handler.share
    _charge(e, node.container)
    _begin_part(e, n)


@kernel
def _enter(e: Engine, rng: np.random.Generator, n: int, i: int) -> None:
    """Visit n comes to container i: to a worker, into its queue, or away."""
    box, node = e.boxes[i], e.nodes[n]
    node.container = i
    if box.status >= _DOWN:
        box.refused += 1
        _end(e, n, _FAILED)
    elif box.status == _UP and box.busy < box.workers and box.waiting == 0:
        _serve(e, rng, n)
    elif box.waiting < box.queue:
        node.state = QUEUED
        box.waiting += 1
        _append(e.nodes, box, n)
    else:
        box.dropped += 1
        _end(e, n, _DROPPED)


@kernel
def _arrive(e: Engine, rng: np.random.Generator, n: int) -> None:
    """Visit n comes to the service: replicas in turn, without those that are down."""
    service = e.services[e.handlers[e.nodes[n].handler].service]
    i = service.first
    if service.count > 1:
        turn = service.turn
        for _ in range(service.count):
            i = service.first + turn
            turn += 1
            if turn >= service.count:
                turn = 0
            if e.boxes[i].status < _DOWN:
                break
        service.turn = turn
    _enter(e, rng, n, i)


@kernel
def _end(e: Engine, n: int, outcome: int) -> None:
    """Attempt n ended; its caller is told by `_tell`."""
    clock, node = e.clock[0], e.nodes[n]
    node.state = ENDED
    node.outcome = outcome
    node.next = clock.todo
    clock.todo = n


@kernel
def _admit_queued(e: Engine, rng: np.random.Generator, i: int) -> None:
    """Those in container i's queue take what workers are free."""
    box = e.boxes[i]
    while box.waiting > 0 and box.busy < box.workers and box.status == _UP:
        n = box.head
        _unlink(e.nodes, box, n)
        box.waiting -= 1
        _serve(e, rng, n)


@kernel
def _leave(e: Engine, rng: np.random.Generator, n: int, outcome: int) -> None:
    """Visit n gives its worker back."""
    clock = e.clock[0]
    i = e.nodes[n].container
    box = e.boxes[i]
    box.busy -= 1
    box.finished += 1
    box.visits += 1
    clock.hops += 1
    _charge(e, i)
    _end(e, n, outcome)
    if box.waiting > 0:
        _admit_queued(e, rng, i)


@kernel
def _call_stage(e: Engine, rng: np.random.Generator, n: int) -> None:
    """Visit n makes the calls of its next stage, or goes on at once if chance leaves none."""
    node = e.nodes[n]
    stage = node.stage
    node.stage += 1
    node.pending = 1
    for c in range(e.first_call[stage], e.first_call[stage + 1]):
        call = e.calls[c]
        if call.probability < 1.0 and rng.random() >= call.probability:
            continue
        child = _take_node(e)
        made = e.nodes[child]
        made.parent = n
        made.call = c
        made.handler = call.handler
        made.attempts = call.retries
        node.pending += 1
        _attempt(e, rng, child)
    node.pending -= 1
    if node.pending == 0:
        _begin_part(e, n)


# --- calls -------------------------------------------------------------------------------------------


@kernel
def _attempt(e: Engine, rng: np.random.Generator, n: int) -> None:
    """A caller makes call n: its timeout starts, then it needs a connection."""
    node = e.nodes[n]
    call = e.calls[node.call]
    node.pooled = False
    node.timed = False
    if call.timeout >= 0:
        _arm(e, call.timeout, n)
    if call.pool >= 0:
        pool = e.pools[call.pool]
        if pool.busy >= pool.connections:
            node.state = IN_LINE
            _append(e.nodes, pool, n)
            return
        pool.busy += 1
        node.pooled = True
    _send(e, rng, n)


@kernel
def _send(e: Engine, rng: np.random.Generator, n: int) -> None:
    network = e.calls[e.nodes[n].call].network
    if network >= 0:
        e.nodes[n].state = TRANSIT
        _delay(e, network, n)
    else:
        _arrive(e, rng, n)


@kernel
def _disconnect(e: Engine, rng: np.random.Generator, n: int) -> None:
    """Call n gives its connection back: the next in line gets it."""
    node = e.nodes[n]
    if not node.pooled:
        return
    node.pooled = False
    pool = e.pools[e.calls[node.call].pool]
    following = pool.head
    if following == NOBODY:
        pool.busy -= 1
        return
    _unlink(e.nodes, pool, following)
    e.nodes[following].pooled = True
    _send(e, rng, following)


@kernel
def _tell(e: Engine, rng: np.random.Generator) -> None:
    """Tells callers of attempts that ended, and whoever hears of it through them, until all is quiet."""
    clock = e.clock[0]
    while clock.todo != NOBODY:
        n = clock.todo
        node = e.nodes[n]
        clock.todo = node.next
        if node.parent < 0:
            r = -1 - node.parent
            outcome = node.outcome
            _free_node(e, n)
            _close(e, rng, r, outcome)
            continue
        if node.parent == NOBODY:
            _free_node(e, n)
            continue
        _disarm(e, n)
        _disconnect(e, rng, n)
        if node.outcome != _OK and node.attempts > 0:
            node.attempts -= 1
            backoff = e.calls[node.call].backoff
            if backoff >= 0:
                node.state = BACKOFF
                _delay(e, backoff, n)
            else:
                _attempt(e, rng, n)
            continue
        p = node.parent
        caller = e.nodes[p]
        caller.failed |= node.outcome != _OK
        caller.pending -= 1
        _free_node(e, n)
        if caller.pending == 0:
            if not caller.failed:
                _begin_part(e, p)
            elif e.boxes[caller.container].status == _UP:
                _leave(e, rng, p, _FAILED)
            else:
                caller.part_s = 0.0  # a held process answers when it runs again
                _begin_part(e, p)


@kernel
def _abandon(e: Engine, rng: np.random.Generator, n: int) -> None:
    """Nobody waits for attempt n any more: withdrawn if it is still with its caller, an orphan otherwise."""
    node = e.nodes[n]
    if node.parent > 0:
        _disarm(e, n)
        call = e.calls[node.call]
        if node.state == IN_LINE:
            _unlink(e.nodes, e.pools[call.pool], n)
            _free_node(e, n)
            return
        if node.state == BACKOFF:
            _unlink(e.nodes, e.lines[call.backoff], n)
            _free_node(e, n)
            return
        _disconnect(e, rng, n)
    node.parent = NOBODY
    e.clock[0].orphans += 1


@kernel
def _time_out(e: Engine, rng: np.random.Generator, n: int) -> None:
    """The caller gives attempt n up; a new node tells it so unless n never left."""
    node = e.nodes[n]
    if node.state == IN_LINE:
        _disarm(e, n)
        _unlink(e.nodes, e.pools[e.calls[node.call].pool], n)
        _end(e, n, _TIMED_OUT)
        return
    m = _take_node(e)
    heir = e.nodes[m]
    heir.parent = node.parent
    heir.call = node.call
    heir.handler = node.handler
    heir.attempts = node.attempts
    heir.pooled = False
    heir.timed = False
    _abandon(e, rng, n)
    _end(e, m, _TIMED_OUT)


# --- the client --------------------------------------------------------------------------------------


@kernel
def _open(e: Engine, r: int) -> int:
    """Request r gets a connection; returns the node that stands for it."""
    n = _take_node(e)
    node, request = e.nodes[n], e.requests[r]
    e.clock[0].open += 1
    node.parent = -1 - r
    node.handler = e.request_handler[request.kind]
    node.pooled = False
    node.timed = False
    request.node = n
    return n


@kernel
def _log(e: Engine, r: int, outcome: int) -> None:
    clock, request = e.clock[0], e.requests[r]
    request.status = outcome
    request.end_s = clock.now
    request.node = NOBODY
    e.order[clock.ended] = r
    clock.ended += 1


@kernel
def _close(e: Engine, rng: np.random.Generator, r: int, outcome: int) -> None:
    """Request r, which was open, ended; the next in line for its connection is opened."""
    clock = e.clock[0]
    _log(e, r, outcome)
    clock.open -= 1
    if clock.waiting == 0:
        return
    r = clock.opened
    while e.requests[r].status != _PENDING:
        r += 1
    clock.opened = r + 1
    clock.waiting -= 1
    _arrive(e, rng, _open(e, r))


@kernel
def _due(e: Engine, r: int) -> None:
    """Request r is due: from now on it may time out."""
    clock = e.clock[0]
    clock.arrived = r + 1
    if clock.timeout_s < inf and clock.expiring == r:
        _place_line(e, len(e.lines), e.requests[r].at_s + clock.timeout_s)


@kernel
def _ask(e: Engine, rng: np.random.Generator) -> None:
    """The next request of the arrivals is due."""
    clock = e.clock[0]
    r = clock.arrived
    _due(e, r)
    if clock.connections == 0 or clock.open < clock.connections:
        clock.opened = r + 1
        _arrive(e, rng, _open(e, r))
    elif clock.waiting < clock.queue:
        if clock.waiting == 0:
            clock.opened = r
        clock.waiting += 1
    else:
        _log(e, r, _DROPPED)


@kernel
def _expire(e: Engine, rng: np.random.Generator) -> None:
    """The client gives up what is due by now; requests time out in the order in which they were due."""
    clock = e.clock[0]
    r = clock.expiring
    while r < clock.arrived and e.requests[r].status != _PENDING:
        r += 1
    clock.expiring = r
    if r == clock.arrived:
        _place_line(e, len(e.lines), inf)
        return
    due_s = e.requests[r].at_s + clock.timeout_s
    if due_s > clock.now:
        _place_line(e, len(e.lines), due_s)
        return
    n = e.requests[r].node
    if n == NOBODY:
        clock.waiting -= 1
        _log(e, r, _TIMED_OUT)
    else:
        _abandon(e, rng, n)
        _close(e, rng, r, _TIMED_OUT)


# --- events ------------------------------------------------------------------------------------------


@kernel
def _settle(e: Engine, i: int) -> None:
    """Brings container i's throttled time up to now."""
    box, now = e.boxes[i], e.clock[0].now
    if box.stalled > 0.0:
        box.throttled_s += box.stalled * (now - box.stalled_at_s)
        box.stalled_at_s = now


@kernel
def _on_cpu(e: Engine, rng: np.random.Generator, i: int) -> None:
    """Container i's pool is empty, or its first visit has burnt its part."""
    clock, box = e.clock[0], e.boxes[i]
    _sync(e, i)
    if box.empties:
        box.stalled = min(float(box.runnable), box.cap)
        box.stalled_at_s = clock.now
        box.throttled = True
        _pace(e, i)
        return
    n = e.runnable[box.first].node
    box.v = e.runnable[box.first].v
    _pop(e.runnable, box.first, box.runnable)
    box.runnable -= 1
    if box.runnable == 0:
        box.v = 0.0
        box.backlog = 0.0
    clock.busy_with = i
    node = e.nodes[n]
    if node.failed:
        _leave(e, rng, n, _FAILED)
    elif node.stage < e.handlers[node.handler].last_stage:
        _call_stage(e, rng, n)
    else:
        _leave(e, rng, n, _OK)
    _tell(e, rng)
    clock.busy_with = -1
    _pace(e, i)


@kernel
def _on_line(e: Engine, rng: np.random.Generator, index: int) -> None:
    """The head of a delay line is due, or was taken out of it before."""
    now = e.clock[0].now
    if index == len(e.lines):
        _expire(e, rng)
        return
    line = e.lines[index]
    n = line.head
    if n == NOBODY:
        _place_line(e, index, inf)
        return
    node = e.nodes[n]
    due_s = node.due_s if line.kind == DELAY else node.timeout_at_s
    if due_s > now:
        _place_line(e, index, due_s)
        return
    if line.kind == TIMEOUT:
        _time_out(e, rng, n)
        return
    _unlink(e.nodes, line, n)
    _place_line(e, index, e.nodes[line.head].due_s if line.head != NOBODY else inf)
    if node.state == TRANSIT:
        _arrive(e, rng, n)
    else:
        _attempt(e, rng, n)


@kernel
def advance(e: Engine, rng: np.random.Generator, until: float) -> int:
    """Handles all events up to `until` (seconds; arrivals only before it), or stops where the loop is needed.

    Returns REACHED, NEEDS_ROOM (give it more nodes and call again), or SIGNALLED: at `clock.now` a running
    container exceeds its memory limit, or (watch) a request has ended. Nothing happens when the clock is
    past `until`, be it by rounding.
    """
    clock = e.clock[0]
    hosts = len(e.hosts)
    while True:
        if clock.over > 0 and exceeding(e) > 0:
            return SIGNALLED
        if clock.watch and clock.ended > clock.told:
            clock.told = clock.ended
            return SIGNALLED
        if clock.spare < clock.reserve:
            return NEEDS_ROOM
        at = e.top[1].key
        due = e.requests[clock.arrived].at_s if clock.arrived < clock.count else inf
        if due < at:
            if due >= until:
                break
            clock.now = max(clock.now, due)
            _ask(e, rng)
        else:
            if at > until or at == inf:
                break
            clock.now = max(clock.now, at)
            owner = e.top[1].owner
            if owner < hosts:
                _on_cpu(e, rng, e.tree[e.hosts[owner].tree + 1].owner)
            else:
                _on_line(e, rng, owner - hosts)
        if clock.todo != NOBODY:
            _tell(e, rng)
    clock.now = max(clock.now, until)
    return REACHED


# --- what the control loop does ----------------------------------------------------------------------


@kernel
def _refill(e: Engine, i: int, period_s: float, burst_s: float) -> None:
    """Refill of container i, synced: the pool fills, the throttled run again."""
    box = e.boxes[i]
    full = box.quota * period_s
    box.pool = min(box.pool + full, full + burst_s)
    box.stalled = 0.0
    _pace(e, i)


@kernel
def write_quotas(
    e: Engine,
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
    changed: int = 0
    for j in range(len(ids)):
        slot = ids[j] & SLOT_MASK
        if slot >= len(column_of):
            continue
        i = column_of[slot]
        if i < 0 or issued[i] != ids[j] or e.boxes[i].cpu_order > order:
            continue
        if not quotas[j] > 0.0:
            return -1
        box = e.boxes[i]
        changed += quotas[j] != box.quota
        box.quota = quotas[j]
        box.cpu_order = order
        box.reason = reasons[j]
        _sync(e, i)
        _settle(e, i)
        _refill(e, i, period_s, burst_s)
    return changed


@kernel
def end_period(
    e: Engine, columns: Whole, period_s: float, burst_s: float, report: Report, over: Whole
) -> int:
    """Ends a period of `columns` (int64[m]) now: fills their columns of `report`, refills their pools.

    Running ones that want more memory than their limit are written to `over` (int64[N]); returns how many,
    or −1 − i if container i did more than its CPUs or its pool allow.
    """
    found = 0
    for i in columns:
        box = e.boxes[i]
        _sync(e, i)
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
        if box.quota < inf:
            box.nr_periods += (used > 0.0) or box.throttled
        box.nr_throttled += box.throttled
        box.arrived_s += box.begun_s
        box.done_s += used
        box.row_demand_s = box.begun_s
        box.row_backlog_s = max(box.backlog, 0.0)
        box.row_lost_s = box.lost_s
        box.begun_s = 0.0
        box.used = 0.0
        box.throttled = False
        box.throttled_s = 0.0
        if box.status == _UP and box.wanted_bytes > box.limit_bytes:
            over[found] = i
            found += 1
        _refill(e, i, period_s, burst_s)
    return found


@kernel
def record(e: Engine, rows: Rows, row: int, columns: Whole, report: Report, period_s: float) -> None:
    """Writes row `row` of `columns`, whose period just ended, and forgets the reasons it recorded."""
    for i in columns:
        box = e.boxes[i]
        rows.demand_cores[row, i] = box.row_demand_s / period_s
        rows.usage_cores[row, i] = report.usage_cores[i]
        rows.quota_cores[row, i] = report.quota_cores[i]
        rows.backlog_s[row, i] = box.row_backlog_s
        rows.throttled[row, i] = report.throttled[i]
        rows.throttled_s[row, i] = report.throttled_s[i]
        rows.memory_bytes[row, i] = report.memory_bytes[i]
        rows.limit_bytes[row, i] = box.limit_bytes
        rows.cpu_reason[row, i] = box.reason
        rows.up[row, i] = box.status <= _HELD
        box.reason = 0


@kernel
def stop(e: Engine, columns: Whole) -> None:
    """`columns` are held: nothing of theirs runs; those in their queues stay there."""
    for i in columns:
        box = e.boxes[i]
        _sync(e, i)
        _settle(e, i)
        box.status = _HELD
        box.stalled = 0.0
        _pace(e, i)


@kernel
def start(e: Engine, rng: np.random.Generator, columns: Whole) -> None:
    """`columns` run from now on, with what they hold or, after being down, anew."""
    for i in columns:
        box = e.boxes[i]
        _sync(e, i)
        box.status = _UP
        _charge(e, i)
        _pace(e, i)
        _admit_queued(e, rng, i)
    _tell(e, rng)


@kernel
def kill(e: Engine, rng: np.random.Generator, columns: Whole, status: int) -> None:
    """All that `columns` were doing fails; they become DOWN or ABSENT and forget their caches."""
    for i in columns:
        box = e.boxes[i]
        _sync(e, i)
        _settle(e, i)
        box.status = status
        box.stalled = 0.0
        box.killed += box.busy + box.waiting
        box.lost_s += box.backlog
        box.backlog = 0.0
        box.v = 0.0
        box.runnable = 0
        box.busy = 0
        box.waiting = 0
        box.head = NOBODY
        box.tail = NOBODY
        box.finished = 0
        box.wanted_bytes = 0
        _pace(e, i)
    for n in range(1, len(e.nodes)):
        node = e.nodes[n]
        if (node.state == QUEUED or node.state == SERVED) and e.boxes[node.container].status >= _DOWN:
            node.state = KILLED
    _orphan_children(e, rng)
    for n in range(1, len(e.nodes)):
        if e.nodes[n].state == KILLED:
            _end(e, n, _FAILED)
    _tell(e, rng)


@kernel
def _orphan_children(e: Engine, rng: np.random.Generator) -> None:
    """The calls of killed visits: those that never left are withdrawn, then the others go on for nobody."""
    for withdraw in (True, False):
        for n in range(1, len(e.nodes)):
            node = e.nodes[n]
            if node.state == FREE or node.parent <= 0 or e.nodes[node.parent].state != KILLED:
                continue
            if (node.state == IN_LINE or node.state == BACKOFF) != withdraw:
                continue
            if node.state < ENDED:
                _abandon(e, rng, n)
            else:
                _disarm(e, n)
                _disconnect(e, rng, n)
                node.parent = NOBODY


@kernel
def inject(e: Engine, rng: np.random.Generator, i: int) -> None:
    """The request that was added last to `requests` is due now and goes straight to container i."""
    clock = e.clock[0]
    r = clock.arrived
    clock.opened = r + 1
    _due(e, r)
    _enter(e, rng, _open(e, r), i)
    _tell(e, rng)


@kernel
def in_flight(e: Engine) -> int:
    """Visits that wait or work in a container, of whomever."""
    count = 0
    for i in range(len(e.boxes)):
        count += e.boxes[i].busy + e.boxes[i].waiting
    return count
