"""Limits on their way to several hosts: what may be sent now, so that their sum keeps to the global limit.

For: holding a raise back until the cuts that make room for it are in force elsewhere. Not for: deciding
limits (the allocator), nor sending (controller.py). The allocator's books change at once; hosts follow later,
each at its own time, and a host that is cut off does not follow at all. So each container counts with the
largest limit that may still be in force: the last one that its host confirmed, and all that are on their way.
Their sum per application stays within the global limit, or within what the allocator itself has decided where
that is more (a policy without a global limit). Source: Escra (ICDCS 2022):
the sum of limits is within the global limit, at run time too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

LARGE_CORES = 1e9
LARGE_BYTES = 1 << 62
"""What "no limit" counts as, cores and bytes: finite, so that sums stay numbers."""

_SLACK = 1e-9
"""Relative tolerance: sums of floats are not exact."""


@dataclass(frozen=True, slots=True)
class Change:
    """A limit to be sent. id: its container's; value: cores or bytes; reason: the allocator's
    (control.allocator.model.Reason)."""

    id: int
    value: float
    reason: int


@dataclass(slots=True)
class _Account:
    app: int
    confirmed: float
    wanted: float
    reason: int = 0
    decided: bool = False
    waits: bool = False
    flying: deque[float] = field(default_factory=deque)

    @property
    def bound(self) -> float:
        return max(self.confirmed, *self.flying) if self.flying else self.confirmed


class Ledger:
    """One resource's limits over all hosts. caps: the global limit of each application; large: the value that
    counts as no limit."""

    def __init__(self, caps: Sequence[float], large: float) -> None:
        self._caps = caps
        self._large = large
        self._accounts: dict[int, _Account] = {}
        self._bound = [0.0 if isinstance(large, float) else 0] * len(caps)
        self._wanted = list(self._bound)
        self._waiting: deque[int] = deque()

    def bound(self, app: int) -> float:
        """Return the most that the application's limits can add up to at this moment."""
        return self._bound[app]

    def wanted(self, id_: int) -> float:
        """Return the latest limit decided for a container."""
        return self._accounts[id_].wanted

    def waiting(self) -> int:
        """Return how many raises are held back."""
        return len(self._waiting)

    def join(self, id_: int, app: int, in_force: float) -> None:
        """Add a container. in_force: the limit that it runs with already, 0 where it does not run yet."""
        counted = min(in_force, self._large)
        self._accounts[id_] = _Account(app, counted, 0 if isinstance(self._large, int) else 0.0)
        self._bound[app] += counted

    def leave(self, id_: int) -> None:
        """Remove a container. Unknown ids are ignored."""
        account = self._accounts.pop(id_, None)
        if account is not None:
            self._bound[account.app] -= account.bound
            self._wanted[account.app] -= account.wanted
            if account.waits:
                self._waiting.remove(id_)

    def decide(self, id_: int, value: float, reason: int) -> Change | None:
        """Note a decision. Return it when it is a cut, which is to be sent at once. A raise, and a limit for
        a container that does not run yet, waits for `released`. Unknown ids are ignored."""
        account = self._accounts.get(id_)
        if account is None:
            return None
        counted = min(value, self._large)
        self._wanted[account.app] += counted - account.wanted
        account.wanted, account.reason, account.decided = counted, reason, True
        if counted <= account.bound:
            if account.waits:
                account.waits = False
                self._waiting.remove(id_)
            return self._send(id_, account)
        if not account.waits:
            account.waits = True
            self._waiting.append(id_)
        return None

    def released(self) -> list[Change]:
        """Return the raises that fit now, the longest waiting first. They count as sent."""
        sent = []
        for _ in range(len(self._waiting)):
            id_ = self._waiting.popleft()
            account = self._accounts[id_]
            cap = max(self._caps[account.app], self._wanted[account.app])
            if self._bound[account.app] - account.bound + account.wanted <= cap * (1 + _SLACK):
                account.waits = False
                sent.append(self._send(id_, account))
            else:
                self._waiting.append(id_)
        return sent

    def confirm(self, id_: int, value: float) -> None:
        """Note that the host wrote the oldest limit on its way to it, and that `value` is in force now."""
        account = self._accounts.get(id_)
        if account is not None and account.flying:
            before = account.bound
            account.flying.popleft()
            account.confirmed = min(value, self._large)
            self._bound[account.app] += account.bound - before

    def report(self, id_: int, value: float) -> bool:
        """Note that the host lowered a limit by itself. Return False where one on its way will override
        that."""
        account = self._accounts.get(id_)
        if account is None or account.flying or account.waits or value > account.confirmed:
            return False
        counted = min(value, self._large)
        self._bound[account.app] += counted - account.confirmed
        self._wanted[account.app] += counted - account.wanted
        account.confirmed = account.wanted = counted
        return True

    def resume(self, ids: Iterable[int], in_force: Sequence[float]) -> list[Change]:
        """Take containers of a host that is back: what was on its way may be lost, what is in force is known.
        Returns what is to be sent at once: the latest decisions that are no raises. Raises wait."""
        sent = []
        for id_, value in zip(ids, in_force, strict=True):
            account = self._accounts[id_]
            self._bound[account.app] -= account.bound
            account.flying.clear()
            account.confirmed = min(value, self._large)
            self._bound[account.app] += account.bound
            change = self.decide(id_, account.wanted, account.reason) if account.decided else None
            if change is not None:
                sent.append(change)
        return sent

    def _send(self, id_: int, account: _Account) -> Change:
        before = account.bound
        account.flying.append(account.wanted)
        self._bound[account.app] += account.bound - before
        return Change(id_, account.wanted, account.reason)
