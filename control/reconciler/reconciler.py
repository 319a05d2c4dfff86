"""Keep tunnel rules in step with the kernel's forwarding state over a channel that loses messages.

For: deciding when to dump, which part of a plan to request, and when to try again. Not for: deciding which
rules are right (desired.py, diff.py) or netlink. Source: THORN-ML (Nazari, PhD thesis 2025, figure 3.4):
every message leads to a full dump and a diff, and so does a timeout. A lost change is therefore missed for
one timeout at most.

Rules of this file:
1. The content of a message is never used, only the fact that it came. Rules follow from a dump alone.
2. At most one request is under way, so no dump races with our own changes. An answer to any other request is
   late and leads to a dump.
3. Messages that come while a request is under way are remembered as one and lead to one more dump.
4. A plan is requested in batches. A message between two batches drops the rest; the next dump shows it again.
5. A table that changed while it was read may lack entries, so nothing is deleted because of it. If the table
   of rules changed while it was read, the dump is ignored.
6. Every instruction carries its cause. Only what a dump showed to be missing is requested.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any

import numpy as np

from control.reconciler.backoff import Backoff, marks
from control.reconciler.diff import Change, Plan, plan
from control.reconciler.model import ForwardingState, Representors, Rules, Table
from control.reconciler.ports import (
    ALL_TABLES,
    Add,
    ArmTimer,
    Cause,
    Changed,
    Delete,
    Dump,
    Dumped,
    DumpFailed,
    Event,
    Installed,
    InstallFailed,
    Instruction,
    Overflowed,
    Reason,
    Replace,
    RuleChange,
    Started,
    Timer,
    TimerFired,
)
from control.reconciler.settings import ReconcilerSettings
from twinbed import InvariantError

_MOST_DOUBLINGS = 6
"""Most doublings of the time to wait for an answer: 64 times the normal wait is as good as forever."""


class State(Enum):
    """State of the reconciler.

    NEW: not started. IDLE: in step, as far as is known. WAITING: a dump is due when the pause is over.
    DUMPING, INSTALLING: a request of this kind is under way.
    """

    NEW = "new"
    IDLE = "idle"
    WAITING = "waiting"
    DUMPING = "dumping"
    INSTALLING = "installing"


@dataclass(frozen=True, slots=True)
class ReconcilerStatus:
    """Counts for an operator, as of the last dump.

    dumps: dumps since the start.
    added, replaced, deleted: rule changes since the start that are in force.
    adopted: rules of ours that the first complete dump found and that were right.
    wanted: rules that the state calls for.
    refused: wanted rules for which there is no room (`max_rules`).
    unreachable: rules kept although their VTEP has no route.
    duplicated: entries dropped because another VTEP has the same MAC address and VNI.
    failing: rule changes that were refused and will be tried again.
    last_failure: the system's last error message.
    """

    dumps: int = 0
    added: int = 0
    replaced: int = 0
    deleted: int = 0
    adopted: int = 0
    wanted: int = 0
    refused: int = 0
    unreachable: int = 0
    duplicated: int = 0
    failing: int = 0
    last_failure: str = ""


class Reconciler:
    """Implements `ports.RuleController` for one host. An object lives from `Started` to the process's end."""

    def __init__(self, representors: Representors, settings: ReconcilerSettings) -> None:
        self._representors, self._settings = representors, settings
        self._state = State.NEW
        self._status = ReconcilerStatus()
        self._request = 0
        self._requested: RuleChange | None = None  # the rule change that is under way, if it is no dump
        self._because = Cause(Reason.STARTED, 0.0)  # cause of the dump that is due or behind the plan
        self._news: Cause | None = None  # cause of a further dump: a message came during a request
        self._batches: deque[RuleChange] = deque()
        self._backoff = Backoff(settings.retry_s, settings.retry_max_s)
        self._due_s: dict[Timer, float] = {}
        self._dumped_at_s: float
        self._failed_dumps = 0
        self._unanswered = 0
        self._whole_dumps = 0
        self._in_force = 0  # rules of all owners: those in the last dump and our changes since
        self._learned_room = np.inf  # number of rules the kernel takes, once it refused one for lack of room
        self._in_step: tuple[ForwardingState, Rules] | None = None  # last dump that needed no change

    @property
    def state(self) -> State:
        """The present state."""
        return self._state

    @property
    def status(self) -> ReconcilerStatus:
        """Counts of what was done and what could not be done."""
        return replace(self._status, failing=len(self._backoff))

    def handle(self, event: Event) -> list[Instruction]:
        """See `ports.RuleController.handle`."""
        if isinstance(event, TimerFired):
            due_s = self._due_s.get(event.timer)
            if due_s is None:
                return []
            if event.at_s < due_s:
                # The timer was armed anew since, or the clock rounds: its time has not come yet.
                return [ArmTimer(event.timer, due_s - event.at_s, self._because)]
        on: _On = event.timer if isinstance(event, TimerFired) else type(event)
        handler = _TABLE.get((self._state, on))
        if handler is None:
            raise InvariantError(f"reconciler: {on} cannot be in state {self._state.value}")
        if isinstance(event, TimerFired):
            del self._due_s[event.timer]
        return handler(self, event)

    # --- dumps ---------------------------------------------------------------------------------------

    def _start(self, event: Started) -> list[Instruction]:
        return self._dump(event.at_s, Cause(Reason.STARTED, event.at_s))

    def _dump(self, at_s: float, cause: Cause) -> list[Instruction]:
        settings = self._settings
        self._state, self._because, self._news, self._requested = State.DUMPING, cause, None, None
        self._batches.clear()
        self._dumped_at_s = at_s
        return [
            Dump(self._next_request(), ALL_TABLES, cause),
            self._arm(Timer.PERIODIC, at_s, settings.timeout_s, cause),
            self._wait_for_answer(at_s),
        ]

    def _news_when_idle(self, event: Event) -> list[Instruction]:
        return self._dump_when_allowed(event.at_s, _cause(event))

    def _news_when_busy(self, event: Event) -> list[Instruction]:
        self._news = self._news or _cause(event)
        return []

    def _nothing(self, _: Event) -> list[Instruction]:
        return []

    def _dump_now(self, event: Event) -> list[Instruction]:
        return self._dump(event.at_s, _cause(event))

    def _pause_is_over(self, event: TimerFired) -> list[Instruction]:
        return self._dump(event.at_s, self._because)

    def _dump_when_allowed(self, at_s: float, cause: Cause, pause_s: float = 0.0) -> list[Instruction]:
        """Dump as soon as dump_interval_s since the last dump began and pause_s from now have both passed."""
        allowed_s = max(self._dumped_at_s + self._settings.dump_interval_s, at_s + pause_s)
        if at_s >= allowed_s:
            return self._dump(at_s, cause)
        self._state, self._because, self._news = State.WAITING, cause, None
        return [self._arm(Timer.PAUSE, at_s, allowed_s - at_s, cause)]

    def _dump_failed(self, event: DumpFailed) -> list[Instruction]:
        if event.request != self._request:
            return []
        self._failed_dumps += 1
        self._status = replace(self._status, last_failure=event.why)
        pause_s = self._settings.retry_s * 2.0 ** min(self._failed_dumps - 1, 60)
        return self._dump_when_allowed(event.at_s, _cause(event), min(pause_s, self._settings.retry_max_s))

    def _unanswered_request(self, event: TimerFired) -> list[Instruction]:
        self._unanswered = min(self._unanswered + 1, _MOST_DOUBLINGS)
        return self._dump(event.at_s, _cause(event))

    # --- from a dump to rules ------------------------------------------------------------------------

    def _dumped(self, event: Dumped) -> list[Instruction]:
        if event.request != self._request:
            return []
        self._unanswered = self._failed_dumps = 0
        self._status = replace(self._status, dumps=self._status.dumps + 1)
        if event.incomplete:
            self._news = self._news or _cause(event)
        if Table.RULES not in event.incomplete and not self._is_in_step(event):
            self._take_up(event)
        return self._next_batch(event.at_s)

    def _is_in_step(self, event: Dumped) -> bool:
        """Return whether the last dump was identical to this one and needed no change."""
        if self._in_step is None or event.incomplete or len(self._backoff):
            return False
        state, rules = self._in_step
        return _equal(rules, event.rules) and all(
            _equal(getattr(state, spec.name), getattr(event.state, spec.name)) for spec in fields(state)
        )

    def _take_up(self, event: Dumped) -> None:
        settings = self._settings
        self._in_force = len(event.rules.mac)
        self._learn_room(full=False)
        planned = plan(
            event.state,
            event.rules,
            self._representors,
            owner=settings.owner,
            # One more than the kernel took last time, so that new room is noticed.
            max_rules=int(min(settings.max_rules, self._learned_room + 1)),
            first_action=settings.first_action,
        )
        self._note(planned, event)
        whole = not event.incomplete
        changes: list[tuple[type[RuleChange], Change]] = [(Replace, planned.replace), (Add, planned.add)]
        if whole:
            changes.insert(0, (Delete, planned.delete))
            self._whole_dumps += 1
            nothing_to_do = not any(len(change.reasons) for _, change in changes)
            self._in_step = (event.state, event.rules) if nothing_to_do else None
        known = [marks(operation, change.rules) for operation, change in changes]
        if whole:
            self._backoff.keep_only(np.concatenate(known))
        cause = replace(self._because, request=event.request)
        for (operation, change), change_marks in zip(changes, known, strict=True):
            due = np.flatnonzero(self._backoff.may_try(change_marks, event.at_s))
            for first in range(0, len(due), settings.batch_rules):
                rows = due[first : first + settings.batch_rules]
                # The request gets its number when it is sent.
                self._batches.append(operation(0, change.rules.take(rows), change.reasons[rows], cause))

    def _note(self, planned: Plan, event: Dumped) -> None:
        adopted = self._status.adopted
        if not self._whole_dumps and not event.incomplete:
            ours = int((event.rules.cookie == self._settings.owner).sum())
            adopted = ours - len(planned.delete.reasons) - len(planned.replace.reasons)
        self._status = replace(
            self._status,
            adopted=adopted,
            wanted=planned.wanted,
            refused=planned.refused,
            unreachable=planned.unreachable,
            duplicated=planned.duplicated,
        )

    def _next_batch(self, at_s: float) -> list[Instruction]:
        """Request the next batch. If there is none, or a message came, dump or become idle."""
        self._requested = None
        if self._batches and (self._news is None or self._state is State.DUMPING):
            self._state = State.INSTALLING
            self._requested = replace(self._batches.popleft(), request=self._next_request())
            return [self._requested, self._wait_for_answer(at_s)]
        self._batches.clear()
        retry: list[Instruction] = []
        if len(self._backoff):
            after_s = max(self._backoff.next_at_s - at_s, 0.0)
            retry = [self._arm(Timer.RETRY, at_s, after_s, Cause(Reason.RETRY, at_s))]
        if self._news is not None:
            return retry + self._dump_when_allowed(at_s, self._news)
        self._state = State.IDLE
        return retry

    def _answered(self, event: Installed | InstallFailed) -> list[Instruction]:
        requested = self._requested
        if requested is None or event.request != self._request:
            return self._news_when_busy(event)
        self._unanswered = 0
        operation = type(requested)
        known = marks(operation, requested.rules)
        failed = event.rows if isinstance(event, InstallFailed) else np.empty(0, np.int64)
        self._backoff.forget(np.delete(known, failed))
        if isinstance(event, InstallFailed):
            self._backoff.failed(known[failed], event.at_s)
            self._status = replace(self._status, last_failure=event.why)
        done = len(known) - len(failed)
        count = {Add: "added", Replace: "replaced", Delete: "deleted"}[operation]
        self._status = replace(self._status, **{count: getattr(self._status, count) + done})
        self._in_force += {Add: done, Replace: 0, Delete: -done}[operation]
        self._learn_room(full=isinstance(event, InstallFailed) and event.full)
        return self._next_batch(event.at_s)

    def _learn_room(self, *, full: bool) -> None:
        """Remember how many rules the kernel held when it refused more, until it takes more again."""
        if full:
            self._learned_room = self._in_force
            # Adds come last in a plan, so there is no room for the batches that are left.
            self._batches.clear()
        elif self._in_force > self._learned_room:
            self._learned_room = np.inf

    # --- small parts ---------------------------------------------------------------------------------

    def _next_request(self) -> int:
        self._request += 1
        return self._request

    def _wait_for_answer(self, at_s: float) -> ArmTimer:
        cause = Cause(Reason.UNANSWERED, at_s, self._request)
        return self._arm(Timer.ANSWER, at_s, self._settings.answer_s * 2.0**self._unanswered, cause)

    def _arm(self, timer: Timer, at_s: float, after_s: float, cause: Cause) -> ArmTimer:
        self._due_s[timer] = at_s + after_s
        return ArmTimer(timer, after_s, cause)


