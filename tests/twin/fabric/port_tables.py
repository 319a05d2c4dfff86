"""NCCL's reaction to a failed port of its network: literal tables of states, events and next states.

For: port_events.py, which walks them in time, and the tests that hold port_failover.py to them. Not for: when
something happens. What a table does not list is refused.
Source: NCCL 2.30.7 (transport/net_ib) as read, 2.30.3 the same; none of it was run on hardware here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from twinbed import InvariantError


class Device(StrEnum):
    """State of one port in one communicator. FATAL: the communicator has failed."""

    OK = "ok"
    ERROR = "error"
    RECOVERING = "recovering"
    RECOVERED = "recovered"
    FAILED = "failed"
    DEAD = "dead"
    FATAL = "fatal"


class Request(StrEnum):
    """State of a sender's request that lost a part. FATAL: the communicator has failed."""

    PENDING = "pending"
    PROBING = "probing"
    KNOWN = "known"
    RESENT = "resent"
    DONE = "done"
    FATAL = "fatal"


class Context(StrEnum):
    """State of one end of a port's recovery."""

    INIT = "init"
    ALIVE = "alive"
    ACK = "ack"
    SUCCESS = "success"
    FAILED = "failed"


Table = Mapping[tuple[StrEnum, str], tuple[StrEnum, str]]
"""(state, event) → (next state, action)."""

FAILOVER_STATUSES = frozenset({"retry exceeded", "flushed"})
"""The completion statuses that a port may fail with; every other one is fatal."""

_NOT_OK = (Device.ERROR, Device.RECOVERING, Device.RECOVERED, Device.FAILED, Device.DEAD)
_LIVE = (Device.OK, *_NOT_OK)

DEVICE: Table = {
    (Device.OK, "error"): (Device.ERROR, "map its pairs to the next port; its requests are pending"),
    (Device.OK, "error, no other port"): (Device.FATAL, "the communicator fails at once"),
    **{(state, "error, another port not ok"): (Device.FATAL, "the communicator fails") for state in _LIVE},
    **{(state, "other status"): (Device.FATAL, "the communicator fails") for state in _LIVE},
    **{(state, "asynchronous error"): (Device.FATAL, "the next progress call fails") for state in _LIVE},
    **{(state, "port error"): (state, "log") for state in _LIVE},
    **{(state, "port active"): (state, "log") for state in _LIVE},
    (Device.ERROR, "recovery enabled"): (Device.RECOVERING, "a context joins the recovery thread's queue"),
    (Device.RECOVERING, "context succeeds"): (Device.RECOVERED, "pairs were reset and connected again"),
    (Device.RECOVERED, "progress"): (Device.OK, "its own pairs are active again"),
    (Device.RECOVERING, "context fails"): (Device.FAILED, ""),
    (Device.FAILED, "progress"): (Device.DEAD, "never tried again"),
}
REQUEST: Table = {
    (Request.PENDING, "probe delay"): (Request.PROBING, "read the receiver's flags over the first ok port"),
    (Request.PROBING, "read completes"): (Request.KNOWN, ""),
    (Request.KNOWN, "all parts arrived"): (Request.DONE, "report complete, send nothing"),
    (Request.KNOWN, "parts missing"): (Request.RESENT, "send the missing parts alone, on replacements"),
    (Request.RESENT, "completes"): (Request.DONE, "free the entry"),
    (Request.PROBING, "read fails"): (Request.FATAL, "counts as a second failed port"),
    (Request.RESENT, "fails again"): (Request.FATAL, "the authors' known gap: corruption or hang"),
    (Request.PENDING, "attempts used up"): (Request.FATAL, "possible only after a recovery"),
}
SENDER: Table = {
    (Context.INIT, "start delay"): (Context.ALIVE, ""),
    (Context.ALIVE, "batch due"): (Context.ACK, "send a numbered batch"),
    (Context.ACK, "acknowledged"): (Context.SUCCESS, "rebuild pairs, acknowledge for the last time"),
    (Context.ACK, "timeout"): (Context.ALIVE, "one more attempt"),
    (Context.ACK, "last timeout"): (Context.FAILED, ""),
}
RECEIVER: Table = {
    (Context.INIT, "start delay"): (Context.ALIVE, "one attempt: no message yet"),
    (Context.ALIVE, "enough in order"): (Context.ACK, "drain, rebuild, acknowledge"),
    (Context.ALIVE, "timeout"): (Context.ALIVE, "one more attempt"),
    (Context.ALIVE, "last timeout"): (Context.FAILED, ""),
    (Context.ACK, "acknowledged"): (Context.SUCCESS, ""),
    (Context.ACK, "timeout"): (Context.ACK, "one more attempt"),
    (Context.ACK, "last timeout"): (Context.FAILED, ""),
}


def step(table: Table, state: StrEnum, event: str) -> StrEnum:
    """Return the next state. Raises InvariantError for what the table does not list."""
    if (state, event) not in table:
        raise InvariantError(f"{type(state).__name__} {state}: event {event!r} is not in the table")
    return table[state, event][0]
