"""The compiled core of the request-level twin: exact events of requests, visits, CPU pools and delays.

For: the kernels that move requests through a service graph from one event to the next; the kernels that
physics.py calls are named here. Not for: what the control loop sees of it (physics.py), nor the data that
goes in and comes out (model.py). Modules: records (layout of the state), waiting (queues, and who is due
next), parts (runnable visits), visits, tracing (spans of requests), events (clients and the event loop),
control (quotas, periods, stops and kills).

How time moves. Three kinds of things wait for a moment: CPU work, delays (network, backoff, timeouts), and
arrivals. The k runnable visits of a container share its CPUs evenly. Each container therefore has a virtual
time V that grows at each visit's speed min(1, cap/k). A visit that needs p more CPU seconds ends at V + p,
and only the least of these ends matters. A container's next event is that end, or the moment its pool is
empty. A host is shared if it has fewer cores than its containers may want, or if it runs them slower. Its
containers live in the host's time U, which grows at `host_factor` of real time. When the factor changes, no
container is touched. Once CPU requests are in force on a host, each of its containers has a pace of its own
beside that while CPUs are short (`share_by_weight`), and then all of them are touched. Tournament trees give
the next event in log₂ steps. One tree holds the containers of
hosts that are not shared, the shared hosts and the delay lines. Each shared host has a tree of its containers
by U. Equal delays expire in the order they began, so each distinct delay is one queue.

Rules at one instant. CPU work and delays come first, then arrivals. `advance` handles CPU work and delays
that are due at its end, but leaves arrivals due then to the period that begins there. CPU events of several
containers at one instant, and visits of one container that end at one instant, have no order to rely on, but
their order is the same in every run. A pool may be overdrawn by OVERDRAFT_S, which the next refill pays. A
pool that lasts exactly to the end of its period is thus not exhausted by rounding.

Names in kernels: `e` is the engine's record, `n` a node, `i` a container, `h` a host, `r` a request.
Sources: processor sharing by virtual time as in generalised processor sharing (Parekh & Gallager 1993); CPU
bandwidth as in cfs.py.
"""

from twin.containers.requests.engine.control import (
    account,
    end_period,
    in_flight,
    inject,
    kill,
    record,
    start,
    stop,
    weigh,
    write_quotas,
)
from twin.containers.requests.engine.events import advance
from twin.containers.requests.engine.tracing import read_spans, settle
from twin.containers.requests.engine.waiting import keep_exceeding

__all__ = [
    "account",
    "advance",
    "end_period",
    "in_flight",
    "inject",
    "keep_exceeding",
    "kill",
    "read_spans",
    "record",
    "settle",
    "start",
    "stop",
    "weigh",
    "write_quotas",
]