def _equal(left: object, right: object) -> bool:
    """Return whether two tables have the same rows in the same order."""
    columns = fields(left)  # type: ignore[arg-type]
    return all(np.array_equal(getattr(left, spec.name), getattr(right, spec.name)) for spec in columns)


def _cause(event: Event) -> Cause:
    on = event.timer if isinstance(event, TimerFired) else type(event)
    return Cause(_REASON[on], event.at_s)


_On = Timer | type[Event]
_Handler = Callable[[Reconciler, Any], list[Instruction]]

_REASON: dict[_On, Reason] = {
    Changed: Reason.CHANGED,
    Overflowed: Reason.OVERFLOWED,
    Dumped: Reason.INTERRUPTED,
    DumpFailed: Reason.DUMP_FAILED,
    Installed: Reason.LATE_ANSWER,
    InstallFailed: Reason.LATE_ANSWER,
    Timer.PERIODIC: Reason.PERIODIC,
    Timer.ANSWER: Reason.UNANSWERED,
    Timer.RETRY: Reason.RETRY,
}
"""The reason for a dump that each event gives."""

_EVENTS: tuple[_On, ...] = (Changed, Overflowed, Dumped, DumpFailed, Installed, InstallFailed)
_EVENTS += (Timer.PERIODIC, Timer.ANSWER, Timer.PAUSE, Timer.RETRY)

