"""Keep count of the rule changes that failed, and of when each may be tried again.

For: the reconciler's bounded back-off. The pause doubles from the first to the longest, separately for each
rule change, so that a change that never succeeds does not delay the others. Not for: arming timers.
Source: exponential back-off, our design. A change is identified by a 64-bit hash ("mark"). If two changes
ever had the same mark, the second would wait for the pause of the first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from control.reconciler.model import Flags, Rules
from control.reconciler.ports import Add, Delete, Replace, RuleChange

Marks = NDArray[np.uint64]

_OPERATION: dict[type[RuleChange], int] = {Add: 1, Replace: 2, Delete: 3}
_ODD = np.uint64(0x9E37_79B9_7F4A_7C15)
"""Multiplier of Fibonacci hashing: 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4)."""


def marks(operation: type[RuleChange], rules: Rules) -> Marks:
    """Return uint64[n]: a hash of the operation and of each target rule."""
    mixed = np.full(len(rules.mac), _OPERATION[operation], np.uint64)
    for column in (rules.device, rules.mac, rules.vni, rules.remote, rules.handle):
        mixed = (mixed ^ column.astype(np.uint64)) * _ODD
        mixed ^= mixed >> np.uint64(29)
    return mixed


class Backoff:
    """The failed changes and their pauses. first_s, longest_s: shortest and longest pause, s."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._marks: Marks = np.empty(0, np.uint64)
        self._failures = np.empty(0, np.int64)
        self._not_before_s = np.empty(0, np.float64)

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def next_at_s(self) -> float:
        """Earliest time at which a failed change may be tried again, s; inf if none failed."""
        return float(self._not_before_s.min(initial=np.inf))

    def may_try(self, changes: Marks, at_s: float) -> Flags:
        """Return bool[n]: True for a change that has not failed or whose pause is over at at_s."""
        if not len(self):
            return np.ones(len(changes), np.bool_)
        waiting = self._marks[self._not_before_s > at_s]
        return ~np.isin(changes, waiting)

    def failed(self, changes: Marks, at_s: float) -> None:
        """Record that the kernel refused these changes at at_s."""
        changes = np.unique(changes)
        failures = np.zeros(len(changes), np.int64)
        known = np.isin(changes, self._marks)
        failures[known] = self._failures[np.searchsorted(self._marks, changes[known])]
        self.forget(changes)
        pause_s = np.minimum(self._first_s * 2.0 ** np.minimum(failures, 60), self._longest_s)
        everything = np.concatenate((self._marks, changes))
        order = np.argsort(everything)
        self._marks = everything[order]
        self._failures = np.concatenate((self._failures, failures + 1))[order]
        self._not_before_s = np.concatenate((self._not_before_s, at_s + pause_s))[order]

    def forget(self, changes: Marks) -> None:
        """Drop changes that succeeded."""
        if len(self):
            self._keep(~np.isin(self._marks, changes))

    def keep_only(self, changes: Marks) -> None:
        """Drop every change that is not in `changes`, because it is no longer wanted."""
        if len(self):
            self._keep(np.isin(self._marks, changes))

    def _keep(self, rows: Flags) -> None:
        self._marks = self._marks[rows]
        self._failures = self._failures[rows]
        self._not_before_s = self._not_before_s[rows]
