"""Simulate queue pairs packet by packet: go-back-N over links that lose packets while a path is down.

For: the compiled simulation behind rdma.py, which documents its input and output. Not for: closed forms
(recovery.py). One call follows every packet and every acknowledgement of Q queue pairs on L links. It finds
the next event by looking at all of them, so it is meant for tens of queue pairs, not thousands.

The rules, by the InfiniBand Architecture Specification 1.4:
- a sender keeps at most `window` packets unacknowledged; its link sends one packet after another, and serves
  queue pairs with something to send in turn;
- the receiver acknowledges packets in order, and acknowledges packets again that it has already
  (9.7.5.1.2); at the first packet after a hole it sends one NAK and drops everything until the missing packet
  comes (9.7.5.2.8);
- the ACK timer runs while something is unacknowledged and restarts with every new acknowledgement; when it
  ends, or a NAK comes, the sender goes back to the oldest unacknowledged packet (9.7.6.1); either costs a
  retry, and a sender without retries is in error (9.9.2.4.1); a new acknowledgement gives all retries back.
  How long the timer runs depends on the retries used up (retransmission.py).
A packet is lost if its path is down while it is sent, an acknowledgement if its path is down when it leaves.
Not modelled: the time of acknowledgements on the wire, and congestion elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.containers.compiled import kernel
from twin.fabric.model import Floats

Records = NDArray[Any]

NOBODY = -1
"""Partner of a queue pair that posts the next message at its own completions."""
_ANSWER, _POST, _SEND, _TIMER, _NOTHING = range(5)


def _record(**fields: str) -> np.dtype[np.void]:
    return np.dtype(list(fields.items()), align=True)


SETTING = _record(
    full_s="f8",  # a full packet on the wire
    last_s="f8",  # the last packet of a message on the wire
    delay_s="f8",  # one way
    interval_s="f8",  # least time between two posts
    retries="i8",  # of a queue pair in all
    window="i8",  # packets that may be unacknowledged
    packets="i8",  # packets of a message
)
"""The settings of all queue pairs, in one record."""

PAIR = _record(
    link="i8",  # on which it sends
    partner="i8",  # whose delivery of a message makes it post the next; NOBODY: its own completion does
    next="i8",  # next packet to send; packets are numbered from 0 without end
    oldest="i8",  # oldest unacknowledged packet
    end="i8",  # packet behind the last one posted
    high="i8",  # packet behind the last one ever sent
    expected="i8",  # packet that the receiver expects
    told="i8",  # whether the receiver has sent a NAK for it
    retries="i8",  # retries left
    message="i8",  # messages finished
    posted_s="f8",  # when the present message was posted
    post_s="f8",  # when to post the next message; inf: not known
    ready_s="f8",  # since when it has something to send; inf: nothing
    timer_s="f8",  # when the ACK timer ends; inf: it does not run
    error_s="f8",  # when it broke; NaN: it did not
    served="i8",  # count of the link's turns when it was last served
    retransmitted="i8",
    timeouts="i8",
    naks="i8",
)
"""The state of one queue pair."""

LINK = _record(free_s="f8", head="i8", tail="i8")
"""A link. free_s: time at which it can take the next packet, s. head, tail: numbers of answers read from and
written to its ring."""

ANSWER = _record(at_s="f8", pair="i8", says="i8")
"""An answer. at_s: when the sender has it, s. says: twice the packet expected next, plus one for a NAK."""

PATH = _record(position="i8", last="i8", begin_s="f8", end_s="f8")
"""A path. position: its present outage. last: the row behind its last one. begin_s = end_s = inf after it."""


def new_pairs(link: list[int], partner: list[int], retries: int) -> Records:
    """Return PAIR[Q] of queue pairs that have not posted a message."""
    pairs = np.zeros(len(link), PAIR)
    pairs["link"], pairs["partner"], pairs["retries"] = link, partner, retries
    for name in ("post_s", "ready_s", "timer_s"):
        pairs[name] = np.inf
    pairs["error_s"] = np.nan
    return pairs


def new_paths(rows: list[int]) -> Records:
    """Return PATH for paths with `rows` outages each. The outages lie one path after another.

    Packets of queue pair q take path 2q, its acknowledgements path 2q + 1.
    """
    paths = np.zeros(len(rows), PATH)
    paths["last"] = np.cumsum(rows)
    paths["position"] = paths["last"] - rows - 1
    paths["begin_s"] = paths["end_s"] = -np.inf
    return paths


@kernel
def run(
    setting: Records,
    waits_s: Floats,
    pairs: Records,
    links: Records,
    answers: Records,
    paths: Records,
    outages: Floats,
    latency_s: Floats,
) -> None:
    """Run until nothing is left to do. Fills latency_s (float64[Q, n], NaN before) and the counts in `pairs`.

    setting: SETTING[1]. waits_s: float64[retries + 1], of a retransmission.Ladder.
    pairs: PAIR[Q]. links: LINK[L]. paths: PATH[2Q].
    answers: ANSWER[L, C], with C a power of two, large enough never to be full.
    outages: float64[m, 2], s. The outages of one path are disjoint and in the order of time. A latency is the
    time from a post until the sender has the acknowledgement, or, with a partner, until the pong has arrived.
    """
    common = setting[0]
    mask = answers.shape[1] - 1
    served = 0
    while True:
        now_s, kind, which = _next(pairs, links, answers)
        if kind == _SEND:
            pair = pairs[which]
            served += 1
            pair.served = served
            link = links[pair.link]
            there_s = _send(pair, link, common, waits_s, now_s) + common.delay_s
            if _lost(paths[2 * which], outages, now_s, link.free_s):
                continue
            says, delivered = _receive(pair, common)
            if delivered:
                _delivered(pairs, which, there_s, common, latency_s)
            if says >= 0 and not _lost(paths[2 * which + 1], outages, there_s, there_s):
                answer = answers[pair.link, link.tail & mask]
                answer.at_s = there_s + common.delay_s
                answer.pair = which
                answer.says = says
                link.tail += 1
        elif kind == _ANSWER:
            link = links[which]
            answer = answers[which, link.head & mask]
            link.head += 1
            pair = pairs[answer.pair]
            if _hear(pair, common, waits_s, answer.says, now_s):
                _finished(pair, latency_s[answer.pair], now_s, common)
        elif kind == _TIMER:
            pairs[which].timeouts += 1
            _go_back(pairs[which], common, now_s)
        elif kind == _POST:
            pair = pairs[which]
            pair.post_s = np.inf
            pair.posted_s = now_s
            pair.end += common.packets
            _ready(pair, common, now_s)
        else:
            return


@kernel
def _next(pairs: Records, links: Records, answers: Records) -> tuple[float, int, int]:
    """Return (time, kind, queue pair or link) of the next event.

    At the same time, answers come first, then posts, sending (by the ready queue pair that was served longest
    ago) and timers.
    """
    best_s, kind, which = np.inf, _NOTHING, 0
    mask = answers.shape[1] - 1
    for index in range(len(links)):
        link = links[index]
        if link.head < link.tail:
            at_s = answers[index, link.head & mask].at_s
            if at_s < best_s:
                best_s, kind, which = at_s, _ANSWER, index
    for index in range(len(pairs)):
        pair = pairs[index]
        if pair.post_s < best_s:
            best_s, kind, which = pair.post_s, _POST, index
        if pair.ready_s <= best_s:
            send_s = max(pair.ready_s, links[pair.link].free_s)
            turn = kind == _TIMER or (kind == _SEND and pair.served < pairs[which].served)
            if send_s < best_s or (send_s == best_s and turn):
                best_s, kind, which = send_s, _SEND, index
        if pair.timer_s < best_s:
            best_s, kind, which = pair.timer_s, _TIMER, index
    return best_s, kind, which


@kernel
def _ready(pair: Any, common: Any, now_s: float) -> None:
    """Set the time since which the queue pair has something to send: now, an earlier time, or never."""
    if pair.next >= min(pair.end, pair.oldest + common.window):
        pair.ready_s = np.inf
    elif pair.ready_s == np.inf:
        pair.ready_s = now_s


@kernel
def _lost(path: Any, outages: Floats, from_s: float, to_s: float) -> bool:
    """Return whether the path is down at some time between from_s and to_s. Calls come in the order of
    time."""
    while path.end_s <= from_s:
        path.position += 1
        if path.position < path.last:
            path.begin_s = outages[path.position, 0]
            path.end_s = outages[path.position, 1]
        else:
            path.begin_s = path.end_s = np.inf
    return bool(path.begin_s < to_s or path.begin_s <= from_s)


@kernel
def _send(pair: Any, link: Any, common: Any, waits_s: Floats, now_s: float) -> float:
    """Put the next packet on the wire and return when it is sent, s."""
    number = pair.next
    pair.next = number + 1
    wire_s = common.full_s
    # Last packets of earlier messages are rare, and a division would be most of a packet's cost.
    early = number < pair.end - common.packets
    if number + 1 == pair.end or (early and (number + 1) % common.packets == 0):
        wire_s = common.last_s
    if number < pair.high:
        pair.retransmitted += 1
    else:
        pair.high = number + 1
    if pair.timer_s == np.inf:
        pair.timer_s = now_s + waits_s[common.retries - pair.retries]
    until_s: float = now_s + wire_s
    link.free_s = until_s
    _ready(pair, common, now_s)
    return until_s


@kernel
def _receive(pair: Any, common: Any) -> tuple[int, bool]:
    """Receive the packet sent last.

    Returns the answer (negative: none) and whether the packet ends a message that the partner answers with a
    message.
    """
    number = pair.next - 1
    if number > pair.expected:
        if pair.told:
            return -1, False
        pair.told = 1
        return 2 * pair.expected + 1, False
    if number < pair.expected:
        return 2 * pair.expected, False
    pair.expected = number + 1
    pair.told = 0
    return 2 * pair.expected, pair.partner != NOBODY and pair.expected % common.packets == 0


@kernel
def _delivered(pairs: Records, which: int, there_s: float, common: Any, latency_s: Floats) -> None:
    """Handle a delivered message: a ping has a pong posted, a pong ends the round. The even partner pings."""
    partner = pairs[which].partner
    if which % 2 == 0:
        pairs[partner].post_s = there_s
    else:
        _finished(pairs[partner], latency_s[partner], there_s, common)


@kernel
def _finished(pair: Any, latency_s: Floats, now_s: float, common: Any) -> None:
    """Finish the queue pair's message and post the next one, but not before the interval has passed."""
    latency_s[pair.message] = now_s - pair.posted_s
    pair.message += 1
    if pair.message < len(latency_s):
        pair.post_s = max(now_s, pair.posted_s + common.interval_s)


@kernel
def _hear(pair: Any, common: Any, waits_s: Floats, says: int, now_s: float) -> bool:
    """Handle an answer at the sender. A NAK makes the sender go back. Returns whether its message is
    complete."""
    if not np.isnan(pair.error_s):
        return False
    expected = says >> 1
    completed = False
    if expected > pair.oldest:
        pair.oldest = expected
        pair.next = max(pair.next, expected)
        pair.retries = common.retries
        pair.timer_s = now_s + waits_s[0] if expected < pair.next else np.inf
        completed = expected == pair.end and pair.partner == NOBODY
    if says & 1 and expected == pair.oldest and pair.next > expected:
        pair.naks += 1
        _go_back(pair, common, now_s)
    else:
        _ready(pair, common, now_s)
    return completed


@kernel
def _go_back(pair: Any, common: Any, now_s: float) -> None:
    """Go back to the oldest unacknowledged packet at the cost of a retry, or into error if no retry is
    left."""
    if pair.retries == 0:
        pair.error_s = now_s
        pair.post_s = pair.ready_s = pair.timer_s = np.inf
        return
    pair.retries -= 1
    pair.next = pair.oldest
    pair.timer_s = np.inf
    _ready(pair, common, now_s)