_TABLE: dict[tuple[State, _On], _Handler] = {
    (State.NEW, Started): Reconciler._start,
    **{(state, event): Reconciler._nothing for state in list(State)[1:] for event in _EVENTS},
    # Nothing is under way.
    (State.IDLE, Changed): Reconciler._news_when_idle,
    (State.IDLE, Overflowed): Reconciler._news_when_idle,
    (State.IDLE, Installed): Reconciler._news_when_idle,
    (State.IDLE, InstallFailed): Reconciler._news_when_idle,
    (State.IDLE, Timer.PERIODIC): Reconciler._dump_now,
    (State.IDLE, Timer.RETRY): Reconciler._news_when_idle,
    # A dump is due.
    (State.WAITING, Timer.PERIODIC): Reconciler._dump_now,
    (State.WAITING, Timer.PAUSE): Reconciler._pause_is_over,
    # A dump is under way.
    (State.DUMPING, Changed): Reconciler._news_when_busy,
    (State.DUMPING, Overflowed): Reconciler._news_when_busy,
    (State.DUMPING, Dumped): Reconciler._dumped,
    (State.DUMPING, DumpFailed): Reconciler._dump_failed,
    (State.DUMPING, Installed): Reconciler._news_when_busy,
    (State.DUMPING, InstallFailed): Reconciler._news_when_busy,
    (State.DUMPING, Timer.PERIODIC): Reconciler._news_when_busy,
    (State.DUMPING, Timer.ANSWER): Reconciler._unanswered_request,
    # A rule change is under way.
    (State.INSTALLING, Changed): Reconciler._news_when_busy,
    (State.INSTALLING, Overflowed): Reconciler._news_when_busy,
    (State.INSTALLING, Installed): Reconciler._answered,
    (State.INSTALLING, InstallFailed): Reconciler._answered,
    (State.INSTALLING, Timer.PERIODIC): Reconciler._news_when_busy,
    (State.INSTALLING, Timer.ANSWER): Reconciler._unanswered_request,
    (State.INSTALLING, Timer.RETRY): Reconciler._news_when_busy,
}
"""The handler of each event in each state. Events not listed here are ignored once started; a `Started` in
any state but NEW, and any other event in NEW, are errors."""
