"""Visits of the request engine: from the call through the worker, the CPU parts and further calls to its end.

For: attempts, connections, replicas, workers, stages, retries and timeouts of calls. A node is a visit or the
attempt to make one. Not for: client connections and the order of events (events.py).
"""

from __future__ import annotations

from math import exp
from typing import Any

from twin.containers.cfs import DOWN, UP
from twin.containers.compiled import inlined, package_kernel
from twin.containers.requests.engine.parts import begin_part
from twin.containers.requests.engine.records import (
    ARRIVE,
    ATTEMPT,
    BACKOFF,
    DROPPED,
    ENDED,
    ENTER,
    EXPONENTIAL,
    FAILED,
    FIXED,
    IN_LINE,
    NOBODY,
    OK,
    QUEUED,
    RUN,
    SEND,
    SERVE,
    SERVED,
    TIMED_OUT,
    TRANSIT,
    call_at,
    container_at,
    exponential_at,
    line_at,
    node_at,
    normal_at,
    pool_at,
    rarely,
    stage_at,
    uniform_at,
)
from twin.containers.requests.engine.waiting import (
    append,
    cancel_timeout,
    charge_memory,
    free_node,
    pace_by,
    schedule,
    start_delay,
    start_timeout,
    sync,
    take_node,
    taken_s,
    unlink,
)


@package_kernel
def end_attempt(e: Any, n: int, outcome: int) -> None:
    """End attempt n. Its caller will receive the outcome."""
    node_at(e, n).outcome = outcome
    schedule(e, n, ENDED)


@inlined
def draw_demand_s(e: Any, call: Any) -> float:
    """Draw the CPU seconds of a visit."""
    scale: float = call.scale
    if call.draw == FIXED:
        return scale
    if call.draw == EXPONENTIAL:
        e.numbers -= 1
        e.exponential += 1
        drawn_s: float = scale * exponential_at(e, e.exponential - 1).value
        return drawn_s
    e.numbers -= 1
    e.normal += 1
    logarithm: float = scale + call.sigma * normal_at(e, e.normal - 1).value
    return exp(logarithm)


@inlined
def chance(e: Any, probability: float) -> bool:
    """Return True with the given probability."""
    if probability >= 1.0:
        return True
    e.numbers -= 1
    e.uniform += 1
    yes: bool = uniform_at(e, e.uniform - 1).value < probability
    return yes


@inlined
def pick_replica(e: Any, call: Any) -> int:
    """Return the container that a visit goes to. Replicas take turns; replicas that are down are skipped."""
    i: int = call.first
    if call.replicas > 1:
        first = container_at(e, i)
        turn = first.turn
        for _ in range(call.replicas):
            i = call.first + turn
            turn += 1
            if turn >= call.replicas:
                turn = 0
            if container_at(e, i).status < DOWN:
                break
        first.turn = turn
    return i


@inlined
def connect(e: Any, n: int) -> bool:
    """Let a caller make call n: start its timeout and take a connection.

    Returns False if the call waits for a connection.
    """
    node = node_at(e, n)
    call = call_at(e, node.call)
    if call.timeout >= 0:
        start_timeout(e, call.timeout, n)
    if call.pool >= 0:
        pool = pool_at(e, call.pool)
        if pool.busy >= pool.connections:
            node.state = IN_LINE
            append(e, pool, n)
            return False
        pool.busy += 1
        node.pooled = True
    return True


@inlined
def take_memory(e: Any, i: int) -> None:
    """Give a visit that just took a worker of container i its memory, kept or new."""
    container = container_at(e, i)
    if e.keep_s > 0.0:
        container.most_busy = max(container.most_busy, container.busy)
        if container.kept > 0:
            container.kept -= 1
            return
    charge_memory(e, i, container.request_bytes)


@inlined
def enter(e: Any, n: int, i: int) -> bool:
    """Give visit n a worker of container i. Return False if it waits for a worker or is dropped."""
    container, node = container_at(e, i), node_at(e, n)
    node.container = i
    # While the container is up, no visit waits if a worker is free.
    if container.status == UP and container.busy < container.workers:
        container.busy += 1
        take_memory(e, i)
        return True
    if container.status >= DOWN:
        container.refused += 1
        node.outcome = FAILED
        node.state = ENDED
    elif container.waiting < container.queue:
        node.state = QUEUED
        container.waiting += 1
        append(e, container, n)
    else:
        container.dropped += 1
        node.outcome = DROPPED
        node.state = ENDED
    return False


@package_kernel
def wake(e: Any, container: Any) -> None:
    """Add the CPU cost of waking up if the container was idle until now."""
    if container.runnable == 0:
        container.woken_s += e.wake_s * (1.0 - exp((container.idle_since_s - e.now) / e.wake_tau_s))
        container.idle_since_s = e.now


@inlined
def settle_throttling(e: Any, i: int) -> None:
    """Update the throttled time of container i to the present instant."""
    container, now = container_at(e, i), e.now
    if container.stalled > 0.0:
        container.throttled_s += container.stalled * (now - container.stalled_at_s)
        container.stalled_at_s = now


@package_kernel
def take_cpu(e: Any, container: Any) -> float:
    """Give a container (synced) the CPU for a part that begins. Return its pool with what that CPU has kept.

    An idle container may move to another CPU; what the CPU that it leaves has kept stays behind. The second
    part of a container that runs takes another CPU beside the first.
    """
    there = container.stranded * container.elsewhere
    if container.runnable == 0 and there + taken_s(container) > 0.0 and chance(e, e.moves):
        kept = taken_s(container)
        container.stranded += kept - there
        container.pool += there - kept
        container.silo_end = container.used + there
    elif container.runnable == 1 and container.cap > 1.0:
        container.stranded -= there
        container.pool += there
    return float(container.pool)


@inlined
def run_part(e: Any, node: Any, n: int, i: int, part_s: float) -> None:
    """Make a part of visit n runnable in container i, which needs part_s CPU seconds."""
    node.state = SERVED
    container = container_at(e, i)
    since, v, pool = sync(e, container)
    if rarely(e.wake_s > 0.0):
        if e.moves > 0.0:
            pool = take_cpu(e, container)
        wake(e, container)
        part_s += container.woken_s
        container.woken_s = 0.0
    runnable, first_v = begin_part(e, container, v + part_s, n)
    if rarely(not container.runs) and container.stalled > 0.0:
        settle_throttling(e, i)
        container.stalled = min(float(runnable), container.cap)
    else:
        pace_by(e, i, container, since, pool, runnable, first_v - v)


@inlined
def proceed(e: Any, n: int, step: int, c: int) -> bool:
    """Advance node n, which makes call c, from `step` until it is runnable or ends. Return True if it ended.

    c: index of the call; unused if step is RUN. Reading it back from a node that was just made takes longer.
    """
    node = node_at(e, n)
    if step == RUN:
        run_part(e, node, n, node.container, node.part_s)
        return False
    call = call_at(e, c)
    if step <= SEND and not call.direct:
        if step == ATTEMPT and not connect(e, n):
            return False
        if call.network >= 0:
            node.state = TRANSIT
            start_delay(e, call.network, n)
            return False
    i: int = pick_replica(e, call) if step <= ARRIVE else node.container
    if step <= ENTER and not enter(e, n, i):
        ended: bool = node.state == ENDED
        return ended
    node.stage = call.first_stage
    node.last_stage = call.last_stage
    node.outcome = OK
    part_s = draw_demand_s(e, call) * call.share
    node.part_s = part_s
    run_part(e, node, n, i, part_s)
    return False


@inlined
def admit_queued(e: Any, i: int) -> None:
    """Give the free workers of container i to the visits in its queue."""
    container = container_at(e, i)
    while container.waiting > 0 and container.busy < container.workers and container.status == UP:
        n = container.head
        unlink(e, container, n)
        container.waiting -= 1
        container.busy += 1
        take_memory(e, i)
        schedule(e, n, SERVE)


@inlined
def leave(e: Any, n: int) -> None:
    """Return the worker of visit n to its container."""
    i = node_at(e, n).container
    container = container_at(e, i)
    container.busy -= 1
    container.visits += 1
    grown = min(container.cache_bytes - container.cached_bytes, container.cache_request_bytes)
    container.cached_bytes += grown
    if e.keep_s > 0.0:
        container.kept += 1
        container.trim_s = min(container.trim_s, e.now + e.keep_s)
        charge_memory(e, i, grown)
    else:
        charge_memory(e, i, grown - container.request_bytes)
    if container.waiting > 0:
        admit_queued(e, i)


@inlined
def call_stage(e: Any, node: Any, n: int, stage: int) -> tuple[int, int]:
    """Make the calls of one stage of visit n, each with its probability.

    Returns (the node of the first or NOBODY, the call that it makes).
    """
    node.stage = stage + 1
    pending: int = 0
    first: int = NOBODY
    first_call: int = 0
    for c in range(stage_at(e, stage).first_call, stage_at(e, stage + 1).first_call):
        call = call_at(e, c)
        if not chance(e, call.probability):
            continue
        child = take_node(e)
        made = node_at(e, child)
        made.parent = n
        made.call = c
        made.attempts = call.retries
        made.pooled = False
        made.timed = False
        made.request = node.request
        made.called_s = e.now
        pending += 1
        if pending > 1:
            schedule(e, child, ATTEMPT)
        else:
            first, first_call = child, c
    node.pending = pending
    return first, first_call


@inlined
def disconnect(e: Any, n: int) -> None:
    """Return the connection of call n. The next call in line takes it."""
    node = node_at(e, n)
    if not node.pooled:
        return
    node.pooled = False
    pool = pool_at(e, call_at(e, node.call).pool)
    following = pool.head
    if following == NOBODY:
        pool.busy -= 1
        return
    unlink(e, pool, following)
    node_at(e, following).pooled = True
    schedule(e, following, SEND)


@package_kernel
def try_again(e: Any, n: int) -> int:
    """Start the next attempt of call n. Return n, or NOBODY if it backs off first."""
    node = node_at(e, n)
    node.attempts -= 1
    node.called_s = e.now
    backoff = call_at(e, node.call).backoff
    if backoff < 0:
        return n
    node.state = BACKOFF
    start_delay(e, backoff, n)
    return NOBODY


@package_kernel
def abandon(e: Any, n: int) -> None:
    """Forget the caller of attempt n. The attempt is withdrawn if it has not left its caller, else it becomes
    an orphan.
    """
    node = node_at(e, n)
    if node.parent > 0:
        cancel_timeout(e, n)
        call = call_at(e, node.call)
        if node.state == IN_LINE:
            unlink(e, pool_at(e, call.pool), n)
            free_node(e, n)
            return
        if node.state == BACKOFF:
            unlink(e, line_at(e, call.backoff), n)
            free_node(e, n)
            return
        disconnect(e, n)
    node.parent = NOBODY
    e.orphans += 1


@package_kernel
def time_out(e: Any, n: int) -> None:
    """Give up attempt n. If it has left its caller, a new node takes its place there."""
    node = node_at(e, n)
    if node.state == IN_LINE:
        cancel_timeout(e, n)
        unlink(e, pool_at(e, call_at(e, node.call).pool), n)
        end_attempt(e, n, TIMED_OUT)
        return
    m = take_node(e)
    heir = node_at(e, m)
    heir.parent = node.parent
    heir.call = node.call
    heir.attempts = node.attempts
    heir.pooled = False
    heir.timed = False
    heir.request = node.request
    heir.called_s = node.called_s
    abandon(e, n)
    end_attempt(e, m, TIMED_OUT)
